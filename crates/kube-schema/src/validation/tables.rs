//! The language of field rules, and the tables written in it.
//!
//! A table has sections: a line that does not begin with a space names one, `group/plural` (with `/subresource`) for a kind, a type
//! for what is referred to. A row below it is `[?guard…] path predicate…`. A path is dotted; `[]` after a field means each element,
//! `{}` each entry, `.` the value itself. Where something on the way is absent the row does not apply. Guards: `?create`, `?update`,
//! `?field` (set), `?!field` (unset), `?field=A|B`, `?!field=A|B`. Predicates run in order until one says stop:
//!
//! | predicate | finding |
//! |---|---|
//! | `req[:"detail"]` | absent or empty: Required, stop |
//! | `enum:A\|B`, `reqenum:A\|B` | another word: NotSupported (the latter: absent: Required) |
//! | `setenum:A\|B` | there but empty: Required; another word: NotSupported |
//! | `one:A\|B` | absent too: NotSupported |
//! | `nonneg`, `pos`, `range:1-9`, `min:1`, `port` | number outside: Invalid |
//! | `absent:"detail"` | set: Forbidden |
//! | `invalid:"detail"` | set: Invalid |
//! | `maxlen:n`, `maxitems:n` | TooLong, TooMany |
//! | `unique`, `unique:field` | Duplicate at the element, or its field |
//! | `fixed`, `fixed-forbid:"detail"` | changed on update: Invalid, Forbidden |
//! | `grows:"detail"` | number smaller than before: Invalid |
//! | `labels`, `annotations`, `selector` | the rules of metadata and of label selectors |
//! | a format (`label`, `subdomain`, …) | Invalid with that format's text; empty text passes unless the word ends in `!` |
//! | `@Section` | that section's rows |
//! | `!hook`, `!!hook` | a rule in code (the latter for null too) |

use std::sync::OnceLock;

use serde_json::Value;

use super::check::Check;
use super::path::Path;
use super::{predicates, view};

const TABLES: [&str; 9] = [
    include_str!("table/pods.txt"),
    include_str!("table/volumes.txt"),
    include_str!("table/workloads.txt"),
    include_str!("table/core.txt"),
    include_str!("table/networking.txt"),
    include_str!("table/storage.txt"),
    include_str!("table/policy.txt"),
    include_str!("table/admission.txt"),
    include_str!("table/devices.txt"),
];

/// Name and rows of each section, by name.
fn index() -> &'static [(&'static str, &'static str)] {
    static INDEX: OnceLock<Vec<(&'static str, &'static str)>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut out: Vec<_> = TABLES.iter().flat_map(|table| sections(table)).collect();
        out.sort_unstable();
        out
    })
}

fn sections(table: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    table.split("\n\n").filter_map(|block| block.trim_start_matches('\n').split_once('\n')).filter(|(n, _)| !n.starts_with('#'))
}

/// Whether the tables have a section of this name.
pub fn has_section(name: &str) -> bool {
    find(name).is_some()
}

fn find(name: &str) -> Option<&'static str> {
    let index = index();
    index.binary_search_by_key(&name, |(n, _)| n).ok().map(|i| index[i].1)
}

/// Applies a section's rows to a value.
pub fn section<'a>(check: &mut Check<'a>, name: &str, value: &'a Value, path: &Path<'_>) {
    for row in find(name).unwrap_or_default().lines() {
        apply_row(check, row, value, path);
    }
}

fn apply_row<'a>(check: &mut Check<'a>, row: &'static str, value: &'a Value, path: &Path<'_>) {
    let mut rest = row.trim_start();
    while let Some(guarded) = rest.strip_prefix('?') {
        let (guard, after) = guarded.split_once(' ').unwrap_or((guarded, ""));
        if !holds(check, guard, value) {
            return;
        }
        rest = after.trim_start();
    }
    let (steps, predicates) = rest.split_once(' ').unwrap_or((rest, ""));
    descend(check, steps, predicates.trim_start(), value, path);
}

fn holds(check: &Check<'_>, guard: &str, value: &Value) -> bool {
    match guard {
        "create" => return !check.is_update(),
        "update" => return check.is_update(),
        _ => {}
    }
    let (is_negated, guard) = guard.strip_prefix('!').map_or((false, guard), |g| (true, g));
    let found = match guard.split_once('=') {
        None => !view::is_empty(view::at(value, guard)),
        Some((field, words)) => match view::at(value, field) {
            Value::Bool(b) => words == if *b { "true" } else { "false" },
            other => words.split('|').any(|w| w == other.as_str().unwrap_or_default()),
        },
    };
    found != is_negated
}

fn descend<'a>(check: &mut Check<'a>, steps: &'static str, predicates: &'static str, value: &'a Value, path: &Path<'_>) {
    if steps.is_empty() || steps == "." {
        return predicates::apply(check, predicates, value, path);
    }
    let (step, rest) = steps.split_once('.').unwrap_or((steps, ""));
    let is_list = step.ends_with("[]");
    let is_map = step.ends_with("{}");
    let name = if is_list || is_map { &step[..step.len() - 2] } else { step };
    let child = value.get(name).unwrap_or(&view::NULL);
    let below = path.field(name);
    match child {
        Value::Array(items) if is_list => {
            for (index, item) in items.iter().enumerate() {
                descend(check, rest, predicates, item, &below.index(index));
            }
        }
        Value::Object(_) if is_map => {
            for (key, entry) in view::entries(value, name) {
                descend(check, rest, predicates, entry, &below.key(key));
            }
        }
        _ if is_list || is_map => {}
        Value::Null if !rest.is_empty() => {}
        _ => descend(check, rest, predicates, child, &below),
    }
}

/// The words of a row: parted by spaces, except inside quotes.
pub(super) fn words(text: &'static str) -> impl Iterator<Item = &'static str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let mut is_quoted = false;
        let end = rest.find(|c: char| {
            is_quoted ^= c == '"';
            c == ' ' && !is_quoted
        });
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::super::kinds;
    use super::*;

    #[test]
    fn every_row_is_well_formed() {
        for (name, rows) in index() {
            for row in rows.lines() {
                assert!(row.starts_with(' '), "{name}: {row}");
                let mut all = words(row).skip_while(|w| w.starts_with('?'));
                assert!(all.next().is_some(), "{name}: {row}");
                for word in all {
                    let is_known = match (word.strip_prefix('@'), word.strip_prefix('!')) {
                        (Some(section), _) => has_section(section),
                        (_, Some(hook)) => kinds::hook(hook.trim_start_matches('!')).is_some(),
                        _ => predicates::is_known(word),
                    };
                    assert!(is_known, "{name}: {word}");
                }
            }
        }
    }

    #[test]
    fn section_names_are_unique() {
        for pair in index().windows(2) {
            assert_ne!(pair[0].0, pair[1].0);
        }
    }
}
