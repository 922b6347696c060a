//! The JSON path dialect of custom columns: `.a.b`, `['a']`, `[0]`, `[-1]`, `[*]`, `.*`, `..name`, `[?(@.a=="b")]`, `\.` in names.

use serde_json::Value;

/// A path that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid JSON path {0:?}")]
pub struct JsonPathError(String);

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    All,
    Descendants,
    Filter { path: Vec<Step>, operator: Option<(String, Value)> },
}

impl JsonPath {
    /// Parses a path, with or without the braces that kubectl's form has.
    pub fn parse(text: &str) -> Result<JsonPath, JsonPathError> {
        let inner = text.trim().trim_start_matches('{').trim_end_matches('}').trim().trim_start_matches('$');
        steps(inner).map(|steps| JsonPath { steps }).ok_or_else(|| JsonPathError(text.to_owned()))
    }

    /// All values the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        walk(&self.steps, vec![value])
    }
}

fn bracket(inner: &str) -> Option<Step> {
    let inner = inner.trim();
    if inner == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|f| f.strip_suffix(')')) {
        return self::filter(filter);
    }
    if let Some(name) = inner.strip_prefix(['\'', '"']) {
        return name.strip_suffix(['\'', '"']).map(|n| Step::Field(n.to_owned()));
    }
    if let Some((from, to)) = inner.split_once(':') {
        let bound = |t: &str| if t.trim().is_empty() { Some(None) } else { t.trim().parse().ok().map(Some) };
        return Some(Step::Slice(bound(from)?, bound(to)?));
    }
    inner.parse().ok().map(Step::Index)
}

fn filter(text: &str) -> Option<Step> {
    const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];
    let text = text.trim();
    let found =
        OPERATORS.iter().filter_map(|op| text.find(op).map(|at| (at, *op))).min_by_key(|(at, op)| (*at, usize::MAX - op.len()));
    let (left, operator) = match found {
        Some((at, op)) => (&text[..at], Some((op.to_owned(), literal(text[at + op.len()..].trim())?))),
        None => (text, None),
    };
    Some(Step::Filter { path: steps(left.trim().strip_prefix('@')?)?, operator })
}

fn literal(text: &str) -> Option<Value> {
    if let Some(inner) = text.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        return Some(Value::String(inner.to_owned()));
    }
    serde_json::from_str(text).ok()
}

/// Length of a bracket's inside: quotes and nested brackets are skipped.
fn bracket_length(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn steps(text: &str) -> Option<Vec<Step>> {
    let mut out = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let length = bracket_length(inner)?;
            out.push(bracket(&inner[..length])?);
            rest = &inner[length + 1..];
            continue;
        }
        if let Some(after) = rest.strip_prefix("..") {
            out.push(Step::Descendants);
            rest = after;
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
        }
        if rest.starts_with('[') || rest.is_empty() {
            continue;
        }
        let mut name = String::new();
        let mut end = rest.len();
        let mut chars = rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.push(chars.next()?.1),
                '.' | '[' => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        if name.is_empty() {
            return None;
        }
        out.push(if name == "*" { Step::All } else { Step::Field(name) });
        rest = &rest[end..];
    }
    Some(out)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(list) => list.iter().collect(),
        _ => Vec::new(),
    }
}

fn descend<'a>(value: &'a Value, out: &mut Vec<&'a Value>) {
    out.push(value);
    for child in children(value) {
        descend(child, out);
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index + length as i64 } else { index }).ok()
}

fn walk<'a>(steps: &[Step], start: Vec<&'a Value>) -> Vec<&'a Value> {
    steps.iter().fold(start, |values, step| {
        let mut out = Vec::new();
        for value in values {
            match step {
                Step::Field(name) => out.extend(value.get(name)),
                Step::Index(index) => {
                    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    out.extend(position(*index, list.len()).and_then(|at| list.get(at)));
                }
                Step::Slice(from, to) => {
                    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
                    let from = position(from.unwrap_or(0), list.len()).unwrap_or(0).min(list.len());
                    let to = to.map_or(list.len(), |to| position(to, list.len()).unwrap_or(0)).min(list.len());
                    out.extend(list.get(from..to).unwrap_or_default());
                }
                Step::All => out.extend(children(value)),
                Step::Descendants => descend(value, &mut out),
                Step::Filter { path, operator } => {
                    out.extend(children(value).into_iter().filter(|item| holds(item, path, operator.as_ref())));
                }
            }
        }
        out
    })
}

fn holds(item: &Value, path: &[Step], operator: Option<&(String, Value)>) -> bool {
    let found = walk(path, vec![item]);
    let Some((operator, wanted)) = operator else { return !found.is_empty() };
    found.iter().any(|value| {
        let order = match (value, wanted) {
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            _ => None,
        };
        order.is_some_and(|order| match operator.as_str() {
            "==" => order.is_eq(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let value = json!({"a": {"b.c": 1, "l": [{"t": "x", "v": 1}, {"t": "y", "v": 2}]}});
        for (path, wanted) in [
            (".a.l[0].v", vec![json!(1)]),
            ("{.a.l[-1].v}", vec![json!(2)]),
            (".a.l[*].v", vec![json!(1), json!(2)]),
            (".a['b.c']", vec![json!(1)]),
            (".a.b\\.c", vec![json!(1)]),
            (".a.l[?(@.t==\"y\")].v", vec![json!(2)]),
            (".a.l[?(@.v>1)].t", vec![json!("y")]),
            ("..v", vec![json!(1), json!(2)]),
            (".a.l[0:1].t", vec![json!("x")]),
            (".none.x", vec![]),
        ] {
            let found: Vec<Value> = JsonPath::parse(path).unwrap().find(&value).into_iter().cloned().collect();
            assert_eq!(found, wanted, "{path}");
        }
        assert!(JsonPath::parse(".a[").is_err());
    }
}
