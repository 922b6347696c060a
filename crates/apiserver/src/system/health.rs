//! `/healthz`, `/livez`, `/readyz`, as a whole and check by check.

use http::Response;

use crate::http_types::{Body, TEXT, answer};
use crate::request::Query;
use crate::server::Core;

/// Checks of all three; `etcd` is the store, under the name that monitoring asks for.
const COMMON: [&str; 3] = ["ping", "log", "etcd"];
const READY: [&str; 3] = ["etcd-readiness", "informer-sync", "poststarthook/bootstrap-objects"];

pub fn serve(core: &Core, segments: &[&str], query: &Query) -> Response<Body> {
    let endpoint = segments[0];
    let mut checks: Vec<&str> = COMMON.to_vec();
    match endpoint {
        "readyz" => checks.extend(READY.iter().chain(&["shutdown"])),
        _ => checks.push("poststarthook/bootstrap-objects"),
    }
    if segments.len() > 1 {
        let name = segments[1..].join("/");
        return match checks.contains(&name.as_str()) {
            true if is_well(core, &name) => answer(200, TEXT, "ok"),
            true => answer(500, TEXT, format!("internal server error: {name} failed: reason withheld\n")),
            false => answer(404, TEXT, "404 page not found\n"),
        };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut lines = String::new();
    let mut all_well = true;
    for check in &checks {
        if excluded.contains(check) {
            lines.push_str(&format!("[+]{check} excluded: ok\n"));
        } else if is_well(core, check) {
            lines.push_str(&format!("[+]{check} ok\n"));
        } else {
            all_well = false;
            lines.push_str(&format!("[-]{check} failed: reason withheld\n"));
        }
    }
    let unknown: Vec<&str> = excluded.into_iter().filter(|e| !checks.contains(e)).collect();
    if !unknown.is_empty() {
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {}\n", unknown.join(", ")));
    }
    if !all_well {
        return answer(500, TEXT, format!("{lines}{endpoint} check failed\n"));
    }
    if query.get("verbose").is_some() {
        return answer(200, TEXT, format!("{lines}{endpoint} check passed\n"));
    }
    answer(200, TEXT, "ok")
}

fn is_well(core: &Core, check: &str) -> bool {
    match check {
        "poststarthook/bootstrap-objects" | "informer-sync" => core.is_bootstrapped(),
        "shutdown" => !core.is_stopping(),
        _ => true,
    }
}
