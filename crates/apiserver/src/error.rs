//! The one error of the pipeline and how it becomes a Kubernetes `Status`.

use serde::Serialize;

/// One cause of a `Status`: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Path of the field, such as `spec.containers[0].name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    pub fn new(reason: impl Into<String>, field: impl Into<String>, message: impl Into<String>) -> Self {
        Cause { reason: reason.into(), message: message.into(), field: field.into() }
    }
}

/// `Status.details`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural resource name, except for `Invalid`, where it is the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A request that failed: everything that its `Status` says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    /// `metav1.StatusReason`; empty for unknown.
    pub reason: String,
    pub message: String,
    pub details: Option<Box<Details>>,
    /// `metadata.continue` of an expired list.
    pub continue_token: Option<String>,
}

pub type Result<T, E = ApiError> = std::result::Result<T, E>;

const NO_SUCH_PATH: &str = "404 page not found";

/// `group` and `plural` of a resource, as errors print them.
#[derive(Clone, Copy, Debug)]
pub struct GroupResource<'a> {
    pub group: &'a str,
    pub resource: &'a str,
}

impl std::fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => f.write_str(self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}

impl ApiError {
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        ApiError { code, reason: reason.to_owned(), message: message.into(), details: None, continue_token: None }
    }

    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    fn about(self, resource: GroupResource<'_>, name: &str) -> Self {
        self.with_details(Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Details::default()
        })
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        ApiError::new(400, "BadRequest", message)
    }

    /// 400 for what another crate says is wrong with the request.
    pub fn bad_request_of(why: impl std::fmt::Display) -> Self {
        ApiError::bad_request(why.to_string())
    }

    pub fn unauthorized() -> Self {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403 about an object (`name` may be empty).
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        let message = match (resource.resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{resource} is forbidden: {why}"),
            _ => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        ApiError::new(403, "Forbidden", message).about(resource, name)
    }

    /// 404 of a path that nothing is served at.
    pub fn no_such_path() -> Self {
        ApiError::new(404, "NotFound", NO_SUCH_PATH)
    }

    /// Whether nothing is served at the path at all: that is answered in plain text, as upstream does.
    pub fn is_no_such_path(&self) -> bool {
        self.code == 404 && self.message == NO_SUCH_PATH
    }

    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        ApiError::new(404, "NotFound", format!("{resource} \"{name}\" not found")).about(resource, name)
    }

    pub fn method_not_allowed() -> Self {
        ApiError::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
            .with_details(Details::default())
    }

    pub fn not_acceptable(served: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", served.join(", "));
        ApiError::new(406, "NotAcceptable", message)
    }

    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        ApiError::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists")).about(resource, name)
    }

    pub fn conflict(resource: GroupResource<'_>, name: &str, why: impl std::fmt::Display) -> Self {
        ApiError::new(409, "Conflict", format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}"))
            .about(resource, name)
    }

    /// 410 of a revision that has left the log.
    pub fn expired(message: impl Into<String>) -> Self {
        ApiError::new(410, "Expired", message)
    }

    pub fn too_large(message: impl Into<String>) -> Self {
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    pub fn unsupported_media_type(served: &[&str]) -> Self {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {}", served.join(", "));
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 422: the object of `kind` breaks the rules that `causes` name.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let rules: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let rules = if rules.len() == 1 { rules.concat() } else { format!("[{}]", rules.join(", ")) };
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("{shown} \"{name}\" is invalid: {rules}");
        ApiError::new(422, "Invalid", message).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        })
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        ApiError::new(429, "TooManyRequests", message).with_details(Details { retry_after_seconds, ..Details::default() })
    }

    pub fn internal(why: impl std::fmt::Display) -> Self {
        let why = why.to_string();
        ApiError::new(500, "InternalError", format!("Internal error occurred: {why}"))
            .with_details(Details { causes: vec![Cause::new("", "", why)], ..Details::default() })
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        ApiError::new(503, "ServiceUnavailable", message)
    }

    /// 504 of a request that took longer than it may.
    pub fn timeout(message: impl Into<String>) -> Self {
        ApiError::new(504, "Timeout", format!("Timeout: {}", message.into())).with_details(Details::default())
    }

    /// The `Status` object.
    pub fn to_status(&self) -> serde_json::Value {
        let mut metadata = serde_json::Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = serde_json::json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = serde_json::to_value(details).unwrap_or_default();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_the_object_and_its_group() {
        let status = ApiError::not_found(GroupResource { group: "apps", resource: "deployments" }, "web").to_status();
        assert_eq!(status["message"], "deployments.apps \"web\" not found");
        assert_eq!(status["details"], serde_json::json!({"name": "web", "group": "apps", "kind": "deployments"}));
        assert_eq!(status["code"], 404);
    }
}
