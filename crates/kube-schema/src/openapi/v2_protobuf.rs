//! The OpenAPI v2 document as protobuf: messages `openapi.v2.*` as gnostic defines them, which older clients and `kubectl apply` of an
//! unknown kind ask for. The messages are rows of a table; one function writes them all.

use serde_json::{Map, Value};

use crate::protobuf::Writer;

/// A message: its fields by their JSON key, and the tag of its vendor extensions (0: it has none).
struct Message {
    fields: &'static [(&'static str, u8, Shape)],
    extensions: u8,
}

/// How a JSON value is written.
enum Shape {
    Text,
    Flag,
    Integer,
    Double,
    /// `repeated string`.
    Texts,
    One(&'static Message),
    Many(&'static Message),
    /// A JSON object as a message that holds name and value pairs at this tag.
    Named(u8, &'static Message),
    /// As [`Shape::Named`], of lists of strings.
    NamedTexts,
    /// Any value, as YAML text (JSON is YAML).
    Any,
    ManyAny,
    /// A message that holds nothing but strings at tag 1; a single string counts as one.
    TextsIn,
    /// One message inside a message at tag 1.
    Wrapped(&'static Message),
    /// A truth value or a schema.
    FlagOrSchema,
    /// A parameter: of the body, or by its `in`.
    Parameters,
    /// A reference or the message, in a `oneof`.
    Response,
}

use Shape::{
    Any, Double, Flag, FlagOrSchema, Integer, Many, ManyAny, Named, NamedTexts, One, Parameters, Text, Texts, TextsIn, Wrapped,
};

static DOCUMENT: Message = Message {
    fields: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("host", 3, Text),
        ("basePath", 4, Text),
        ("schemes", 5, Texts),
        ("consumes", 6, Texts),
        ("produces", 7, Texts),
        ("paths", 8, Named(2, &PATH_ITEM)),
        ("definitions", 9, Named(1, &SCHEMA)),
        ("security", 12, Many(&SECURITY_REQUIREMENT)),
        ("securityDefinitions", 13, Named(1, &SECURITY_DEFINITION)),
    ],
    extensions: 16,
};

static INFO: Message = Message { fields: &[("title", 1, Text), ("version", 2, Text), ("description", 3, Text)], extensions: 7 };

static PATH_ITEM: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Parameters),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, Texts),
        ("summary", 2, Text),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Parameters),
        ("responses", 9, Named(1, &RESPONSE_VALUE)),
        ("schemes", 10, Texts),
        ("deprecated", 11, Flag),
        ("security", 12, Many(&SECURITY_REQUIREMENT)),
    ],
    extensions: 13,
};

static BODY_PARAMETER: Message = Message {
    fields: &[("description", 1, Text), ("name", 2, Text), ("in", 3, Text), ("required", 4, Flag), ("schema", 5, One(&SCHEMA))],
    extensions: 6,
};

/// Parameters of a header or a path.
static PLAIN_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("default", 9, Any),
        ("pattern", 16, Text),
        ("uniqueItems", 19, Flag),
        ("enum", 20, ManyAny),
    ],
    extensions: 22,
};

/// Parameters of a query or a form.
static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, Flag),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("allowEmptyValue", 5, Flag),
        ("type", 6, Text),
        ("format", 7, Text),
        ("default", 10, Any),
        ("pattern", 17, Text),
        ("uniqueItems", 20, Flag),
        ("enum", 21, ManyAny),
    ],
    extensions: 23,
};

static REFERENCE: Message = Message { fields: &[("$ref", 1, Text), ("description", 2, Text)], extensions: 0 };

/// What stands at a response code: the response, or a reference to one.
static RESPONSE_VALUE: Message = Message { fields: &[("", 1, Shape::Response)], extensions: 0 };

static RESPONSE: Message = Message { fields: &[("description", 1, Text), ("schema", 2, Wrapped(&SCHEMA))], extensions: 5 };

static SECURITY_REQUIREMENT: Message = Message { fields: &[("", 1, NamedTexts)], extensions: 0 };

/// Of the kinds of security definitions there is the key in a header.
static SECURITY_DEFINITION: Message = Message { fields: &[("", 2, One(&API_KEY))], extensions: 0 };

static API_KEY: Message =
    Message { fields: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)], extensions: 5 };

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Double),
        ("maximum", 7, Double),
        ("exclusiveMaximum", 8, Flag),
        ("minimum", 9, Double),
        ("exclusiveMinimum", 10, Flag),
        ("maxLength", 11, Integer),
        ("minLength", 12, Integer),
        ("pattern", 13, Text),
        ("maxItems", 14, Integer),
        ("minItems", 15, Integer),
        ("uniqueItems", 16, Flag),
        ("maxProperties", 17, Integer),
        ("minProperties", 18, Integer),
        ("required", 19, Texts),
        ("enum", 20, ManyAny),
        ("additionalProperties", 21, FlagOrSchema),
        ("type", 22, TextsIn),
        ("items", 23, Wrapped(&SCHEMA)),
        ("allOf", 24, Many(&SCHEMA)),
        ("properties", 25, Named(1, &SCHEMA)),
        ("discriminator", 26, Text),
        ("readOnly", 27, Flag),
        ("example", 30, Any),
    ],
    extensions: 31,
};

