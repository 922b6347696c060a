//! Kubeconfig files (`v1` `Config`) with one cluster, one user and one context, written as YAML.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The cluster a kubeconfig points to.
#[derive(Clone, Debug)]
pub struct ClusterEntry<'a> {
    pub name: &'a str,
    /// `https://HOST:PORT`.
    pub server: &'a str,
    pub ca_pem: &'a str,
    /// Name to verify instead of the host of `server`.
    pub tls_server_name: Option<&'a str>,
}

/// How the user proves who it is.
#[derive(Clone, Debug)]
pub enum UserCredentials<'a> {
    Certificate {
        certificate_pem: &'a str,
        key_pem: &'a str,
    },
    Token(&'a str),
    /// A token that is re-read from a file.
    TokenFile(&'a str),
}

/// A kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    pub cluster: ClusterEntry<'a>,
    pub user_name: &'a str,
    pub credentials: UserCredentials<'a>,
    pub namespace: Option<&'a str>,
}

impl Kubeconfig<'_> {
    /// The file's content.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_yaml(&self.to_json(), 0, &mut text);
        text
    }

    pub fn to_json(&self) -> Value {
        let mut cluster = json!({
            "server": self.cluster.server,
            "certificate-authority-data": STANDARD.encode(self.cluster.ca_pem),
        });
        if let Some(name) = self.cluster.tls_server_name {
            cluster["tls-server-name"] = json!(name);
        }
        let user = match &self.credentials {
            UserCredentials::Certificate { certificate_pem, key_pem } => json!({
                "client-certificate-data": STANDARD.encode(certificate_pem),
                "client-key-data": STANDARD.encode(key_pem),
            }),
            UserCredentials::Token(token) => json!({ "token": token }),
            UserCredentials::TokenFile(path) => json!({ "tokenFile": path }),
        };
        let context_name = format!("{}@{}", self.user_name, self.cluster.name);
        let mut context = json!({ "cluster": self.cluster.name, "user": self.user_name });
        if let Some(namespace) = self.namespace {
            context["namespace"] = json!(namespace);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": self.cluster.name, "cluster": cluster }],
            "users": [{ "name": self.user_name, "user": user }],
            "contexts": [{ "name": context_name, "context": context }],
            "current-context": context_name,
            "preferences": {},
        })
    }
}

/// Block YAML for the few shapes that a kubeconfig has; every scalar is double-quoted as JSON, which YAML reads the same way.
fn write_yaml(value: &Value, indent: usize, out: &mut String) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                match inner {
                    Value::Object(m) if !m.is_empty() => {
                        out.push_str(&format!("{pad}{key}:\n"));
                        write_yaml(inner, indent + 1, out);
                    }
                    Value::Array(items) => {
                        out.push_str(&format!("{pad}{key}:\n"));
                        for item in items {
                            let mut text = String::new();
                            write_yaml(item, indent + 1, &mut text);
                            out.push_str(&format!("{pad}- {}", text.trim_start()));
                        }
                    }
                    scalar => out.push_str(&format!("{pad}{key}: {scalar}\n")),
                }
            }
        }
        scalar => out.push_str(&format!("{pad}{scalar}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_lists_of_maps_in_block_form() {
        let config = Kubeconfig {
            cluster: ClusterEntry { name: "t", server: "https://127.0.0.1:6443", ca_pem: "PEM", tls_server_name: None },
            user_name: "admin",
            credentials: UserCredentials::Token("abc"),
            namespace: Some("default"),
        };
        let yaml = config.to_yaml();
        assert!(yaml.contains("clusters:\n- cluster:\n    certificate-authority-data: \"UEVN\"\n    server:"), "{yaml}");
        assert!(yaml.contains("current-context: \"admin@t\""), "{yaml}");
        assert!(yaml.contains("preferences: {}"), "{yaml}");
    }
}
