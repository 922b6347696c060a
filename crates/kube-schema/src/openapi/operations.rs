//! One operation of a path, and how it is written in both dialects.

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Schemas, gvk};

/// A query or path parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub type_name: &'static str,
    pub is_in_path: bool,
}

const fn query(name: &'static str, type_name: &'static str) -> Parameter {
    Parameter { name, type_name, is_in_path: false }
}

const fn segment(name: &'static str) -> Parameter {
    Parameter { name, type_name: "string", is_in_path: true }
}

pub(super) const NAME: Parameter = segment("name");
pub(super) const NAMESPACE: Parameter = segment("namespace");
pub(super) const PATH: Parameter = segment("path");
pub(super) const PRETTY: Parameter = query("pretty", "string");
const DRY_RUN: Parameter = query("dryRun", "string");

pub(super) const LIST: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];

pub(super) const WRITE: [Parameter; 3] = [DRY_RUN, query("fieldManager", "string"), query("fieldValidation", "string")];

pub(super) const FORCE: Parameter = query("force", "boolean");

pub(super) const DELETE: [Parameter; 5] = [
    DRY_RUN,
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];

pub(super) const LOG: [Parameter; 9] = [
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];

const STREAM: [Parameter; 5] = [
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];

/// Query parameters of a subresource that clients connect to.
pub(super) fn connect(subresource: &str) -> Vec<Parameter> {
    match subresource {
        "exec" => [&[query("command", "string")], STREAM.as_slice()].concat(),
        "attach" => STREAM.to_vec(),
        "portforward" => vec![query("ports", "integer")],
        _ => vec![query("path", "string")],
    }
}

/// What an operation reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    None,
    /// An object of a type; required unless it is options.
    Object(String, bool),
    Patch(&'static [&'static str]),
}

/// What an operation answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Produces {
    Object,
    /// A list, which a watch may turn into a stream.
    Stream,
    Log,
    Anything,
}

pub(super) const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
/// Custom kinds have no strategic merge.
pub(super) const CUSTOM_PATCHES: [&str; 3] =
    ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One method of a path.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub method: &'static str,
    pub id: String,
    /// `x-kubernetes-action`; empty for discovery.
    pub action: &'static str,
    pub tag: String,
    pub kind: Option<(String, String, String)>,
    pub parameters: Vec<Parameter>,
    pub body: Body,
    /// Status codes with the type that answers them (`string` for plain text).
    pub responses: Vec<(&'static str, String)>,
    pub produces: Produces,
    pub has_protobuf: bool,
}

