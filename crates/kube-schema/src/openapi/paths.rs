//! The paths of a group and version.

use serde_json::{Map, Value};

use super::custom;
use super::operations::{
    Body, CUSTOM_PATCHES, DELETE, FORCE, LIST, LOG, NAME, NAMESPACE, Operation, PATCHES, PATH, PRETTY, Parameter, Produces,
    WRITE, connect, render_path,
};
use super::root_path;
use super::schemas::Schemas;
use crate::registry::{ResourceDef, SubresourceDef};
use crate::table;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + chars.as_str())
}

/// `rbac.authorization.k8s.io` → `RbacAuthorization`; the core group is `Core`.
fn group_words(group: &str) -> String {
    let short = group.strip_suffix(".k8s.io").unwrap_or(group);
    if short.is_empty() {
        return "Core".to_owned();
    }
    short.split(['.', '-']).map(capitalised).collect()
}

fn tag(group: &str, version: &str) -> String {
    let words = group_words(group);
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_lowercase().collect::<String>()).unwrap_or_default();
    format!("{first}{}_{version}", chars.as_str())
}

/// What the operations of one resource have in common.
struct Resource<'a> {
    def: &'a ResourceDef,
    /// Type names of an object and of a list.
    object: String,
    list: String,
    /// `AppsV1`.
    prefix: String,
    tag: String,
    patches: &'static [&'static str],
}

impl<'a> Resource<'a> {
    fn new(def: &'a ResourceDef) -> Resource<'a> {
        let object = match def.protobuf_type() {
            Some(name) => name.to_owned(),
            None => custom::type_name(&def.group, &def.version, &def.kind),
        };
        Resource {
            def,
            list: format!("{}List", object),
            object,
            prefix: group_words(&def.group) + &capitalised(&def.version),
            tag: tag(&def.group, &def.version),
            patches: if def.is_custom() { &CUSTOM_PATCHES } else { &PATCHES },
        }
    }

    fn scope(&self) -> &'static str {
        if self.def.namespaced { "Namespaced" } else { "" }
    }

    fn operation(&self, method: &'static str, action: &'static str, id: String) -> Operation {
        Operation {
            method,
            id,
            action,
            tag: self.tag.clone(),
            kind: Some((self.def.group.clone(), self.def.version.clone(), self.def.kind.clone())),
            parameters: vec![PRETTY],
            body: Body::None,
            responses: vec![("200", self.object.clone())],
            produces: Produces::Object,
            has_protobuf: !self.def.is_custom(),
        }
    }

