//! Holds the direction of dependencies: a crate uses those above it in this list, never those below.

use std::path::Path;

const ORDER: [&str; 15] = [
    "kube-schema",
    "devices",
    "node-protocol",
    "store",
    "pki",
    "tunnel",
    "apiserver",
    "controllers",
    "scheduler",
    "gpu",
    "node",
    "control-plane",
    "tenancy",
    "lab",
    "atoll",
];

/// Own crates that a crate's manifest names under `[dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter_map(|name| name.strip_prefix("atoll-")).map(str::to_owned).collect()
}

#[test]
fn dependencies_point_up_the_list() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates' directory");
    let mut found: Vec<String> = std::fs::read_dir(crates)
        .expect("crates")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut listed: Vec<String> = ORDER.iter().map(|name| (*name).to_owned()).collect();
    listed.sort();
    assert_eq!(found, listed, "a crate that has no place in the order");
    for (place, name) in ORDER.iter().enumerate() {
        let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).expect("a manifest");
        for dependency in dependencies(&manifest) {
            let other = ORDER.iter().position(|n| *n == dependency).expect("a crate of the order");
            assert!(other < place, "{name} depends on {dependency}, which stands below it");
        }
    }
}
