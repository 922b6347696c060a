//! What the tests that need a real machine share.

use std::path::PathBuf;

/// Whether the test can run; says loudly when it cannot.
pub fn is_root(test: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("SKIPPED {test}: making namespaces and groups needs root");
    }
    root
}

/// The example program, which cargo builds beside the tests: image and launcher of the containers.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("a test is in target/*/deps");
    let program = target.join("examples/agent");
    assert!(program.exists(), "{} is missing: build the examples first", program.display());
    program
}
