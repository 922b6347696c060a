//! TokenReview.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::auth::TokenVerdict;
use crate::auth::follow::text;
use crate::error::{ApiError, Result};
use crate::virtual_resource::VirtualRequest;

pub(super) async fn review(request: &VirtualRequest<'_>, object: &Value) -> Result<Value> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let Some(tokens) = &request.authenticators.tokens else { return Ok(json!({"user": {}})) };
    let asked: Vec<String> = spec.get("audiences").and_then(|list| serde_json::from_value(list.clone()).ok()).unwrap_or_default();
    Ok(match tokens.judge(token, &asked, Timestamp::now(), request.cluster).await {
        TokenVerdict::Good(user, audiences) if audiences.is_empty() => json!({"authenticated": true, "user": user}),
        TokenVerdict::Good(user, audiences) => json!({"authenticated": true, "user": user, "audiences": audiences}),
        TokenVerdict::Bad(why) => json!({"user": {}, "error": why}),
    })
}
