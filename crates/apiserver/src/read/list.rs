//! Lists: one consistent snapshot, in pages, streamed from the stored bytes.

use std::io::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

use atoll_store::{Entry, Key, RangeQuery, Revision};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde_json::{Value, json};

use super::cursor::Cursor;
use super::options::{self, AtRevision};
use super::{Selection, load};
use crate::error::{ApiError, Result};
use crate::http_types::{Body, BoxError, JSON, PROTOBUF, answer};
use crate::negotiate::{Encoding, View};
use crate::objects::{self, split_key, too_large_revision};
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::stored::Layout;
use crate::{encoding, limits};

/// What one list answers.
pub(crate) struct Listing {
    pub revision: u64,
    pub entries: Vec<(Key, Entry)>,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl Listing {
    /// Names of the listed objects.
    pub fn names(&self, call: &Call) -> Vec<String> {
        let prefix = objects::prefix_of(&call.def, "");
        self.entries.iter().map(|(key, _)| split_key(key, &prefix).1.to_owned()).collect()
    }
}

pub(crate) async fn list(core: &Core, call: &Call) -> Result<Response<Body>> {
    let listing = gather(core, call).await?;
    list_answer(call, listing)
}

/// Writes a list in the form asked for.
pub(crate) fn list_answer(call: &Call, listing: Listing) -> Result<Response<Body>> {
    if encoding::can_splice(&call.def, call.accepted) && !call.query.flag("pretty") {
        return Ok(spliced(call, listing));
    }
    encode(call, listing)
}

/// Reads what the request asks for.
pub(crate) async fn gather(core: &Core, call: &Call) -> Result<Listing> {
    options::validate(&call.query, false)?;
    let selection = Selection::of(call)?;
    let limit = call.query.number("limit")?.and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
    let prefix = objects::prefix_of(&call.def, &call.info.namespace);
    let (mut at, mut after) = start(core, call, limit)?;
    if let Some(after) = &mut after {
        after.insert_str(0, &prefix);
    }
    let resource_prefix = objects::prefix_of(&call.def, "");
    let mut entries: Vec<(Key, Entry)> = Vec::new();
    loop {
        let wanted =
            limit.map(|l| (l - entries.len()).max(if selection.is_everything() { 1 } else { limits::INTERNAL_LIST_CHUNK }));
        let query = RangeQuery { prefix: &prefix, start_after: after.as_deref(), limit: wanted, at: at.map(Revision) };
        let page = core.objects.range(query).await.map_err(|e| expired(e, call, after.as_deref(), &prefix))?;
        at = Some(page.revision.0);
        let (mut remaining, count) = (page.remaining, page.entries.len());
        for (seen, (key, entry)) in page.entries.into_iter().enumerate() {
            if limit.is_some_and(|l| entries.len() == l) {
                // A selected page was filled before the chunk ended.
                remaining += count - seen;
                break;
            }
            after = Some(key.to_string());
            if selection.is_everything() || selection.matches(call, split_key(&key, &resource_prefix).1, &entry) {
                entries.push((key, entry));
            }
        }
        let is_full = limit.is_some_and(|l| entries.len() >= l);
        if remaining == 0 || is_full {
            let token = (remaining > 0).then(|| {
                let last = after.as_deref().and_then(|k| k.strip_prefix(prefix.as_str())).unwrap_or_default();
                Cursor { revision: at, after: last.to_owned() }.to_token()
            });
            let remaining = Some(remaining).filter(|r| *r > 0 && selection.is_everything());
            return Ok(Listing { revision: at.unwrap_or_default(), entries, continue_token: token, remaining });
        }
    }
}

/// The snapshot and the key to start after.
fn start(core: &Core, call: &Call, limit: Option<usize>) -> Result<(Option<u64>, Option<String>)> {
    let token = call.query.text("continue");
    if !token.is_empty() {
        if !matches!(call.query.text("resourceVersion"), "" | "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let cursor = Cursor::parse(token)?;
        return Ok((cursor.revision, Some(cursor.after)));
    }
    let current = core.objects.revision();
    match options::at_revision(&call.query, limit)? {
        AtRevision::Newest => Ok((None, None)),
        AtRevision::NotOlderThan(asked) | AtRevision::Exact(asked) if asked > current => Err(too_large_revision(asked, current)),
        AtRevision::NotOlderThan(_) => Ok((None, None)),
        AtRevision::Exact(asked) => Ok((Some(asked), None)),
    }
}

/// A page whose snapshot is gone: 410 with a token that goes on with what there is now.
fn expired(error: ApiError, call: &Call, after: Option<&str>, prefix: &str) -> ApiError {
    if error.code != 410 || call.query.text("continue").is_empty() {
        return error;
    }
    let after = after.and_then(|k| k.strip_prefix(prefix)).unwrap_or_default().to_owned();
    let token = Cursor { revision: None, after }.to_token();
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
                   the continue parameter, or use the continue token in this response to retrieve the remainder of the results";
    ApiError { continue_token: Some(token), ..ApiError::expired(message) }
}

fn list_metadata(listing: &Listing) -> Value {
    let mut metadata = json!({ "resourceVersion": listing.revision.to_string() });
    if let Some(token) = &listing.continue_token {
        metadata["continue"] = token.as_str().into();
    }
    if let Some(remaining) = listing.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    metadata
}

fn spliced(call: &Call, listing: Listing) -> Response<Body> {
    let head = format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        call.def.list_kind,
        call.def.api_version(),
        list_metadata(&listing)
    );
    let size: usize = listing.entries.iter().map(|(_, entry)| entry.value.len()).sum();
    let is_compressed = size >= limits::GZIP_BYTES_MIN && takes_gzip(call);
    let body = ListBody {
        head: Some(head),
        layout: encoding::layout(&call.def),
        entries: listing.entries.into_iter(),
        is_first: true,
        is_done: false,
        encoder: is_compressed.then(|| GzEncoder::new(Vec::new(), Compression::fast())),
    };
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    if is_compressed {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// The slow path: objects are parsed, converted and written again.
fn encode(call: &Call, listing: Listing) -> Result<Response<Body>> {
    let metadata = list_metadata(&listing);
    let objects: Result<Vec<Value>> = listing.entries.iter().map(|(_, entry)| load(call, entry)).collect();
    let mut objects = objects?;
    let list = match call.accepted.view {
        View::PartialMetadata => {
            let items: Vec<Value> = objects.iter().map(encoding::partial_metadata).collect();
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items })
        }
        View::Table => encoding::table_of(call, &objects, metadata)?,
        View::Object if call.accepted.encoding == Encoding::Protobuf => {
            let bytes = encoding::protobuf_list(&call.def, &metadata, &objects)?;
            return Ok(answer(200, PROTOBUF, bytes));
        }
        View::Object => {
            if !call.def.is_custom() {
                for object in objects.iter_mut().filter_map(Value::as_object_mut) {
                    object.remove("kind");
                    object.remove("apiVersion");
                }
            }
            json!({ "kind": call.def.list_kind, "apiVersion": call.def.api_version(), "metadata": metadata, "items": objects })
        }
    };
    encoding::value_answer(call, 200, &list)
}

/// A list that is written while it is sent: an idle copy of a large list is never in memory.
struct ListBody {
    head: Option<String>,
    layout: Layout,
    entries: std::vec::IntoIter<(Key, Entry)>,
    is_first: bool,
    is_done: bool,
    encoder: Option<GzEncoder<Vec<u8>>>,
}

fn takes_gzip(call: &Call) -> bool {
    let accepted = call.headers.get(header::ACCEPT_ENCODING).and_then(|v| v.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|coding| coding.split(';').next().is_some_and(|c| c.trim() == "gzip"))
}

impl ListBody {
    /// The next piece as it is sent.
    fn encoded(&mut self) -> Result<Option<Bytes>, std::io::Error> {
        let Some(plain) = self.chunk() else { return Ok(None) };
        let Some(mut encoder) = self.encoder.take() else { return Ok(Some(plain)) };
        encoder.write_all(&plain)?;
        if self.is_done {
            return Ok(Some(Bytes::from(encoder.finish()?)));
        }
        encoder.flush()?;
        let out = std::mem::take(encoder.get_mut());
        self.encoder = Some(encoder);
        Ok(Some(Bytes::from(out)))
    }

