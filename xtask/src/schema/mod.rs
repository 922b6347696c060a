//! Writes `crates/kube-schema/table/types.txt`: every built-in type and field, facts only, from two published packages and rows
//! of our own for what those lack.

mod definitions;
mod presence;
mod tags;

use std::fs;
use std::path::{Path, PathBuf};

use tags::Tags;

fn table_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/kube-schema/table")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs the command; the message says what was written or found fresh.
pub fn run(args: &[String]) -> Result<String, String> {
    let option = |name: &str| -> Result<PathBuf, String> {
        let at = args.iter().position(|a| a == name).ok_or_else(|| format!("{name} is missing"))?;
        args.get(at + 1).map(PathBuf::from).ok_or_else(|| format!("{name} needs a value"))
    };
    let definitions = definitions::parse(&read(&option("--definitions")?)?)?;
    let mut tags = Tags::parse_crate(&option("--k8s-pb")?.join("src"))?;
    tags.add_rows(&read(&table_dir().join("own/tags.txt"))?)?;
    let presence = presence::parse(&read(&table_dir().join("own/presence.txt"))?)?;
    let text = definitions::render(&definitions, &tags, &presence)?;
    let path = table_dir().join("types.txt");
    if args.iter().any(|a| a == "--check") {
        return if read(&path)? == text {
            Ok("types.txt is fresh".to_owned())
        } else {
            Err("types.txt is stale: run `cargo xtask schema` without --check".to_owned())
        };
    }
    fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("wrote {} types", definitions.len()))
}
