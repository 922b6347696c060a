//! Which form of answer a client wants, and which form a body has.

use http::{HeaderMap, header};

use crate::error::{ApiError, Result};
use crate::http_types::{JSON, PROTOBUF, YAML};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => JSON,
            Encoding::Yaml => YAML,
            Encoding::Protobuf => PROTOBUF,
        }
    }
}

/// What of an object is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Object,
    Table,
    PartialMetadata,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub encoding: Encoding,
    pub view: View,
}

impl Accepted {
    pub const JSON: Accepted = Accepted { encoding: Encoding::Json, view: View::Object };
}

/// Which forms a place can answer in.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    pub protobuf: bool,
    /// Tables and partial metadata.
    pub views: bool,
    pub watch: bool,
    /// The answer is a list.
    pub list: bool,
}

struct Range<'a> {
    media_type: &'a str,
    quality: u32,
    parameters: Vec<(&'a str, &'a str)>,
}

fn ranges(header: &str) -> Vec<Range<'_>> {
    let mut out: Vec<Range<'_>> = Vec::new();
    for clause in header.split(',') {
        let mut words = clause.split(';').map(str::trim);
        let media_type = words.next().unwrap_or_default();
        if media_type.is_empty() {
            continue;
        }
        let mut quality = 1000;
        let mut parameters = Vec::new();
        for (key, value) in words.filter_map(|w| w.split_once('=')) {
            if key == "q" {
                quality = value.parse::<f32>().map_or(0, |q| (q.clamp(0.0, 1.0) * 1000.0) as u32);
            } else {
                parameters.push((key, value.trim_matches('"')));
            }
        }
        out.push(Range { media_type, quality, parameters });
    }
    // A stable sort: among equals the client's order counts.
    out.sort_by_key(|r| std::cmp::Reverse(r.quality));
    out
}

/// Chooses the best form that the client accepts and the place offers.
pub fn accept(headers: &HeaderMap, offer: Offer) -> Result<Accepted> {
    let header = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if header.trim().is_empty() {
        return Ok(Accepted::JSON);
    }
    for range in ranges(header) {
        let encoding = match range.media_type {
            JSON | "*/*" => Encoding::Json,
            YAML if !offer.watch => Encoding::Yaml,
            PROTOBUF if offer.protobuf => Encoding::Protobuf,
            _ => continue,
        };
        if let Some(view) = view(&range.parameters, offer) {
            return Ok(Accepted { encoding, view });
        }
    }
    let served: &[&str] = if offer.protobuf { &[JSON, YAML, PROTOBUF] } else { &[JSON, YAML] };
    Err(ApiError::not_acceptable(served))
}

fn view(parameters: &[(&str, &str)], offer: Offer) -> Option<View> {
    let get = |key: &str| parameters.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let Some(kind) = get("as") else { return Some(View::Object) };
    let is_meta = get("g") == Some("meta.k8s.io") && matches!(get("v"), Some("v1" | "v1beta1"));
    match kind {
        "Table" if is_meta && offer.views => Some(View::Table),
        "PartialObjectMetadata" if is_meta && offer.views && !offer.list => Some(View::PartialMetadata),
        "PartialObjectMetadataList" if is_meta && offer.views && offer.list => Some(View::PartialMetadata),
        _ => None,
    }
}

/// Reads the encoding of a request's body; `None` is JSON as in upstream.
pub fn body_encoding(headers: &HeaderMap, protobuf: bool) -> Result<Encoding> {
    let media_type = media_type(headers);
    match media_type.as_str() {
        "" | JSON => Ok(Encoding::Json),
        YAML => Ok(Encoding::Yaml),
        PROTOBUF if protobuf => Ok(Encoding::Protobuf),
        _ if protobuf => Err(ApiError::unsupported_media_type(&[JSON, YAML, PROTOBUF])),
        _ => Err(ApiError::unsupported_media_type(&[JSON, YAML])),
    }
}

/// `Content-Type` without its parameters.
pub fn media_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer = Offer { protobuf: true, views: true, watch: false, list: false };

    fn asked(accept_header: &str) -> Result<Accepted> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept_header.parse().unwrap());
        accept(&headers, OFFER)
    }

    #[test]
    fn the_first_of_the_best_that_is_offered_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        assert_eq!(asked(table).unwrap().view, View::Table);
        assert_eq!(asked("text/html, application/json;q=0.5").unwrap(), Accepted::JSON);
        assert_eq!(asked("application/vnd.kubernetes.protobuf;q=0.1, application/json;q=0.9").unwrap(), Accepted::JSON);
        assert_eq!(asked("application/json;as=Nonsense;v=v1;g=meta.k8s.io, application/json").unwrap(), Accepted::JSON);
    }

    #[test]
    fn what_is_not_offered_is_406() {
        assert_eq!(asked("text/html").unwrap_err().code, 406);
        assert_eq!(asked("application/*").unwrap_err().code, 406);
        assert_eq!(asked("application/json;as=Nonsense;v=v1;g=meta.k8s.io").unwrap_err().code, 406);
    }
}
