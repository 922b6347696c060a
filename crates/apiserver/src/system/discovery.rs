//! Discovery documents in the form that the client asks for.

use atoll_kube_schema::{Registry, discovery};
use http::{HeaderMap, header};
use serde_json::Value;

use crate::error::{ApiError, Result};

/// A document and, where the client asked for a special form, its media type.
pub struct Document {
    pub value: Value,
    pub media_type: Option<&'static str>,
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

pub fn serve(registry: &Registry, segments: &[&str], headers: &HeaderMap) -> Result<Document> {
    let plain = |value: Option<Value>| Ok(Document { value: value.ok_or_else(ApiError::no_such_path)?, media_type: None });
    match segments {
        ["api"] if wants_aggregated(headers) => {
            Ok(Document { value: discovery::aggregated_core(registry), media_type: Some(AGGREGATED) })
        }
        ["apis"] if wants_aggregated(headers) => {
            Ok(Document { value: discovery::aggregated_groups(registry), media_type: Some(AGGREGATED) })
        }
        ["api"] => plain(Some(discovery::api_versions(registry, &[]))),
        ["apis"] => plain(Some(discovery::api_groups(registry))),
        ["api", version] => plain(discovery::api_resources(registry, "", version)),
        ["apis", group] => plain(discovery::api_group(registry, group)),
        ["apis", group, version] => plain(discovery::api_resources(registry, group, version)),
        _ => Err(ApiError::no_such_path()),
    }
}

/// Whether the client takes aggregated discovery before the plain form.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    for clause in accept.split(',') {
        let words: Vec<&str> = clause.split(';').map(str::trim).collect();
        if words[0] != crate::http_types::JSON && words[0] != "*/*" {
            continue;
        }
        if words.contains(&"as=APIGroupDiscoveryList") && words.contains(&"g=apidiscovery.k8s.io") && words.contains(&"v=v2") {
            return true;
        }
        if words.len() == 1 {
            return false;
        }
    }
    false
}
