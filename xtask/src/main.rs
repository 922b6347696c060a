//! Code generation and release chores: `cargo xtask schema --definitions FILE --k8s-pb DIR [--check]`.

mod schema;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask schema --definitions FILE --k8s-pb DIR [--check]\n\n\
    FILE  `_definitions.json` of the API level, from the Python package kubernetes-validate\n\
    DIR   sources of the crate k8s-pb (its `src` folder's parent)\n\
    With --check nothing is written; the exit code is 1 if the committed table is stale.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("schema") => schema::run(&args[1..]),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(message) => {
            println!("{message}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