    fn chunk(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut out = Vec::with_capacity(limits::LIST_CHUNK_BYTES + 4096);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
        }
        while out.len() < limits::LIST_CHUNK_BYTES {
            let Some((key, entry)) = self.entries.next() else {
                out.extend_from_slice(b"]}\n");
                self.is_done = true;
                break;
            };
            let before = out.len();
            if !self.is_first {
                out.push(b',');
            }
            if self.layout.splice_item(&entry.value, entry.mod_revision.0, &mut out) {
                self.is_first = false;
            } else {
                tracing::error!(%key, "a stored object does not begin as it should and is left out of a list");
                out.truncate(before);
            }
        }
        Some(Bytes::from(out))
    }
}

impl hyper::body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.encoded().map_err(Into::into).map(|piece| piece.map(Frame::data)).transpose())
    }
}

/// All objects under the prefix of a call, unselected: what a watch begins with.
pub(crate) async fn snapshot(core: &Core, call: &Call) -> Result<Listing> {
    options::not_newer(core, &call.query)?;
    let prefix = objects::prefix_of(&call.def, &call.info.namespace);
    let page = core.objects.range(RangeQuery::prefix(&prefix)).await?;
    Ok(Listing { revision: page.revision.0, entries: page.entries, continue_token: None, remaining: None })
}
