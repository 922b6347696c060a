//! Pods: deleted once the kubelet has ended them, or at once where there is nothing to end.

use serde_json::Value;

use crate::path::get;

/// `terminationGracePeriodSeconds` where the Pod states none.
const GRACE_SECONDS: i64 = 30;

pub fn grace_seconds(pod: &Value, asked: Option<i64>) -> i64 {
    let stated = get(pod, "spec.terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = match asked.unwrap_or_else(|| stated.unwrap_or(GRACE_SECONDS)) {
        // A negative time is as little as there is.
        n if n < 0 => 1,
        n => n,
    };
    let is_placed = get(pod, "spec.nodeName").and_then(Value::as_str).is_some_and(|n| !n.is_empty());
    let is_over = matches!(get(pod, "status.phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    if is_placed && !is_over { seconds } else { 0 }
}
