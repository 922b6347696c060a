//! What a request's line says: which path, which resource, which verb.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::error::{ApiError, Result};

/// A request's path and method, read as Kubernetes reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path as sent, without query.
    pub path: String,
    pub is_resource: bool,
    /// `get`, `list`, `watch`, …; the lower-case method for what is no resource.
    pub verb: String,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    /// What follows the subresource (the path that a proxy request asks for), with its leading slash.
    pub rest: String,
    /// The deprecated `/watch/` prefix was used.
    pub is_prefixed_watch: bool,
}

impl RequestInfo {
    pub fn parse(method: &Method, uri: &http::Uri, query: &Query) -> Result<RequestInfo> {
        let path = uri.path();
        let mut info = RequestInfo { path: path.to_owned(), verb: method.as_str().to_lowercase(), ..RequestInfo::default() };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version, parts) = match segments.as_slice() {
            ["api", version, parts @ ..] if !parts.is_empty() => ("", *version, parts),
            ["apis", group, version, parts @ ..] if !parts.is_empty() => (*group, *version, parts),
            _ => return Ok(info),
        };
        if parts.iter().all(|p| p.is_empty()) || version.is_empty() {
            return Ok(info);
        }
        info.is_resource = true;
        info.group = group.to_owned();
        info.version = version.to_owned();
        info.verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        }
        .to_owned();
        info.fill_parts(parts)?;
        info.refine_verb(query);
        Ok(info)
    }

    /// Whether this is a stream into the cluster rather than a question to the server.
    pub fn is_connect(&self) -> bool {
        matches!(self.subresource.as_str(), "proxy" | "exec" | "attach" | "portforward" | "log")
    }

    /// Whether the answer may take longer than a request's time limit.
    pub fn is_long_running(&self) -> bool {
        self.is_resource && (self.verb == "watch" || self.is_connect())
    }

    fn fill_parts(&mut self, mut parts: &[&str]) -> Result<()> {
        if parts[0] == "watch" && parts.len() > 1 && self.verb == "get" {
            self.is_prefixed_watch = true;
            parts = &parts[1..];
        }
        if parts[0] == "namespaces" && parts.len() > 1 && !parts[1].is_empty() {
            self.namespace = decoded(parts[1])?;
            if parts.len() > 2 && !matches!(parts[2], "status" | "finalize" | "") {
                parts = &parts[2..];
            }
        }
        self.resource = decoded(parts[0])?;
        if let Some(name) = parts.get(1) {
            self.name = decoded(name)?;
        }
        if let Some(subresource) = parts.get(2) {
            self.subresource = decoded(subresource)?;
        }
        if parts.len() > 3 {
            self.rest = format!("/{}", parts[3..].join("/"));
        }
        Ok(())
    }

    fn refine_verb(&mut self, query: &Query) {
        if self.is_prefixed_watch {
            self.verb = "watch".to_owned();
        } else if self.name.is_empty() && self.verb == "get" {
            self.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned();
        } else if self.name.is_empty() && self.verb == "delete" {
            self.verb = "deletecollection".to_owned();
        }
    }
}

fn decoded(segment: &str) -> Result<String> {
    percent_decode_str(segment)
        .decode_utf8()
        .map(|s| s.into_owned())
        .map_err(|_| ApiError::bad_request("the path is not valid UTF-8"))
}

/// Query parameters in the order sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: Option<&str>) -> Query {
        Query(form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// The first value, empty if absent.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// A boolean as Kubernetes reads it from a query: present and neither `0` nor `false`.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !v.eq_ignore_ascii_case("false") && v != "0")
    }

    /// A number; one that does not parse is a 400.
    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        match self.get(key) {
            None | Some("") => Ok(None),
            Some(text) => {
                text.parse().map(Some).map_err(|_| ApiError::bad_request(format!("the value {text:?} of {key} is not a number")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(method: Method, uri: &str) -> RequestInfo {
        let uri: http::Uri = uri.parse().unwrap();
        RequestInfo::parse(&method, &uri, &Query::parse(uri.query())).unwrap()
    }

    #[test]
    fn a_namespace_is_both_a_scope_and_an_object() {
        let info = parsed(Method::GET, "/api/v1/namespaces/a/pods/b/log");
        assert_eq!((info.namespace.as_str(), info.resource.as_str(), info.name.as_str()), ("a", "pods", "b"));
        assert_eq!(info.subresource, "log");
        let info = parsed(Method::PUT, "/api/v1/namespaces/a/finalize");
        assert_eq!((info.namespace.as_str(), info.resource.as_str(), info.name.as_str()), ("a", "namespaces", "a"));
        assert_eq!((info.subresource.as_str(), info.verb.as_str()), ("finalize", "update"));
    }

    #[test]
    fn verbs_follow_method_and_name() {
        assert_eq!(parsed(Method::GET, "/apis/apps/v1/deployments").verb, "list");
        assert_eq!(parsed(Method::GET, "/apis/apps/v1/deployments?watch=1").verb, "watch");
        assert_eq!(parsed(Method::DELETE, "/api/v1/namespaces/a/pods").verb, "deletecollection");
        assert_eq!(parsed(Method::GET, "/api/v1/namespaces").verb, "list");
        assert!(!parsed(Method::GET, "/api/v1").is_resource);
        assert!(!parsed(Method::GET, "/apis/apps/v1/").is_resource);
        assert_eq!(parsed(Method::POST, "/version").verb, "post");
    }

    #[test]
    fn what_follows_a_proxy_is_kept_as_sent() {
        let info = parsed(Method::GET, "/api/v1/nodes/n/proxy/logs/a%2Fb");
        assert_eq!(info.rest, "/logs/a%2Fb");
    }
}
