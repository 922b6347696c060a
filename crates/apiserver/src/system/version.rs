//! `/version`.

use serde_json::{Value, json};

/// The API level that is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
/// The oldest minor version whose components work with this server.
pub const MIN_COMPATIBLE_MINOR: &str = "35";

pub fn document() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": MIN_COMPATIBLE_MINOR,
        "gitVersion": format!("v{MAJOR}.{MINOR}.0+atoll.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
    })
}
