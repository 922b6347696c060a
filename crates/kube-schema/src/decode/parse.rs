//! Bytes to a JSON value, noting duplicate keys on the way. The last of several equal keys counts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::DecodeError;
use crate::limits;

/// A parsed body.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    pub value: Value,
    /// Paths of keys that occurred more than once, in order (`spec.containers[0].name`).
    pub duplicates: Vec<String>,
}

impl From<Value> for Parsed {
    fn from(value: Value) -> Parsed {
        Parsed { value, duplicates: Vec::new() }
    }
}

/// Parses one JSON document. Nesting is bounded by the parser (128 levels).
pub fn parse_json(bytes: &[u8]) -> Result<Parsed, DecodeError> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { path: String::new(), duplicates: &mut duplicates };
    let value = seed.deserialize(&mut deserializer).map_err(|e| DecodeError::Syntax(e.to_string()))?;
    deserializer.end().map_err(|e| DecodeError::Syntax(e.to_string()))?;
    Ok(Parsed { value, duplicates })
}

/// Parses one YAML document; aliases expand within a budget.
pub fn parse_yaml(bytes: &[u8]) -> Result<Parsed, DecodeError> {
    // JSON is YAML, and clients that mean YAML often send JSON: the JSON parser is stricter and faster.
    if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(parsed) = parse_json(bytes)
    {
        return Ok(parsed);
    }
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = limits::YAML_EVENTS_MAX;
    let options = serde_saphyr::options! {
        budget: Some(budget),
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        with_snippet: false,
    };
    let mut duplicates = Vec::new();
    let value = serde_saphyr::with_deserializer_from_slice_with_options(bytes, options, |deserializer| {
        Seed { path: String::new(), duplicates: &mut duplicates }.deserialize(deserializer)
    })
    .map_err(|e| DecodeError::Syntax(format!("error converting YAML to JSON: {e}")))?;
    Ok(Parsed { value, duplicates })
}

struct Seed<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that JSON cannot hold"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access
            .next_element_seed(Seed { path: format!("{}[{}]", self.path, list.len()), duplicates: &mut *self.duplicates })?
        {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<KeyText>()? {
            let path = if self.path.is_empty() { key.0.clone() } else { format!("{}.{}", self.path, key.0) };
            let is_duplicate = map.contains_key(&key.0);
            if is_duplicate && self.duplicates.len() < limits::STRICT_ERRORS_MAX {
                self.duplicates.push(path.clone());
            }
            let value = access.next_value_seed(Seed { path, duplicates: &mut *self.duplicates })?;
            map.insert(key.0, value);
        }
        Ok(Value::Object(map))
    }
}

/// A key; YAML's other scalars become their text, as they do on their way to JSON upstream.
struct KeyText(String);

impl<'de> serde::Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyText, D::Error> {
        struct Keys;
        impl Visitor<'_> for Keys {
            type Value = KeyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, value: &str) -> Result<KeyText, E> {
                Ok(KeyText(value.to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<KeyText, E> {
                Ok(KeyText(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<KeyText, E> {
                Ok(KeyText(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<KeyText, E> {
                Ok(KeyText(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<KeyText, E> {
                Ok(KeyText(value.to_string()))
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_noted_and_the_last_counts() {
        let parsed = parse_json(br#"{"a":{"b":1,"b":2},"l":[{"c":1,"c":2}]}"#).unwrap();
        assert_eq!(parsed.value, json!({"a": {"b": 2}, "l": [{"c": 2}]}));
        assert_eq!(parsed.duplicates, ["a.b", "l[0].c"]);
        let parsed = parse_yaml(b"a:\n  b: 1\n  b: 2\n").unwrap();
        assert_eq!(parsed.value, json!({"a": {"b": 2}}));
        assert_eq!(parsed.duplicates, ["a.b"]);
    }

    #[test]
    fn malformed_and_too_deep_bodies_are_refused() {
        assert!(parse_json(b"{").is_err());
        assert!(parse_json(b"").is_err());
        assert!(parse_json(b"{} {}").is_err());
        assert!(parse_json("[".repeat(100_000).as_bytes()).is_err());
        assert!(parse_yaml(b"a: [").is_err());
        let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
            + &(1..12)
                .map(|i| {
                    format!(
                        "k{i}: &k{i} [{}]\n",
                        vec![format!("*{}", if i == 1 { "a".to_owned() } else { format!("k{}", i - 1) }); 9].join(",")
                    )
                })
                .collect::<String>();
        assert!(parse_yaml(bomb.as_bytes()).is_err());
    }

    #[test]
    fn yaml_scalars_have_json_types() {
        let parsed = parse_yaml(b"a: 1\nb: true\nc: 'x'\nd:\ne: 1.5\n80: http\n").unwrap();
        assert_eq!(parsed.value, json!({"a": 1, "b": true, "c": "x", "d": null, "e": 1.5, "80": "http"}));
    }
}