    fn codes(codes: &[&'static str], ty: &str) -> Vec<(&'static str, String)> {
        codes.iter().map(|c| (*c, ty.to_owned())).collect()
    }

    fn id(&self, verb: &str, middle: &str, end: &str) -> String {
        format!("{verb}{}{middle}{}{end}", self.prefix, self.def.kind)
    }

    fn list(&self, id: String, place: &[Parameter]) -> Operation {
        let mut operation = self.operation("get", "list", id);
        operation.parameters.extend(LIST.iter().chain(place));
        operation.responses = Self::codes(&["200"], &self.list);
        operation.produces = Produces::Stream;
        operation
    }

    fn collection(&self, place: &[Parameter]) -> Vec<Operation> {
        let mut out = Vec::new();
        if self.def.has_verb("deletecollection") {
            let id = format!("delete{}Collection{}{}", self.prefix, self.scope(), self.def.kind);
            let mut operation = self.operation("delete", "deletecollection", id);
            let listed = LIST.iter().filter(|p| !matches!(p.name, "allowWatchBookmarks" | "watch"));
            operation.parameters.extend(listed.chain(&DELETE).chain(place));
            operation.body = Body::Object(format!("{META}DeleteOptions"), false);
            operation.responses = Self::codes(&["200"], &format!("{META}Status"));
            out.push(operation);
        }
        if self.def.has_verb("list") {
            out.push(self.list(self.id("list", self.scope(), ""), place));
        }
        if self.def.has_verb("create") {
            let mut operation = self.operation("post", "post", self.id("create", self.scope(), ""));
            operation.parameters.extend(WRITE.iter().chain(place));
            operation.body = Body::Object(self.object.clone(), true);
            operation.responses = Self::codes(&["200", "201", "202"], &self.object);
            out.push(operation);
        }
        out
    }

    fn item(&self, place: &[Parameter]) -> Vec<Operation> {
        let mut out = Vec::new();
        if self.def.has_verb("delete") {
            let mut operation = self.operation("delete", "delete", self.id("delete", self.scope(), ""));
            operation.parameters.extend(DELETE.iter().chain(place));
            operation.body = Body::Object(format!("{META}DeleteOptions"), false);
            operation.responses = Self::codes(&["200", "202"], &self.deleted());
            out.push(operation);
        }
        out.extend(self.reads_and_writes(&self.def.verbs, &self.object, "", place));
        out
    }

    /// What a deletion answers: a few kinds answer with the object.
    fn deleted(&self) -> String {
        match (self.def.group.as_str(), self.def.plural.as_str()) {
            (
                "",
                "pods"
                | "persistentvolumes"
                | "persistentvolumeclaims"
                | "podtemplates"
                | "replicationcontrollers"
                | "resourcequotas"
                | "services"
                | "serviceaccounts",
            )
            | (
                "storage.k8s.io",
                "csidrivers" | "csinodes" | "storageclasses" | "volumeattachments" | "volumeattributesclasses",
            )
            | ("resource.k8s.io", _) => {
                if self.def.plural == "replicationcontrollers" || self.def.plural == "resourceclaims" && self.def.is_custom() {
                    format!("{META}Status")
                } else {
                    self.object.clone()
                }
            }
            _ => format!("{META}Status"),
        }
    }

    fn reads_and_writes(&self, verbs: &[String], ty: &str, end: &str, place: &[Parameter]) -> Vec<Operation> {
        let has = |verb: &str| verbs.iter().any(|v| v == verb);
        let mut out = Vec::new();
        if has("get") {
            let mut operation = self.operation("get", "get", self.id("read", self.scope(), end));
            operation.parameters.extend(place);
            operation.responses = Self::codes(&["200"], ty);
            out.push(operation);
        }
        if has("patch") {
            let mut operation = self.operation("patch", "patch", self.id("patch", self.scope(), end));
            operation.parameters.extend(WRITE.iter().chain([&FORCE]).chain(place));
            operation.body = Body::Patch(self.patches);
            operation.responses = if self.def.is_custom() { Self::codes(&["200"], ty) } else { Self::codes(&["200", "201"], ty) };
            out.push(operation);
        }
        if has("update") {
            let mut operation = self.operation("put", "put", self.id("replace", self.scope(), end));
            operation.parameters.extend(WRITE.iter().chain(place));
            operation.body = Body::Object(ty.to_owned(), true);
            operation.responses = Self::codes(&["200", "201"], ty);
            out.push(operation);
        }
        out
    }

    fn subresource(&self, sub: &SubresourceDef, place: &[Parameter]) -> Vec<Operation> {
        let end = match sub.name.as_str() {
            "ephemeralcontainers" => "Ephemeralcontainers".to_owned(),
            name => capitalised(name),
        };
        let own = (&sub.group, &sub.version, &sub.kind) == (&self.def.group, &self.def.version, &self.def.kind);
        let ty = match table::type_of_kind(&sub.group, &sub.version, &sub.kind).and_then(|n| n.type_name()) {
            _ if own => self.object.clone(),
            Some(name) => name.to_owned(),
            None => "string".to_owned(),
        };
        let mut out = match sub.name.as_str() {
            "log" => {
                let mut operation = self.operation("get", "get", self.id("read", self.scope(), &end));
                operation.parameters.extend(LOG.iter().chain(place));
                operation.responses = Self::codes(&["200"], "string");
                operation.produces = Produces::Log;
                vec![operation]
            }
            "binding" | "eviction" | "token" => {
                let mut operation = self.operation("post", "post", self.id("create", self.scope(), &end));
                operation.parameters.extend(WRITE.iter().chain(place));
                operation.body = Body::Object(ty.clone(), true);
                operation.responses = Self::codes(&["200", "201", "202"], &ty);
                vec![operation]
            }
            _ => self.reads_and_writes(&sub.verbs, &ty, &end, place),
        };
        for operation in &mut out {
            operation.kind = Some((sub.group.clone(), sub.version.clone(), sub.kind.clone()));
        }
        out
    }

    fn connect(&self, sub: &SubresourceDef, end: &str, place: &[Parameter]) -> Vec<Operation> {
        let methods: &[&'static str] = match sub.name.as_str() {
            "proxy" => &["delete", "get", "head", "options", "patch", "post", "put"],
            _ => &["get", "post"],
        };
        methods
            .iter()
            .map(|method| {
                let id = format!("connect{}{}{}{}{end}", self.prefix, capitalised(method), self.scope(), self.def.kind);
                let mut operation = self.operation(method, "connect", id);
                operation.parameters = connect(&sub.name);
                operation.parameters.extend(place);
                operation.kind = Some((sub.group.clone(), sub.version.clone(), sub.kind.clone()));
                operation.responses = Self::codes(&["200"], "string");
                operation.produces = Produces::Anything;
                operation
            })
            .collect()
    }

    fn watch(&self, action: &'static str, id: String, place: &[Parameter]) -> Operation {
        let mut operation = self.list(id, place);
        operation.action = action;
        operation.responses = Self::codes(&["200"], &format!("{META}WatchEvent"));
        operation
    }
}

/// All paths of one resource.
fn of_resource(def: &ResourceDef, root: &str, out: &mut Vec<(String, Vec<Operation>)>) {
    let resource = Resource::new(def);
    let namespace: &[Parameter] = if def.namespaced { &[NAMESPACE] } else { &[] };
    let item: &[Parameter] = if def.namespaced { &[NAME, NAMESPACE] } else { &[NAME] };
    let plural = &def.plural;
    let base = if def.namespaced { format!("/{root}/namespaces/{{namespace}}/{plural}") } else { format!("/{root}/{plural}") };
    out.push((base.clone(), resource.collection(namespace)));
    let one = format!("{base}/{{name}}");
    out.push((one.clone(), resource.item(item)));
    for sub in &def.subresources {
        let path = format!("{one}/{}", sub.name);
        if matches!(sub.name.as_str(), "exec" | "attach" | "portforward" | "proxy") {
            let end = capitalised(&sub.name);
            out.push((path.clone(), resource.connect(sub, &end, item)));
            if sub.name == "proxy" {
                let place: Vec<Parameter> = item.iter().copied().chain([PATH]).collect();
                out.push((format!("{path}/{{path}}"), resource.connect(sub, "ProxyWithPath", &place)));
            }
        } else {
            out.push((path, resource.subresource(sub, item)));
        }
    }
    if def.namespaced && def.has_verb("list") {
        out.push((format!("/{root}/{plural}"), vec![resource.list(resource.id("list", "", "ForAllNamespaces"), &[])]));
    } else if def.namespaced && def.has_verb("create") {
        // A virtual resource can be created without naming the namespace in the path.
        let mut operations = resource.collection(&[]);
        for operation in &mut operations {
            operation.id = resource.id("create", "", "") + "ForAllNamespaces";
        }
        if def.plural != "bindings" && def.plural != "localsubjectaccessreviews" {
            operations.clear();
        }
    }
    if def.has_verb("watch") && !def.is_custom() {
        watches(&resource, root, namespace, item, out);
    }
}

fn watches(
    resource: &Resource<'_>,
    root: &str,
    namespace: &[Parameter],
    item: &[Parameter],
    out: &mut Vec<(String, Vec<Operation>)>,
) {
    let (def, plural) = (resource.def, &resource.def.plural);
    let scope = resource.scope();
    let base = if def.namespaced {
        let all = resource.id("watch", "", "ListForAllNamespaces");
        out.push((format!("/{root}/watch/{plural}"), vec![resource.watch("watchlist", all, &[])]));
        format!("/{root}/watch/namespaces/{{namespace}}/{plural}")
    } else {
        format!("/{root}/watch/{plural}")
    };
    let list = resource.watch("watchlist", resource.id("watch", scope, "List"), namespace);
    out.push((base.clone(), vec![list]));
    out.push((format!("{base}/{{name}}"), vec![resource.watch("watch", resource.id("watch", scope, ""), item)]));
}

/// The paths of one group and version, discovery included.
pub(super) fn of_version(group: &str, version: &str, defs: &[&ResourceDef], schemas: &mut Schemas) -> Value {
    let root = root_path(group, version);
    let mut all: Vec<(String, Vec<Operation>)> = Vec::new();
    all.push((
        format!("/{root}/"),
        vec![Operation {
            method: "get",
            id: format!("get{}{}APIResources", group_words(group), capitalised(version)),
            action: "",
            tag: tag(group, version),
            kind: None,
            parameters: Vec::new(),
            body: Body::None,
            responses: vec![("200", format!("{META}APIResourceList"))],
            produces: Produces::Object,
            has_protobuf: true,
        }],
    ));
    for def in defs {
        custom::add(def, schemas);
        of_resource(def, &root, &mut all);
    }
    let mut paths = Map::new();
    for (path, operations) in all.into_iter().filter(|(_, operations)| !operations.is_empty()) {
        // `/namespaces/{namespace}` of a core kind is a namespace's own path, whose segment is its name.
        let rendered = render_path(&operations, schemas);
        paths.insert(path, rendered);
    }
    Value::Object(paths)
}