/// Writes a v2 document as message `openapi.v2.Document`.
pub fn encode(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    message(&DOCUMENT, document, &mut out);
    out.into_bytes()
}

fn message(message: &Message, value: &Value, out: &mut Writer) {
    let empty = Map::new();
    let object = value.as_object().unwrap_or(&empty);
    for (key, tag, shape) in message.fields {
        // A field without a key is the value itself in another dress.
        if let Some(value) = if key.is_empty() { Some(value) } else { object.get(*key) } {
            field(*tag, shape, value, out);
        }
    }
    if message.extensions > 0 {
        for (key, value) in object.iter().filter(|(key, _)| key.starts_with("x-")) {
            out.message(message.extensions, |out| named(key, out, |out| any(value, out)));
        }
    }
}

fn field(tag: u8, shape: &Shape, value: &Value, out: &mut Writer) {
    let list = || value.as_array().into_iter().flatten();
    let entries = || value.as_object().into_iter().flatten();
    match shape {
        Text => text(tag, value.as_str().unwrap_or_default(), out),
        Flag => {
            if value.as_bool() == Some(true) {
                out.int(tag, 1);
            }
        }
        Integer => out.int(tag, value.as_i64().unwrap_or_default()),
        Double => out.double(tag, value.as_f64().unwrap_or_default()),
        Texts => list().filter_map(Value::as_str).for_each(|t| out.text(tag, t)),
        TextsIn => out.message(tag, |out| match value.as_str() {
            Some(one) => out.text(1, one),
            None => field(1, &Texts, value, out),
        }),
        One(of) => out.message(tag, |out| message(of, value, out)),
        Many(of) => list().for_each(|v| out.message(tag, |out| message(of, v, out))),
        Wrapped(of) => out.message(tag, |out| out.message(1, |out| message(of, value, out))),
        Named(inner, of) => out.message(tag, |out| {
            for (name, value) in entries() {
                out.message(*inner, |out| named(name, out, |out| message(of, value, out)));
            }
        }),
        NamedTexts => {
            for (name, value) in entries() {
                out.message(tag, |out| named(name, out, |out| field(1, &Texts, value, out)));
            }
        }
        Any => out.message(tag, |out| any(value, out)),
        ManyAny => list().for_each(|v| out.message(tag, |out| any(v, out))),
        FlagOrSchema => out.message(tag, |out| match value.as_bool() {
            Some(is_allowed) => out.int(2, i64::from(is_allowed)),
            None => out.message(1, |out| message(&SCHEMA, value, out)),
        }),
        Parameters => list().for_each(|p| out.message(tag, |out| parameter(p, out))),
        Shape::Response => match value.get("$ref") {
            Some(_) => out.message(2, |out| message(&REFERENCE, value, out)),
            None => out.message(tag, |out| message(&RESPONSE, value, out)),
        },
    }
}

fn parameter(value: &Value, out: &mut Writer) {
    if value.get("$ref").is_some() {
        return out.message(2, |out| message(&REFERENCE, value, out));
    }
    out.message(1, |out| match value["in"].as_str().unwrap_or_default() {
        "body" => out.message(1, |out| message(&BODY_PARAMETER, value, out)),
        place => out.message(2, |out| match place {
            "header" => out.message(1, |out| message(&PLAIN_PARAMETER, value, out)),
            "formData" => out.message(2, |out| message(&QUERY_PARAMETER, value, out)),
            "query" => out.message(3, |out| message(&QUERY_PARAMETER, value, out)),
            _ => out.message(4, |out| message(&PLAIN_PARAMETER, value, out)),
        }),
    });
}

/// The body of a message that pairs a name with a value.
fn named(name: &str, out: &mut Writer, value: impl FnOnce(&mut Writer)) {
    out.text(1, name);
    out.message(2, value);
}

/// The body of message `Any`.
fn any(value: &Value, out: &mut Writer) {
    out.text(2, &value.to_string());
}

/// A proto3 string: an empty one is left out.
fn text(tag: u8, text: &str, out: &mut Writer) {
    if !text.is_empty() {
        out.text(tag, text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What `Document` reads, by hand: a schema with an extension.
    #[test]
    fn a_schema_is_a_named_message_with_its_extensions() {
        let document = json!({"swagger": "2.0", "definitions": {"a.B": {"type": "object", "required": ["x"],
            "properties": {"x": {"$ref": "#/definitions/C"}}, "x-kubernetes-k": [1]}}});
        let schema: Vec<u8> = [
            &b"\x9a\x01\x01x"[..],                                           // required
            b"\xb2\x01\x08\x0a\x06object",                                   // type
            b"\xca\x01\x18\x0a\x16\x0a\x01x\x12\x11\x0a\x0f#/definitions/C", // properties
            b"\xfa\x01\x17\x0a\x0ex-kubernetes-k\x12\x05\x12\x03[1]",
        ]
        .concat();
        let mut named = b"\x0a\x03a.B\x12".to_vec();
        named.push(schema.len() as u8);
        named.extend(schema);
        let mut expected = b"\x0a\x032.0\x4a".to_vec();
        expected.push(named.len() as u8 + 2);
        expected.push(0x0a);
        expected.push(named.len() as u8);
        expected.extend(named);
        assert_eq!(encode(&document), expected);
    }
}
