//! Protobuf field numbers from the sources of crate `k8s-pb`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One field of a protobuf message; names are folded (lower case, no underscores) because the crate renames them.
#[derive(Clone, Debug)]
struct ProtoField {
    folded: String,
    number: u8,
    /// Last segment of the Rust type, folded: names the message of an inlined field.
    type_folded: String,
}

/// Messages by folded full name (`io.k8s.api.core.v1.pod`).
#[derive(Debug, Default)]
pub struct Tags {
    messages: BTreeMap<String, Vec<ProtoField>>,
    rows: BTreeMap<String, BTreeMap<String, String>>,
}

fn fold(name: &str) -> String {
    name.trim_start_matches("r#").chars().filter(|c| !matches!(c, '_' | '-' | '$')).collect::<String>().to_lowercase()
}

impl Tags {
    /// Reads every `mod.rs` under the crate's `src`.
    pub fn parse_crate(src: &Path) -> Result<Tags, String> {
        let mut tags = Tags::default();
        tags.walk(src, "io.k8s")?;
        if tags.messages.is_empty() {
            return Err(format!("{}: no protobuf messages found", src.display()));
        }
        Ok(tags)
    }

    fn walk(&mut self, dir: &Path, package: &str) -> Result<(), String> {
        let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                self.walk(&path, &format!("{package}.{name}"))?;
            } else if name == "mod.rs" {
                let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
                self.parse_module(package, &text);
            }
        }
        Ok(())
    }

    fn parse_module(&mut self, package: &str, text: &str) {
        let mut message = String::new();
        let mut number = None;
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("pub struct ") {
                let name = rest.split([' ', '{']).next().unwrap_or_default();
                message = fold(&format!("{package}.{name}"));
                self.messages.entry(message.clone()).or_default();
            } else if line.starts_with("#[prost(") {
                number = line.split("tag = \"").nth(1).and_then(|t| t.split('"').next()).and_then(|t| t.parse().ok());
            } else if let (Some(rest), Some(tag)) = (line.strip_prefix("pub "), number) {
                if let Some((name, ty)) = rest.split_once(':') {
                    let last = ty.trim_end_matches(['>', ',']).rsplit([':', '<']).next().unwrap_or_default();
                    let field = ProtoField { folded: fold(name), number: tag, type_folded: fold(last) };
                    self.messages.entry(message.clone()).or_default().push(field);
                }
                number = None;
            }
        }
    }

    /// Adds rows of our own: `TYPE FIELD NUMBER`, `TYPE -` for a type without a protobuf form.
    pub fn add_rows(&mut self, text: &str) -> Result<(), String> {
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let row = self.rows.entry(words[0].to_owned()).or_default();
            match words[1..] {
                ["-"] => {}
                [field, tag] => {
                    row.insert(field.to_owned(), tag.to_owned());
                }
                _ => return Err(format!("tags: cannot read {line:?}")),
            }
        }
        Ok(())
    }

    /// The number of a JSON field; `2.1` when the field sits in a message that JSON inlines under number 2.
    pub fn number(&self, type_name: &str, field: &str, siblings: &[&str]) -> Option<String> {
        if let Some(row) = self.rows.get(type_name) {
            return row.get(field).cloned().or_else(|| self.find(&fold(type_name), field, siblings)).or(Some("-".into()));
        }
        self.find(&fold(type_name), field, siblings)
    }

    fn find(&self, message: &str, field: &str, siblings: &[&str]) -> Option<String> {
        let folded = fold(field);
        let fields = self.messages.get(message)?;
        if let Some(f) = fields.iter().find(|f| f.folded == folded) {
            return Some(f.number.to_string());
        }
        let package = message.rsplit_once('.').map(|(p, _)| p).unwrap_or_default();
        // A protobuf field that JSON does not know holds an inlined message of the same package, or of core.
        for f in fields.iter().filter(|f| !siblings.iter().any(|s| fold(s) == f.folded)) {
            for scope in [package, "io.k8s.api.core.v1", "io.k8s.api.admissionregistration.v1"] {
                if let Some(inner) = self.find(&format!("{scope}.{}", f.type_folded), field, siblings) {
                    return Some(format!("{}.{inner}", f.number));
                }
            }
        }
        None
    }
}
