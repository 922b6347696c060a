//! Label selectors: the text form of query parameters and the object form of specs.

use std::fmt;

use serde_json::{Map, Value};

use super::SelectorError;
use crate::validation::names;

/// What a requirement demands of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

/// One requirement; all of a selector's hold at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, without repetition.
    pub values: Vec<String>,
}

/// A label selector; an empty one selects everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<String>) -> Result<Requirement, SelectorError> {
        if let Some(problem) = names::qualified_name(key).first() {
            return Err(SelectorError(format!("key: Invalid value: {key:?}: {problem}")));
        }
        let is_number = |v: &String| v.parse::<i64>().is_ok();
        match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                return Err(SelectorError(
                    "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned(),
                ));
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 || !values.iter().all(is_number) => {
                let text = format!(
                    "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                    values.first()
                );
                return Err(SelectorError(text));
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            if let Some(problem) = names::label_value(value).first() {
                return Err(SelectorError(format!("values[{index}][{key}]: Invalid value: {value:?}: {problem}")));
            }
        }
        values.sort();
        values.dedup();
        Ok(Requirement { key: key.to_owned(), operator, values })
    }

    fn matches(&self, labels: &Map<String, Value>) -> bool {
        let value = labels.get(&self.key).map(|v| v.as_str().unwrap_or_default());
        let has = |v: &str| self.values.iter().any(|w| w == v);
        let compare = |greater: bool| {
            let (Some(found), Some(bound)) =
                (value.and_then(|v| v.parse::<i64>().ok()), self.values.first().and_then(|v| v.parse::<i64>().ok()))
            else {
                return false;
            };
            if greater { found > bound } else { found < bound }
        };
        match self.operator {
            Operator::In => value.is_some_and(has),
            Operator::NotIn => !value.is_some_and(has),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare(true),
            Operator::LessThan => compare(false),
        }
    }
}

impl LabelSelector {
    /// Parses the text form (`a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`).
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        let mut parser = Parser { rest: text.trim() };
        let mut requirements = Vec::new();
        while !parser.rest.is_empty() {
            requirements.push(parser.requirement().map_err(|e| SelectorError(format!("unable to parse requirement: {e}")))?);
            if parser.rest.is_empty() {
                break;
            }
            if !parser.take(",") {
                return Err(SelectorError(format!("found '{}', expected: ',' or 'end of string'", parser.rest)));
            }
            if parser.rest.is_empty() {
                return Err(SelectorError("found '', expected: identifier after ','".to_owned()));
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    /// Reads a `meta/v1 LabelSelector`; null selects nothing, so callers decide what absence means before.
    pub fn from_object(selector: &Value) -> Result<LabelSelector, SelectorError> {
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            requirements.push(Requirement::new(key, Operator::In, vec![value])?);
        }
        for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
            let operator = match expression.get("operator").and_then(Value::as_str).unwrap_or_default() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError(format!("{other:?} is not a valid label selector operator"))),
            };
            let key = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement::new(key, operator, values)?);
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    /// Reads a plain map of labels (a Service's selector).
    pub fn from_map(labels: &Map<String, Value>) -> LabelSelector {
        let requirement = |(key, value): (&String, &Value)| Requirement {
            key: key.clone(),
            operator: Operator::In,
            values: vec![value.as_str().unwrap_or_default().to_owned()],
        };
        LabelSelector { requirements: labels.iter().map(requirement).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        self.requirements.iter().all(|r| r.matches(labels))
    }

    /// Whether an object's `metadata.labels` match.
    pub fn matches_object(&self, object: &Value) -> bool {
        if self.is_empty() {
            return true;
        }
        match object.get("metadata").and_then(|m| m.get("labels")).and_then(Value::as_object) {
            Some(labels) => self.matches(labels),
            None => self.matches(&Map::new()),
        }
    }
}

impl fmt::Display for LabelSelector {
    /// The text form, as the `scale` subresource shows a selector.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, r) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            let values = r.values.join(",");
            match r.operator {
                Operator::In if r.values.len() == 1 => write!(f, "{}={values}", r.key)?,
                Operator::In => write!(f, "{} in ({values})", r.key)?,
                Operator::NotIn => write!(f, "{} notin ({values})", r.key)?,
                Operator::Exists => f.write_str(&r.key)?,
                Operator::DoesNotExist => write!(f, "!{}", r.key)?,
                Operator::GreaterThan => write!(f, "{}>{values}", r.key)?,
                Operator::LessThan => write!(f, "{}<{values}", r.key)?,
            }
        }
        Ok(())
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.take("!") {
            let key = self.word();
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        let key = self.word();
        if key.is_empty() {
            return Err(SelectorError(format!("found '{}', expected: !, identifier, or 'end of string'", self.rest)));
        }
        for (token, operator) in [
            ("==", Operator::In),
            ("=", Operator::In),
            ("!=", Operator::NotIn),
            (">", Operator::GreaterThan),
            ("<", Operator::LessThan),
        ] {
            if self.take(token) {
                let value = self.word();
                return Requirement::new(key, operator, vec![value.to_owned()]);
            }
        }
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.word() {
            "in" => Operator::In,
            "notin" => Operator::NotIn,
            other => {
                let text = format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt");
                return Err(SelectorError(text));
            }
        };
        let values = self.values()?;
        Requirement::new(key, operator, values)
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        if !self.take("(") {
            return Err(SelectorError(format!("found '{}' expected: '('", self.rest)));
        }
        let mut values = Vec::new();
        loop {
            values.push(self.word().to_owned());
            if self.take(")") {
                return Ok(values);
            }
            if !self.take(",") {
                return Err(SelectorError(format!("found '{}', expected: ',' or ')'", self.rest)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(selector: &str, labels: Value) -> bool {
        LabelSelector::parse(selector).unwrap().matches(labels.as_object().unwrap())
    }

    #[test]
    fn selectors_match_as_upstream() {
        let labels = || json!({"a": "1", "b": "x"});
        for (selector, wanted) in [
            ("", true),
            ("a=1", true),
            ("a==1,b=x", true),
            ("a!=1", false),
            ("c!=1", true),
            ("a in (1, 2)", true),
            ("a notin (1,2)", false),
            ("c notin (1)", true),
            ("a", true),
            ("!a", false),
            ("!c", true),
            ("a>0", true),
            ("a<1", false),
            ("b>0", false),
            ("c=", false),
        ] {
            assert_eq!(matches(selector, labels()), wanted, "{selector}");
        }
    }

    #[test]
    fn malformed_selectors_are_refused() {
        for selector in ["a=b,", "=", "a in", "a in (", "a in (b", "a b", "a>x", "/a=b", "a=b c", "a=-"] {
            assert!(LabelSelector::parse(selector).is_err(), "{selector}");
        }
    }

    #[test]
    fn object_form_and_text_form_agree() {
        let object = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        let selector = LabelSelector::from_object(&object).unwrap();
        assert_eq!(selector.to_string(), "a=1,b in (x,y),!c");
        assert_eq!(LabelSelector::parse(&selector.to_string()).unwrap(), selector);
    }
}
