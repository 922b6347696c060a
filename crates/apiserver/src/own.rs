//! The server as its own client: [`ClusterApi`] on the very core that plugins are called from.

use std::sync::Arc;

use async_trait::async_trait;
use atoll_kube_schema::ResourceDef;
use atoll_store::RangeQuery;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use serde_json::Value;

use crate::auth::UserInfo;
use crate::cluster::{Change, Changes, ClusterApi, Listed, Resource};
use crate::error::{ApiError, Cause, Details, Result};
use crate::http_types::{JSON, full};
use crate::objects::{self, split_key, store_error};
use crate::pipeline::Origin;
use crate::server::Core;
use crate::{limits, stored};

impl Core {
    fn stored_row(&self, resource: Resource<'_>) -> Result<Arc<ResourceDef>> {
        let registry = self.registry();
        registry
            .group_rows(resource.group)
            .iter()
            .find(|r| r.plural == resource.plural && r.storage.version == r.version && r.storage.group == r.group)
            .or_else(|| registry.group_rows(resource.group).iter().find(|r| r.plural == resource.plural))
            .cloned()
            .ok_or_else(ApiError::no_such_path)
    }

    /// Sends a request through the pipeline under the server's own identity.
    async fn own_request(&self, method: Method, path: String, body: Vec<u8>) -> Result<Value> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, JSON)
            .header(header::USER_AGENT, "kube-apiserver/v1.36")
            .body(full(body))
            .map_err(ApiError::internal)?;
        let core = self.this.upgrade().ok_or_else(|| ApiError::unavailable("the server is shutting down"))?;
        // Boxed: a plugin of the pipeline may call the pipeline.
        let answer = Box::pin(core.handle(request, Origin::InProcess(Arc::new(UserInfo::apiserver())))).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if code < 400 => Ok(value),
            Ok(status) => Err(error_of_status(code, &status)),
            Err(_) => Err(ApiError::new(code, "", String::from_utf8_lossy(&body))),
        }
    }

    fn object_path(&self, def: &ResourceDef, namespace: &str, name: &str) -> String {
        let root = if def.group.is_empty() { "/api/".to_owned() } else { format!("/apis/{}/", def.group) };
        let scope = if def.namespaced { format!("namespaces/{namespace}/") } else { String::new() };
        let name = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC);
        format!("{root}{}/{scope}{}/{name}", def.version, def.plural)
    }

    fn row_of_object(&self, object: &Value) -> Result<Arc<ResourceDef>> {
        let api_version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.registry().by_kind(group, version, kind).cloned().ok_or_else(ApiError::no_such_path)
    }
}

/// The error that a `Status` tells of.
fn error_of_status(code: u16, status: &Value) -> ApiError {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut error = ApiError::new(code, &text(status, "reason"), text(status, "message"));
    if let Some(details) = status.get("details") {
        let causes = details.get("causes").and_then(Value::as_array).cloned().unwrap_or_default();
        error = error.with_details(Details {
            name: text(details, "name"),
            group: text(details, "group"),
            kind: text(details, "kind"),
            uid: text(details, "uid"),
            causes: causes.iter().map(|c| Cause::new(text(c, "reason"), text(c, "field"), text(c, "message"))).collect(),
            retry_after_seconds: details.get("retryAfterSeconds").and_then(Value::as_u64).unwrap_or_default() as u32,
        });
    }
    error
}

#[async_trait]
impl ClusterApi for Core {
    async fn get(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Result<Option<Arc<Value>>> {
        let def = self.stored_row(resource)?;
        let entry = self.objects.get(&objects::key_of(&def, namespace, name)).await?;
        entry.map(|e| stored::from_stored(&e.value, e.mod_revision.0).map(Arc::new)).transpose()
    }

    async fn list(&self, resource: Resource<'_>, namespace: &str) -> Result<Listed> {
        let def = self.stored_row(resource)?;
        let prefix = objects::prefix_of(&def, if def.namespaced { namespace } else { "" });
        let page = self.objects.range(RangeQuery::prefix(&prefix)).await?;
        let items: Result<Vec<_>> =
            page.entries.iter().map(|(_, e)| stored::from_stored(&e.value, e.mod_revision.0).map(Arc::new)).collect();
        Ok(Listed { items: items?, revision: page.revision.0 })
    }

    async fn watch(&self, resource: Resource<'_>, revision: u64) -> Result<Box<dyn Changes>> {
        let def = self.stored_row(resource)?;
        let prefix = objects::prefix_of(&def, "");
        Ok(Box::new(StoreChanges { watcher: self.objects.watch(&prefix, revision).await?, prefix }))
    }

    async fn create(&self, object: Value) -> Result<Value> {
        let def = self.row_of_object(&object)?;
        let path = self.object_path(&def, crate::strategy::meta_text(&object, "namespace"), "");
        let body = serde_json::to_vec(&object).map_err(ApiError::internal)?;
        self.own_request(Method::POST, path.trim_end_matches('/').to_owned(), body).await
    }

    async fn update(&self, object: Value, subresource: &str) -> Result<Value> {
        let def = self.row_of_object(&object)?;
        let (namespace, name) = (crate::strategy::meta_text(&object, "namespace"), crate::strategy::meta_text(&object, "name"));
        let mut path = self.object_path(&def, namespace, name);
        if !subresource.is_empty() {
            path = format!("{path}/{subresource}");
        }
        let body = serde_json::to_vec(&object).map_err(ApiError::internal)?;
        self.own_request(Method::PUT, path, body).await
    }

    async fn delete(&self, resource: Resource<'_>, namespace: &str, name: &str) -> Result<()> {
        let def = self.stored_row(resource)?;
        self.own_request(Method::DELETE, self.object_path(&def, namespace, name), Vec::new()).await.map(drop)
    }

    fn revision(&self) -> Option<u64> {
        Some(self.objects.revision())
    }

    fn dialer(&self) -> crate::egress::SharedDialer {
        self.dialer.clone()
    }
}

struct StoreChanges {
    watcher: Box<dyn atoll_store::Watcher>,
    prefix: String,
}

#[async_trait]
impl Changes for StoreChanges {
    async fn next(&mut self) -> Result<Vec<Change>> {
        let events = self.watcher.next_batch(limits::WATCH_BATCH_EVENTS_MAX).await.map_err(store_error)?;
        events
            .iter()
            .map(|event| {
                let (namespace, name) = split_key(&event.key, &self.prefix);
                let object = match &event.current {
                    Some(entry) => Some(Arc::new(stored::from_stored(&entry.value, entry.mod_revision.0)?)),
                    None => None,
                };
                Ok(Change { namespace: namespace.to_owned(), name: name.to_owned(), revision: event.revision.0, object })
            })
            .collect()
    }
}
