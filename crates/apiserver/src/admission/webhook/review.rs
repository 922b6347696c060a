//! AdmissionReview: the question and the answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::Webhook;
use crate::admission::Attributes;
use crate::error::{ApiError, Details};

/// The newest version that the webhook and this server know.
fn review_version(webhook: &Webhook) -> Option<&'static str> {
    webhook.admission_review_versions.iter().find_map(|v| match v.as_str() {
        "v1" => Some("v1"),
        "v1beta1" => Some("v1beta1"),
        _ => None,
    })
}

/// The question, or why there is none.
pub(super) fn question(webhook: &Webhook, attributes: &Attributes, uid: &str) -> Result<Value, String> {
    let version = review_version(webhook).ok_or_else(|| {
        let versions = &webhook.admission_review_versions;
        format!("the webhook takes AdmissionReview {versions:?}, this server sends v1 and v1beta1")
    })?;
    let kind = json!({ "group": attributes.kind.group, "version": attributes.kind.version, "kind": attributes.kind.kind });
    let resource = json!({ "group": attributes.group, "version": attributes.version, "resource": attributes.resource });
    let mut request = json!({
        "uid": uid,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": attributes.operation.as_str(),
        "userInfo": attributes.user,
        "object": attributes.object,
        "oldObject": attributes.old.as_deref().cloned().unwrap_or(Value::Null),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    let texts = [
        ("subResource", &attributes.subresource),
        ("requestSubResource", &attributes.subresource),
        ("name", &attributes.name),
        ("namespace", &attributes.namespace),
    ];
    for (key, value) in texts {
        if !value.is_empty() {
            request[key] = json!(value);
        }
    }
    let api_version = format!("admission.k8s.io/{version}");
    Ok(json!({ "kind": "AdmissionReview", "apiVersion": api_version, "request": request }))
}

/// An answer as it came.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    status: Option<Value>,
    #[serde(default)]
    patch: Option<String>,
    #[serde(default)]
    patch_type: Option<String>,
    #[serde(default)]
    audit_annotations: Option<std::collections::BTreeMap<String, String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

/// What a webhook said.
#[derive(Debug)]
pub(super) struct Verdict {
    /// Why not, if it is refused.
    pub(super) refusal: Option<Value>,
    /// A JSON patch.
    pub(super) patch: Option<Value>,
    pub(super) warnings: Vec<String>,
    pub(super) audit_annotations: Vec<(String, String)>,
}

/// Reads an answer; an error means that the webhook does not speak the protocol, which counts as a failed call.
pub(super) fn verdict(question: &Value, answer: &[u8], is_mutating: bool) -> Result<Verdict, String> {
    let review: Value = serde_json::from_slice(answer).map_err(|e| format!("the answer is not JSON: {e}"))?;
    let is_v1 = question["apiVersion"] == "admission.k8s.io/v1";
    if is_v1 && (review["apiVersion"] != question["apiVersion"] || review["kind"] != "AdmissionReview") {
        let (version, kind) = (&review["apiVersion"], &review["kind"]);
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {version}, Kind={kind}"
        ));
    }
    let response = review.get("response").filter(|r| r.is_object()).ok_or("webhook response was absent")?;
    let response = Response::deserialize(response).map_err(|e| format!("the answer's response is not readable: {e}"))?;
    if is_v1 && question["request"]["uid"] != json!(response.uid) {
        let wanted = &question["request"]["uid"];
        return Err(format!("expected response.uid={wanted}, got {:?}", response.uid));
    }
    let patch = read_patch(&response, is_v1, is_mutating)?;
    let refusal = (!response.allowed).then(|| response.status.unwrap_or(Value::Null));
    Ok(Verdict {
        refusal,
        patch,
        warnings: response.warnings.unwrap_or_default(),
        audit_annotations: response.audit_annotations.unwrap_or_default().into_iter().collect(),
    })
}

fn read_patch(response: &Response, is_v1: bool, is_mutating: bool) -> Result<Option<Value>, String> {
    let text = response.patch.as_deref().unwrap_or_default();
    let kind = response.patch_type.as_deref().unwrap_or_default();
    if !is_mutating {
        let forbidden = is_v1 && (!text.is_empty() || !kind.is_empty());
        return if forbidden { Err("a validating webhook may not answer with a patch".to_owned()) } else { Ok(None) };
    }
    if text.is_empty() {
        let lonely = is_v1 && !kind.is_empty();
        return if lonely { Err("webhook returned response.patchType but no patch".to_owned()) } else { Ok(None) };
    }
    if kind != "JSONPatch" && (is_v1 || !kind.is_empty()) {
        return Err(format!("response.patchType is {kind:?}, only \"JSONPatch\" is known"));
    }
    let bytes = STANDARD.decode(text).map_err(|e| format!("response.patch is not base64: {e}"))?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| format!("response.patch is not JSON: {e}"))
}

/// The Status of a refusal: the webhook's code and message where it gave some; a code that is no error becomes 400.
pub(super) fn refused(webhook: &str, status: &Value) -> ApiError {
    let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok()).filter(|c| *c >= 400).unwrap_or(400);
    let (message, reason) = (status["message"].as_str().unwrap_or_default(), status["reason"].as_str().unwrap_or_default());
    let text = match (message, reason) {
        ("", "") => format!("admission webhook \"{webhook}\" denied the request without explanation"),
        ("", reason) => format!("admission webhook \"{webhook}\" denied the request: {reason}"),
        (message, _) => format!("admission webhook \"{webhook}\" denied the request: {message}"),
    };
    let error = ApiError::new(code, reason, text);
    match status.get("details").filter(|d| d.is_object()) {
        Some(details) => error.with_details(details_of(details)),
        None => error,
    }
}

fn details_of(details: &Value) -> Details {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let causes = details["causes"].as_array().into_iter().flatten();
    Details {
        name: text(details, "name"),
        group: text(details, "group"),
        kind: text(details, "kind"),
        uid: text(details, "uid"),
        causes: causes.map(|c| crate::error::Cause::new(text(c, "reason"), text(c, "field"), text(c, "message"))).collect(),
        retry_after_seconds: details["retryAfterSeconds"].as_u64().and_then(|s| u32::try_from(s).ok()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Value {
        json!({ "apiVersion": "admission.k8s.io/v1", "request": { "uid": "u" } })
    }

    fn answer(response: Value) -> Vec<u8> {
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response }).to_string().into_bytes()
    }

    #[test]
    fn another_questions_answer_is_not_taken() {
        assert!(verdict(&ask(), &answer(json!({ "uid": "other", "allowed": true })), false).is_err());
        assert!(verdict(&ask(), b"{}", false).is_err());
        assert!(verdict(&ask(), &answer(json!({ "uid": "u", "allowed": true })), false).expect("allowed").refusal.is_none());
    }

    #[test]
    fn a_patch_needs_its_type_and_a_mutating_webhook() {
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        let full = answer(json!({ "uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch" }));
        assert!(verdict(&ask(), &full, true).expect("patched").patch.is_some());
        assert!(verdict(&ask(), &full, false).is_err());
        assert!(verdict(&ask(), &answer(json!({ "uid": "u", "allowed": true, "patch": patch })), true).is_err());
    }

    #[test]
    fn a_refusal_without_words_says_so() {
        assert_eq!(refused("w", &Value::Null).message, "admission webhook \"w\" denied the request without explanation");
        let error = refused("w", &json!({ "code": 200, "message": "no" }));
        assert_eq!((error.code, error.message.as_str()), (400, "admission webhook \"w\" denied the request: no"));
    }
}