impl Operation {
    fn media_types(&self) -> Vec<&'static str> {
        let mut out = match self.produces {
            Produces::Anything => return vec!["*/*"],
            Produces::Object => vec![JSON, YAML],
            Produces::Stream => vec![JSON, "application/json;stream=watch", YAML],
            Produces::Log => vec!["text/plain", JSON, YAML],
        };
        if self.has_protobuf {
            out.push(PROTOBUF);
            if self.produces == Produces::Stream {
                out.push("application/vnd.kubernetes.protobuf;stream=watch");
            }
        }
        out
    }

    /// Writes the operation with the parameters that are not those of the whole path.
    pub(super) fn render(&self, own: &[Parameter], schemas: &mut Schemas) -> Value {
        let mut out = Map::new();
        out.insert("operationId".to_owned(), self.id.as_str().into());
        out.insert("tags".to_owned(), json!([self.tag]));
        if !self.action.is_empty() {
            out.insert("x-kubernetes-action".to_owned(), self.action.into());
        }
        if let Some((group, version, kind)) = &self.kind {
            out.insert("x-kubernetes-group-version-kind".to_owned(), gvk(group, version, kind));
        }
        let mut parameters = parameters(own, schemas.dialect());
        match schemas.dialect() {
            Dialect::V3 => self.render_v3(&mut out, schemas),
            Dialect::V2 => self.render_v2(&mut out, &mut parameters, schemas),
        }
        if !parameters.is_empty() {
            out.insert("parameters".to_owned(), Value::Array(parameters));
        }
        Value::Object(out)
    }

    fn answer(&self, ty: &str, schemas: &mut Schemas) -> Value {
        if ty == "string" { json!({"type": "string"}) } else { schemas.reference(ty) }
    }

    fn render_v3(&self, out: &mut Map<String, Value>, schemas: &mut Schemas) {
        match &self.body {
            Body::None => {}
            Body::Object(ty, required) => {
                let mut body = json!({"content": {"*/*": {"schema": schemas.reference(ty)}}});
                if *required {
                    body["required"] = true.into();
                }
                out.insert("requestBody".to_owned(), body);
            }
            Body::Patch(types) => {
                let patch = schemas.reference("io.k8s.apimachinery.pkg.apis.meta.v1.Patch");
                let content: Map<String, Value> = types.iter().map(|t| ((*t).to_owned(), json!({"schema": patch}))).collect();
                out.insert("requestBody".to_owned(), json!({"content": content, "required": true}));
            }
        }
        let mut responses = Map::new();
        for (code, ty) in &self.responses {
            let schema = self.answer(ty, schemas);
            let content: Map<String, Value> =
                self.media_types().into_iter().map(|t| (t.to_owned(), json!({"schema": schema}))).collect();
            responses.insert((*code).to_owned(), json!({"description": reason(code), "content": content}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        out.insert("responses".to_owned(), Value::Object(responses));
    }

    fn render_v2(&self, out: &mut Map<String, Value>, parameters: &mut Vec<Value>, schemas: &mut Schemas) {
        let consumes: Vec<&str> = match &self.body {
            Body::Patch(types) => types.to_vec(),
            _ => vec!["*/*"],
        };
        match &self.body {
            Body::None => {}
            Body::Object(ty, required) => {
                let mut body = json!({"in": "body", "name": "body", "schema": schemas.reference(ty)});
                if *required {
                    body["required"] = true.into();
                }
                parameters.push(body);
            }
            Body::Patch(_) => {
                let patch = schemas.reference("io.k8s.apimachinery.pkg.apis.meta.v1.Patch");
                parameters.push(json!({"in": "body", "name": "body", "required": true, "schema": patch}));
            }
        }
        let mut responses = Map::new();
        for (code, ty) in &self.responses {
            let schema = self.answer(ty, schemas);
            responses.insert((*code).to_owned(), json!({"description": reason(code), "schema": schema}));
        }
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        out.insert("responses".to_owned(), Value::Object(responses));
        out.insert("consumes".to_owned(), json!(consumes));
        out.insert("produces".to_owned(), json!(self.media_types()));
        out.insert("schemes".to_owned(), json!(["https"]));
    }
}

fn reason(code: &str) -> &'static str {
    match code {
        "201" => "Created",
        "202" => "Accepted",
        _ => "OK",
    }
}

fn parameters(list: &[Parameter], dialect: Dialect) -> Vec<Value> {
    let mut sorted = list.to_vec();
    sorted.sort_by(|a, b| a.name.cmp(b.name).then(b.is_in_path.cmp(&a.is_in_path)));
    sorted
        .into_iter()
        .map(|p| {
            let mut out = json!({"name": p.name, "in": if p.is_in_path { "path" } else { "query" }});
            if p.is_in_path {
                out["required"] = true.into();
            }
            match dialect {
                Dialect::V3 => out["schema"] = json!({"type": p.type_name, "uniqueItems": true}),
                Dialect::V2 => {
                    out["type"] = p.type_name.into();
                    out["uniqueItems"] = true.into();
                }
            }
            out
        })
        .collect()
}

/// Writes a path: parameters that all its operations have stand once, beside them.
pub(super) fn render_path(operations: &[Operation], schemas: &mut Schemas) -> Value {
    let Some(first) = operations.first() else { return json!({}) };
    let shared: Vec<Parameter> =
        first.parameters.iter().filter(|p| operations.iter().all(|o| o.parameters.contains(p))).copied().collect();
    let mut out = Map::new();
    for operation in operations {
        let own: Vec<Parameter> = operation.parameters.iter().filter(|p| !shared.contains(p)).copied().collect();
        out.insert(operation.method.to_owned(), operation.render(&own, schemas));
    }
    if !shared.is_empty() {
        out.insert("parameters".to_owned(), Value::Array(parameters(&shared, schemas.dialect())));
    }
    Value::Object(out)
}
