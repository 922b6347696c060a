//! What a row may demand of a value.

use serde_json::Value;

use super::check::Check;
use super::error::FieldError;
use super::path::Path;
use super::{formats, kinds, meta, selectors, tables, view};

/// Applies predicates in order, until one of them stops the row.
pub fn apply<'a>(check: &mut Check<'a>, predicates: &'static str, value: &'a Value, path: &Path<'_>) {
    for word in tables::words(predicates) {
        if !one(check, word, value, path) {
            return;
        }
    }
}

/// Name, argument and quoted detail of a predicate.
fn split(word: &'static str) -> (&'static str, &'static str, &'static str) {
    let (head, detail) = word.split_once('"').map_or((word, ""), |(h, d)| (h, d.trim_end_matches('"')));
    let (name, argument) = head.split_once(':').unwrap_or((head, ""));
    (name, argument.trim_end_matches(':'), detail)
}

/// Whether the language has this predicate.
#[cfg(test)]
pub(super) fn is_known(word: &'static str) -> bool {
    const WORDS: [&str; 21] = [
        "req",
        "enum",
        "reqenum",
        "setenum",
        "one",
        "nonneg",
        "pos",
        "range",
        "min",
        "port",
        "absent",
        "invalid",
        "maxlen",
        "maxitems",
        "unique",
        "fixed",
        "fixed-forbid",
        "grows",
        "labels",
        "annotations",
        "selector",
    ];
    let name = split(word).0;
    WORDS.contains(&name) || formats::find(name.trim_end_matches('!')).is_some()
}

fn one<'a>(check: &mut Check<'a>, word: &'static str, value: &'a Value, path: &Path<'_>) -> bool {
    if let Some(section) = word.strip_prefix('@') {
        if !value.is_null() {
            check.section(section, value, path);
        }
        return true;
    }
    if let Some(hook) = word.strip_prefix('!') {
        let is_always = hook.starts_with('!');
        if (is_always || !value.is_null())
            && let Some(rule) = kinds::hook(hook.trim_start_matches('!'))
        {
            rule(check, value, path);
        }
        return true;
    }
    let (name, argument, detail) = split(word);
    match name {
        "setenum" if value.is_null() => false,
        "req" | "reqenum" | "setenum" if view::is_empty(value) => {
            check.required(path, detail);
            false
        }
        "req" => true,
        "enum" | "reqenum" | "setenum" | "one" => {
            word_of(check, name, argument, value, path);
            true
        }
        "absent" if !view::is_empty(value) && *value != Value::Bool(false) && value.as_i64() != Some(0) => {
            check.forbidden(path, detail);
            false
        }
        "invalid" if !view::is_empty(value) && *value != Value::Bool(false) => {
            check.invalid(path, value.clone(), detail);
            false
        }
        "absent" | "invalid" => true,
        "fixed" | "fixed-forbid" | "grows" => {
            change(check, name, detail, value, path);
            true
        }
        _ if value.is_null() => true,
        "nonneg" | "pos" | "range" | "min" | "port" => {
            number(check, name, argument, detail, value, path);
            true
        }
        "maxlen" | "maxitems" | "unique" => {
            sized(check, name, argument, value, path);
            true
        }
        "labels" => {
            check.errors.extend(meta::labels(value, &path.to_string()));
            true
        }
        "annotations" => {
            check.errors.extend(meta::annotations(value, &path.to_string()));
            true
        }
        "selector" => {
            selectors::label_selector(check, value, path);
            true
        }
        _ => {
            format(check, name, value, path);
            true
        }
    }
}

fn word_of(check: &mut Check<'_>, name: &str, argument: &str, value: &Value, path: &Path<'_>) {
    let found = value.as_str().unwrap_or_default();
    if (name == "enum" && value.is_null()) || argument.split('|').any(|w| w == found) {
        return;
    }
    let supported: Vec<&str> = argument.split('|').collect();
    check.not_supported(path, found, &supported);
}

fn number(check: &mut Check<'_>, name: &str, argument: &str, detail: &str, value: &Value, path: &Path<'_>) {
    let Some(found) = value.as_i64() else { return };
    let bound = |text: &str| text.parse::<i64>().unwrap_or(i64::MAX);
    let problem = match name {
        "nonneg" if found < 0 => "must be greater than or equal to 0".to_owned(),
        "pos" if found <= 0 => "must be greater than zero".to_owned(),
        "port" if !(1..=65535).contains(&found) => "must be between 1 and 65535, inclusive".to_owned(),
        "min" if found < bound(argument) => format!("must be greater than or equal to {argument}"),
        "range" => {
            let (low, high) = argument.split_once('-').unwrap_or((argument, ""));
            if (bound(low)..=bound(high)).contains(&found) {
                return;
            }
            format!("must be between {low} and {high}, inclusive")
        }
        _ => return,
    };
    let problem = if detail.is_empty() { problem } else { detail.to_owned() };
    check.invalid(path, value.clone(), problem);
}

fn sized(check: &mut Check<'_>, name: &str, argument: &str, value: &Value, path: &Path<'_>) {
    let bound = argument.parse::<usize>().unwrap_or(usize::MAX);
    match name {
        "maxlen" if value.as_str().is_some_and(|s| s.len() > bound) => check.too_long(path, bound),
        "maxitems" => {
            let count = value.as_array().map_or_else(|| value.as_object().map_or(0, serde_json::Map::len), Vec::len);
            if count > bound {
                check.too_many(path, count, bound);
            }
        }
        "unique" => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            for (index, item) in items.iter().enumerate() {
                let key = if argument.is_empty() { item } else { view::at(item, argument) };
                let is_repeated =
                    items[..index].iter().any(|o| if argument.is_empty() { o == key } else { view::at(o, argument) == key });
                if !is_repeated || view::is_empty(key) {
                    continue;
                }
                let place = path.index(index);
                let place = if argument.is_empty() { place } else { place.field(argument) };
                check.errors.push(FieldError::duplicate(&place, key.clone()));
            }
        }
        _ => {}
    }
}

fn change(check: &mut Check<'_>, name: &str, detail: &str, value: &Value, path: &Path<'_>) {
    if !check.is_update() {
        return;
    }
    let before = path.resolve(check.old);
    match name {
        "fixed" => check.immutable(path, value, before),
        "fixed-forbid" if !view::same(value, before) => check.forbidden(path, detail),
        "grows" if value.as_i64().unwrap_or_default() < before.as_i64().unwrap_or_default() => {
            check.invalid(path, value.as_i64().unwrap_or_default(), detail);
        }
        _ => {}
    }
}

fn format(check: &mut Check<'_>, name: &str, value: &Value, path: &Path<'_>) {
    let (name, is_strict) = name.strip_suffix('!').map_or((name, false), |n| (n, true));
    let (Some(rule), Some(text)) = (formats::find(name), value.as_str()) else { return };
    if is_strict || !text.is_empty() {
        check.invalid_each(path, text, rule(text));
    }
}
