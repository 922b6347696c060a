//! Tables: what `kubectl get` shows of an object. The columns of built-in kinds are rows of their own table; custom kinds state
//! theirs; any other kind shows its name and when it was made. Cells of wide columns are always there, clients choose.

mod duration;
mod jsonpath;
mod kinds;
mod pods;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::ResourceDef;
use crate::selector::LabelSelector;
use crate::timestamp::parse_time;

pub use duration::human_duration;
pub use jsonpath::JsonPath;

const ROWS: &str = include_str!("../../table/own/columns.txt");

/// A column's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub type_name: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown, 1 only when wide.
    pub priority: i32,
}

/// How a table's rows are made: find it once per answer, use it for each object.
#[derive(Clone, Debug)]
pub struct Printer {
    columns: Vec<Column>,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug)]
enum Cell {
    /// Words of a row of the column table.
    BuiltIn(Vec<String>),
    Custom {
        path: JsonPath,
        type_name: String,
    },
}

fn column(name: &str, type_name: &str, format: &str, priority: i32) -> Column {
    let description = match name {
        "Name" => "Name of the object, unique in its namespace".to_owned(),
        "Age" => "Time since the object was created".to_owned(),
        "Created At" => "When the object was created".to_owned(),
        // Upstream describes all columns but this one.
        "Handler" => String::new(),
        name => format!("{name} of the object"),
    };
    Column { name: name.to_owned(), type_name: type_name.to_owned(), format: format.to_owned(), description, priority }
}

fn built_in(def: &ResourceDef) -> Option<Printer> {
    let group = if def.group.is_empty() { "core" } else { &def.group };
    let head = format!("{group} {}", def.plural);
    let mut lines = ROWS.lines().skip_while(|line| *line != head).skip(1).take_while(|line| line.starts_with(' ')).peekable();
    lines.peek()?;
    let mut printer = Printer { columns: Vec::new(), cells: Vec::new() };
    for line in lines {
        let parts: Vec<&str> = line.trim_start().split('|').collect();
        let [name, type_name, format, wide, cell] = parts[..] else { continue };
        let format = if format == "-" { "" } else { format };
        printer.columns.push(column(name, type_name, format, i32::from(wide == "wide")));
        printer.cells.push(Cell::BuiltIn(cell.split(' ').map(str::to_owned).collect()));
    }
    Some(printer)
}

fn words(text: &str) -> Cell {
    Cell::BuiltIn(vec![text.to_owned()])
}

fn custom(def: &ResourceDef) -> Printer {
    let mut printer = Printer { columns: vec![column("Name", "string", "name", 0)], cells: vec![words("name")] };
    if def.printer_columns.is_empty() {
        printer.columns.push(column("Age", "date", "", 0));
        printer.cells.push(words("age"));
    }
    for stated in &def.printer_columns {
        let Ok(path) = JsonPath::parse(&stated.json_path) else { continue };
        let description =
            if stated.description.is_empty() { format!("Value at {}", stated.json_path) } else { stated.description.clone() };
        printer.columns.push(Column {
            name: stated.name.clone(),
            type_name: stated.type_name.clone(),
            format: stated.format.clone(),
            description,
            priority: stated.priority,
        });
        printer.cells.push(Cell::Custom { path, type_name: stated.type_name.clone() });
    }
    printer
}

impl Printer {
    /// The printer of a kind.
    pub fn of(def: &ResourceDef) -> Printer {
        if def.is_custom() {
            return custom(def);
        }
        built_in(def).unwrap_or_else(|| Printer {
            columns: vec![column("Name", "string", "name", 0), column("Created At", "date", "", 0)],
            cells: vec![words("name"), words("created")],
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// `columnDefinitions` of a `meta/v1 Table`.
    pub fn column_definitions(&self) -> Value {
        let column = |c: &Column| json!({"name": c.name, "type": c.type_name, "format": c.format, "description": c.description, "priority": c.priority});
        Value::Array(self.columns.iter().map(column).collect())
    }

    /// The cells of one object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.cells
            .iter()
            .map(|cell| match cell {
                Cell::BuiltIn(words) => built_in_cell(words, object, now),
                Cell::Custom { path, type_name } => custom_cell(path, type_name, object, now),
            })
            .collect()
    }

    /// `conditions` of a row: a finished Pod is marked.
    pub fn row_conditions(&self, def: &ResourceDef, object: &Value) -> Option<Value> {
        if !(def.group.is_empty() && def.plural == "pods") {
            return None;
        }
        let (reason, message) = match object.pointer("/status/phase").and_then(Value::as_str) {
            Some("Succeeded") => ("Succeeded", "The pod has completed successfully."),
            Some("Failed") => ("Failed", "The pod failed."),
            _ => return None,
        };
        Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
    }
}

/// The value at a dotted path; a number is a list index.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| match key.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index).unwrap_or(&Value::Null),
        _ => value.get(key).unwrap_or(&Value::Null),
    })
}

pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

pub(crate) fn int(object: &Value, path: &str) -> i64 {
    at(object, path).as_i64().unwrap_or_default()
}

pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Time since a timestamp as kubectl writes it.
pub(crate) fn since(time: &str, now: Timestamp) -> String {
    match parse_time(time) {
        Ok(then) => human_duration(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Labels as `a=b,c=d`, `<none>` without any.
pub(crate) fn labels(map: &Value) -> String {
    let pairs: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") }
}

fn selector(value: &Value) -> String {
    match LabelSelector::from_object(value) {
        Ok(selector) if selector.is_empty() => "<none>".to_owned(),
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_owned(),
    }
}

fn joined(values: &[Value], key: &str) -> String {
    values.iter().map(|v| text(v, key)).collect::<Vec<_>>().join(",")
}

fn built_in_cell(words: &[String], object: &Value, now: Timestamp) -> Value {
    let argument = |index: usize| words.get(index).map(String::as_str).unwrap_or_default();
    let path = argument(1);
    match argument(0) {
        "name" => text(object, "metadata.name").into(),
        "age" => since(text(object, "metadata.creationTimestamp"), now).into(),
        "created" => text(object, "metadata.creationTimestamp").into(),
        "text" => match at(object, path) {
            Value::String(found) if !found.is_empty() => found.as_str().into(),
            Value::Number(number) => number.to_string().into(),
            _ => argument(2).into(),
        },
        "int" => int(object, path).into(),
        "number" => at(object, path).as_i64().map_or_else(|| "<none>".into(), Value::from),
        "bool" => at(object, path).as_bool().unwrap_or(argument(2) == "true").into(),
        "ratio" => format!("{}/{}", int(object, path), int(object, argument(2))).into(),
        "count" => {
            let count = |path: &String| match at(object, path) {
                Value::Object(map) => map.len(),
                Value::Array(list) => list.len(),
                _ => 0,
            };
            words[1..].iter().map(count).sum::<usize>().into()
        }
        "join" => {
            let parts: Vec<&str> = list(object, path).iter().filter_map(Value::as_str).collect();
            if parts.is_empty() { argument(2).into() } else { parts.join(",").into() }
        }
        "containers" => joined(list(object, path), "name").into(),
        "images" => joined(list(object, path), "image").into(),
        "labels" => labels(at(object, path)).into(),
        "selector" => selector(at(object, path)).into(),
        _ => kinds::cell(path, object, now),
    }
}

fn custom_cell(path: &JsonPath, type_name: &str, object: &Value, now: Timestamp) -> Value {
    let found = path.find(object);
    let Some(first) = found.first().filter(|v| !v.is_null()) else { return Value::Null };
    match type_name {
        "integer" => match first {
            Value::Number(number) => {
                number.as_i64().or_else(|| number.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
            }
            _ => Value::Null,
        },
        "number" => {
            if first.is_number() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        "boolean" => {
            if first.is_boolean() {
                (*first).clone()
            } else {
                Value::Null
            }
        }
        "date" => match first.as_str() {
            Some(time) if parse_time(time).is_ok() => since(time, now).into(),
            Some(_) => "<invalid>".into(),
            None => Value::Null,
        },
        // Several matches are shown side by side, structures as JSON.
        _ => found
            .iter()
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    fn row(group: &str, plural: &str, object: Value) -> Vec<Value> {
        let registry = Registry::builtin();
        let now: Timestamp = "2024-01-02T00:00:00Z".parse().unwrap();
        Printer::of(registry.get(group, "v1", plural).unwrap()).cells(&object, now)
    }

    #[test]
    fn every_stored_kind_has_as_many_cells_as_columns() {
        for def in Registry::builtin().rows() {
            let printer = Printer::of(def);
            let cells = printer.cells(&json!({"metadata": {"name": "x"}}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), printer.columns().len(), "{}", def.plural);
            assert!(cells.contains(&"x".into()), "{}", def.plural);
        }
    }

    #[test]
    fn rows_of_common_kinds() {
        let meta = json!({"name": "x", "creationTimestamp": "2024-01-01T00:00:00Z"});
        let config = row("", "configmaps", json!({"metadata": meta, "data": {"a": "1"}, "binaryData": {"b": "eA=="}}));
        assert_eq!(config, [json!("x"), json!(2), json!("24h")]);
        let deployment = row(
            "apps",
            "deployments",
            json!({"metadata": meta, "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}, "status": {"readyReplicas": 1}}),
        );
        assert_eq!(
            deployment,
            [json!("x"), json!("1/3"), json!(0), json!(0), json!("24h"), json!("c"), json!("i"), json!("a=b")]
        );
        let role = row("rbac.authorization.k8s.io", "roles", json!({"metadata": meta}));
        assert_eq!(role, [json!("x"), json!("2024-01-01T00:00:00Z")]);
    }

    #[test]
    fn custom_columns_are_read_by_path() {
        let crd = json!({"spec": {"group": "e.io", "scope": "Cluster", "names": {"plural": "ws", "kind": "W"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [
                {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}});
        let def = &ResourceDef::from_crd(&crd).unwrap()[0];
        let object = json!({"metadata": {"name": "w", "creationTimestamp": "2024-01-01T23:59:00Z"}, "spec": {"size": 3},
            "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}});
        let cells = Printer::of(def).cells(&object, "2024-01-02T00:00:00Z".parse().unwrap());
        assert_eq!(cells, [json!("w"), json!("True"), json!(3), json!("60s")]);
    }
}
