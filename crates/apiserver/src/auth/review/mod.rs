//! Reviews and token requests: kinds that are answered, not stored. A create answers the object with its status filled.

mod access;
mod tokens;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::service_account::request_token;
use crate::error::{ApiError, Result};
use crate::virtual_resource::{VirtualRequest, VirtualResource};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All of them.
#[derive(Debug, Default)]
pub struct Reviews;

#[async_trait]
impl VirtualResource for Reviews {
    fn serves(&self, group: &str, resource: &str, subresource: &str) -> bool {
        (subresource.is_empty() && matches!(group, AUTHENTICATION | AUTHORIZATION))
            || (subresource, resource) == ("token", "serviceaccounts")
    }

    async fn create(&self, request: &VirtualRequest<'_>, mut object: Value) -> Result<Value> {
        let now = Timestamp::now();
        let status = match (request.group, request.resource) {
            ("", "serviceaccounts") => {
                let Some(tokens) = &request.authenticators.tokens else { return Err(ApiError::method_not_allowed()) };
                let (namespace, name) = (request.namespace, request.name);
                return request_token(&tokens.service_accounts, object, namespace, name, now, request.cluster).await;
            }
            (AUTHENTICATION, "tokenreviews") => tokens::review(request, &object).await?,
            (AUTHENTICATION, "selfsubjectreviews") => {
                let created = Timestamp::from_second(now.as_second()).unwrap_or(now);
                object["metadata"]["creationTimestamp"] = created.to_string().into();
                json!({"userInfo": request.user})
            }
            (AUTHORIZATION, "selfsubjectrulesreviews") => access::rules(request, &object).await?,
            (AUTHORIZATION, "selfsubjectaccessreviews") => access::own(request, &object).await?,
            (AUTHORIZATION, "subjectaccessreviews") => access::of_subject(request, &object).await?,
            (AUTHORIZATION, "localsubjectaccessreviews") => access::of_local_subject(request, &object).await?,
            _ => return Err(ApiError::method_not_allowed()),
        };
        object["status"] = status;
        Ok(object)
    }
}
