//! AdmissionReview, `v1` and `v1beta1`: the fields used are the same in both, so one reader serves both.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::mutate::{Rules, Verdict, on_create, on_update};

/// A review that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The AdmissionReview to send back.
    pub body: Value,
    /// The request's uid, for the log.
    pub uid: String,
    /// `CREATE` or `UPDATE`.
    pub operation: String,
    /// `namespace/name` of the Pod; the name may be that of its generator.
    pub pod: String,
    /// Whether the Pod passes.
    pub allowed: bool,
}

/// Answers a review; `Err` says what is wrong with the request itself.
pub fn answer(body: &[u8], rules: &Rules) -> Result<Answer, String> {
    let review: Value = serde_json::from_slice(body).map_err(|error| format!("not JSON: {error}"))?;
    let version = match review["apiVersion"].as_str() {
        Some(version @ ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1")) => version,
        other => return Err(format!("apiVersion {other:?} is neither admission.k8s.io/v1 nor /v1beta1")),
    };
    let request = &review["request"];
    let uid = request["uid"].as_str().ok_or("request has no uid")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let operation = text(&request["operation"]);
    let user = text(&request["userInfo"]["username"]);
    let verdict = match (text(&request["resource"]["resource"]).as_str(), operation.as_str()) {
        ("pods", "CREATE") => on_create(&request["object"], &user, rules),
        ("pods", "UPDATE") => on_update(&request["oldObject"], &request["object"], &user, rules),
        _ => Verdict::Allow { patch: Vec::new(), warnings: Vec::new() },
    };
    let metadata = &request["object"]["metadata"];
    let name = metadata["name"].as_str().or(request["name"].as_str()).or(metadata["generateName"].as_str());
    let pod = format!("{}/{}", text(&request["namespace"]), name.unwrap_or_default());
    let allowed = matches!(verdict, Verdict::Allow { .. });
    let response = response(uid, verdict);
    let body = json!({"apiVersion": version, "kind": "AdmissionReview", "response": response});
    Ok(Answer { body, uid: uid.to_owned(), operation, pod, allowed })
}

fn response(uid: &str, verdict: Verdict) -> Value {
    match verdict {
        Verdict::Deny { code, message } => {
            json!({"uid": uid, "allowed": false, "status": {"code": code, "message": message}})
        }
        Verdict::Allow { patch, warnings } => {
            let mut response = json!({"uid": uid, "allowed": true});
            if !patch.is_empty() {
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(STANDARD.encode(Value::Array(patch).to_string()));
            }
            if !warnings.is_empty() {
                response["warnings"] = json!(warnings);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(version: &str, request: &Value) -> Result<Answer, String> {
        let body = json!({"apiVersion": format!("admission.k8s.io/{version}"), "kind": "AdmissionReview", "request": request});
        answer(body.to_string().as_bytes(), &Rules::default())
    }

    #[test]
    fn both_versions_are_answered_in_kind() {
        let pod = json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c",
            "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10}}}]}});
        let request = json!({"uid": "u1", "operation": "CREATE", "namespace": "ns", "resource": {"resource": "pods"},
            "userInfo": {"username": "jane"}, "object": pod});
        for version in ["v1", "v1beta1"] {
            let answer = review(version, &request).unwrap();
            assert_eq!((answer.uid.as_str(), answer.pod.as_str(), answer.allowed), ("u1", "ns/p-", true));
            assert_eq!(answer.body["apiVersion"], format!("admission.k8s.io/{version}"));
            let patch = STANDARD.decode(answer.body["response"]["patch"].as_str().unwrap()).unwrap();
            let patch: Value = serde_json::from_slice(&patch).unwrap();
            assert_eq!(patch, json!([{"op": "add", "path": "/spec/schedulerName", "value": "hami-scheduler"}]));
        }
        assert!(review("v2", &request).is_err());
    }

    #[test]
    fn a_refusal_carries_code_and_message() {
        let request = json!({"uid": "u1", "operation": "CREATE", "resource": {"resource": "pods"}, "object": {"spec": {}}});
        let answer = review("v1", &request).unwrap();
        assert!(!answer.allowed);
        assert_eq!(answer.body["response"]["status"], json!({"code": 403, "message": "pod has no containers"}));
    }

    #[test]
    fn what_is_no_review_is_an_error() {
        assert!(answer(b"{", &Rules::default()).is_err());
        assert!(review("v1", &json!({})).unwrap_err().contains("uid"));
    }
}
