//! Rows of our own that say how fields are encoded and in which order.

use std::collections::BTreeMap;

/// Per type its fields in order, each with its flags (`p`, `o`, `z`).
pub type Presence = BTreeMap<String, Vec<(String, String)>>;

pub fn parse(text: &str) -> Result<Presence, String> {
    let mut out = Presence::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let mut fields = Vec::new();
        for word in words {
            let (field, flags) = word.split_once(':').ok_or_else(|| format!("presence of {name}: {word:?} has no flags"))?;
            fields.push((field.to_owned(), flags.to_owned()));
        }
        out.insert(name, fields);
    }
    Ok(out)
}
