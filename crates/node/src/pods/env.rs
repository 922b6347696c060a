//! The environment of a container, as a pure function of what it refers to.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};

use super::downward::{self, Addresses, Allocatable};

/// What environment variables may refer to. A name that was looked up and not found is not in the map.
#[derive(Debug, Default)]
pub struct Sources {
    pub config_maps: BTreeMap<String, ConfigMap>,
    pub secrets: BTreeMap<String, Secret>,
    /// Variables of Services; the container's own come after and win.
    pub services: Vec<(String, String)>,
    pub addresses: Addresses,
    pub allocatable: Allocatable,
}

/// Names of the ConfigMaps and Secrets that a container's environment refers to.
pub fn references(container: &Container) -> (Vec<String>, Vec<String>) {
    let (mut config_maps, mut secrets) = (Vec::new(), Vec::new());
    for from in container.env_from.iter().flatten() {
        config_maps.extend(from.config_map_ref.iter().map(|r| r.name.clone()));
        secrets.extend(from.secret_ref.iter().map(|r| r.name.clone()));
    }
    for source in container.env.iter().flatten().filter_map(|e| e.value_from.as_ref()) {
        config_maps.extend(source.config_map_key_ref.iter().map(|r| r.name.clone()));
        secrets.extend(source.secret_key_ref.iter().map(|r| r.name.clone()));
    }
    for names in [&mut config_maps, &mut secrets] {
        names.sort();
        names.dedup();
    }
    (config_maps, secrets)
}

/// The variables in order; a later one replaces an earlier one of the same name.
pub fn build(pod: &Pod, container: &Container, sources: &Sources) -> Result<Vec<(String, String)>, String> {
    let mut env = Env::default();
    for (name, value) in &sources.services {
        env.set(name, value.clone());
    }
    from_whole(container, sources, &mut env)?;
    for variable in container.env.iter().flatten() {
        if let Some(value) = value(pod, container, variable, sources, &env)? {
            env.set(&variable.name, value);
        }
    }
    Ok(env.0)
}

#[derive(Default)]
struct Env(Vec<(String, String)>);

impl Env {
    fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// `envFrom`.
fn from_whole(container: &Container, sources: &Sources, env: &mut Env) -> Result<(), String> {
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or("");
        if let Some(reference) = &from.config_map_ref {
            match sources.config_maps.get(&reference.name) {
                Some(map) => {
                    for (key, value) in map.data.iter().flatten() {
                        env.set(&format!("{prefix}{key}"), value.clone());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("configmap {:?} not found", reference.name)),
            }
        }
        if let Some(reference) = &from.secret_ref {
            match sources.secrets.get(&reference.name) {
                Some(secret) => {
                    for (key, value) in secret.data.iter().flatten() {
                        env.set(&format!("{prefix}{key}"), String::from_utf8_lossy(&value.0).into_owned());
                    }
                }
                None if reference.optional == Some(true) => {}
                None => return Err(format!("secret {:?} not found", reference.name)),
            }
        }
    }
    Ok(())
}

/// The value of one variable; `None` for an optional reference to nothing.
fn value(pod: &Pod, container: &Container, variable: &EnvVar, sources: &Sources, env: &Env) -> Result<Option<String>, String> {
    let Some(from) = &variable.value_from else {
        let text = variable.value.as_deref().unwrap_or("");
        return Ok(Some(expand(text, |name| env.get(name).map(str::to_owned))));
    };
    if let Some(reference) = &from.field_ref {
        return downward::field(pod, &reference.field_path, &sources.addresses).map(Some);
    }
    if let Some(reference) = &from.resource_field_ref {
        let named = |name: &String| super::resources::containers(pod).find(|c| c.name == *name);
        let of = reference.container_name.as_ref().filter(|n| !n.is_empty()).and_then(named).unwrap_or(container);
        return downward::resource(of, reference, &sources.allocatable).map(Some);
    }
    if let Some(reference) = &from.config_map_key_ref {
        let map = sources.config_maps.get(&reference.name);
        let found = map.map(|m| m.data.as_ref().and_then(|d| d.get(&reference.key)).cloned());
        return key_of("configmap", &reference.name, &reference.key, reference.optional, found);
    }
    if let Some(reference) = &from.secret_key_ref {
        let secret = sources.secrets.get(&reference.name);
        let text = |s: &Secret| Some(String::from_utf8_lossy(&s.data.as_ref()?.get(&reference.key)?.0).into_owned());
        return key_of("secret", &reference.name, &reference.key, reference.optional, secret.map(text));
    }
    Err(format!("environment variable {} refers to something that this node does not know", variable.name))
}

fn key_of(
    kind: &str,
    name: &str,
    key: &str,
    optional: Option<bool>,
    found: Option<Option<String>>,
) -> Result<Option<String>, String> {
    match found {
        Some(Some(value)) => Ok(Some(value)),
        _ if optional == Some(true) => Ok(None),
        Some(None) => Err(format!("couldn't find key {key} in {kind} {name}")),
        None => Err(format!("{kind} {name:?} not found")),
    }
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a dollar sign, an unknown name stays as it is.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_knows_escapes_and_unknown_names() {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        for (text, expected) in
            [("$(A)", "1"), ("x$(A)y$(B)", "x1y$(B)"), ("$$(A)", "$(A)"), ("$A $(", "$A $("), ("100$", "100$"), ("$$$(A)", "$1")]
        {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }

    fn container(value: serde_json::Value) -> Container {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn variables_see_earlier_ones_and_replace_those_of_services() {
        let c = container(serde_json::json!({"name": "c", "env": [
            {"name": "A", "value": "a"}, {"name": "B", "value": "$(A)-$(SVC)"}, {"name": "SVC", "value": "own"},
            {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "O", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}}
        ]}));
        let pod: Pod = serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}})).unwrap();
        let sources = Sources { services: vec![("SVC".into(), "10.0.0.1".into())], ..Sources::default() };
        let env = build(&pod, &c, &sources).unwrap();
        let expected = [("SVC", "own"), ("A", "a"), ("B", "a-10.0.0.1"), ("N", "p")];
        assert_eq!(env, expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn a_missing_reference_is_named() {
        let pod = Pod::default();
        let c = container(serde_json::json!({"name": "c", "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}));
        let mut sources = Sources::default();
        assert_eq!(build(&pod, &c, &sources).unwrap_err(), "configmap \"m\" not found");
        sources.config_maps.insert("m".into(), ConfigMap::default());
        assert_eq!(build(&pod, &c, &sources).unwrap_err(), "couldn't find key k in configmap m");
        assert_eq!(references(&c), (vec!["m".to_owned()], vec![]));
    }
}
