//! Probes, lifecycle handlers and stop signals.

use serde_json::Value;

use super::super::check::{Check, Hook};
use super::super::formats;
use super::super::path::Path;
use super::super::view::{at, has, int, list, maybe_int, text};

pub fn hook(name: &str) -> Option<Hook> {
    let rule: Hook = match name {
        "probe_handler" => |c, v, p| handler(c, v, &["exec", "httpGet", "tcpSocket", "grpc"], p),
        "lifecycle_handler" => |c, v, p| handler(c, v, &["exec", "httpGet", "tcpSocket", "sleep"], p),
        "stop_signal" => stop_signal,
        "sleep" => sleep,
        "http_headers" => http_headers,
        "port_number_or_name" => port_number_or_name,
        _ => return None,
    };
    Some(rule)
}

fn section_of(field: &str) -> &'static str {
    match field {
        "exec" => "Handler.exec",
        "httpGet" => "Handler.httpGet",
        "tcpSocket" => "Handler.tcpSocket",
        "grpc" => "Handler.grpc",
        _ => "Handler.sleep",
    }
}

fn handler<'a>(c: &mut Check<'a>, value: &'a Value, fields: &[&str], path: &Path<'_>) {
    let mut count = 0;
    for field in fields.iter().filter(|f| has(value, f)) {
        if count > 0 {
            c.forbidden(&path.field(field), "may not specify more than 1 handler type");
        } else {
            count += 1;
            c.section(section_of(field), at(value, field), &path.field(field));
        }
    }
    if count == 0 {
        c.required(path, "must specify a handler type");
    }
}

/// The three probes of a container.
pub fn container_probes<'a>(c: &mut Check<'a>, container: &'a Value, path: &Path<'_>) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, field);
        if probe.is_null() {
            continue;
        }
        let path = path.field(field);
        c.section("Probe", probe, &path);
        if field == "readinessProbe" {
            if has(probe, "terminationGracePeriodSeconds") {
                let value = int(probe, "terminationGracePeriodSeconds");
                c.invalid(&path.field("terminationGracePeriodSeconds"), value, "must not be set for readinessProbes");
            }
        } else if int(probe, "successThreshold") != 1 {
            c.invalid(&path.field("successThreshold"), int(probe, "successThreshold"), "must be 1");
        }
    }
}

fn sleep<'a>(c: &mut Check<'a>, action: &'a Value, path: &Path<'_>) {
    let seconds = int(action, "seconds");
    // A negative period is stored as one second.
    let grace = maybe_int(c.pod.spec, "terminationGracePeriodSeconds").map(|g| if g < 0 { 1 } else { g });
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        c.invalid(path, seconds, detail);
    }
}

fn http_headers<'a>(c: &mut Check<'a>, action: &'a Value, path: &Path<'_>) {
    let path = path.field("httpHeaders");
    for header in list(action, "httpHeaders") {
        let name = text(header, "name");
        c.invalid_each(&path, name, formats::header_name(name));
    }
}

/// A port that may be named.
pub fn port_number_or_name<'a>(c: &mut Check<'a>, value: &'a Value, path: &Path<'_>) {
    match value.as_str() {
        Some(name) => c.invalid_each(path, name, formats::port_name(name)),
        None => super::containers::port_number(c, value.as_i64().unwrap_or_default(), path),
    }
}

fn is_linux_signal(name: &str) -> bool {
    const NAMED: &str = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STKFLT STOP \
        SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ";
    let Some(name) = name.strip_prefix("SIG") else { return false };
    let numbered = |prefix: &str, max: u32| {
        name.strip_prefix(prefix).is_some_and(|n| !n.starts_with('0') && n.parse::<u32>().is_ok_and(|n| (1..=max).contains(&n)))
    };
    NAMED.split(' ').any(|n| n == name) || numbered("RTMIN+", 15) || numbered("RTMAX-", 14)
}

fn stop_signal<'a>(c: &mut Check<'a>, signal: &'a Value, path: &Path<'_>) {
    let signal = signal.as_str().unwrap_or_default();
    if !has(c.pod.spec, "os") {
        return c.forbidden(path, "may not be set for containers with empty `spec.os.name`");
    }
    match text(c.pod.spec, "os.name") {
        "windows" if !matches!(signal, "SIGKILL" | "SIGTERM") => c.not_supported(path, signal, &["SIGKILL", "SIGTERM"]),
        "linux" if !is_linux_signal(signal) => c.not_supported(path, signal, &["SIGABRT", "SIGALRM", "SIGBUS", "SIGTERM"]),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals() {
        assert!(is_linux_signal("SIGTERM") && is_linux_signal("SIGRTMIN+15") && is_linux_signal("SIGRTMAX-1"));
        assert!(!is_linux_signal("SIGRTMIN+16") && !is_linux_signal("TERM") && !is_linux_signal("SIGRTMAX-0"));
    }
}
