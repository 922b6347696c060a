//! Watches: a cursor into the log, with the objects that exist first where the client asked for them.

use std::collections::VecDeque;
use std::time::Duration;

use atoll_kube_schema::protobuf;
use atoll_store::{Entry, Event, Watcher};
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rand::Rng;
use serde_json::{Value, json};
use tokio::sync;
use tokio::time::Instant;

use super::list::{self, Listing};
use super::{Selection, load, options};
use crate::error::{ApiError, Result};
use crate::http_types::{Body, BoxError, JSON};
use crate::negotiate::{Encoding, View};
use crate::objects::{self, split_key, store_error};
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::{encoding, limits};

/// What the client wants besides changes.
struct Wishes {
    bookmarks: bool,
    /// The bookmark that ends the initial events.
    marks_initial_end: bool,
}

/// How a watch begins.
enum Start {
    /// With what exists.
    State,
    /// After this revision.
    After(u64),
}

struct Stream {
    call: Call,
    selection: Selection,
    watcher: Box<dyn Watcher>,
    resource_prefix: String,
    wishes: Wishes,
    frames: VecDeque<Bytes>,
    deadline: Instant,
    next_bookmark: Instant,
    last_bookmark: u64,
    /// Events up to here are skipped.
    from: u64,
    /// Turns true when the server is going away: a watch has no end of its own that a stop could wait for.
    stopping: sync::watch::Receiver<bool>,
    is_over: bool,
}

pub(crate) async fn watch(core: &Core, call: Call) -> Result<Response<Body>> {
    options::validate(&call.query, true)?;
    let selection = Selection::of(&call)?;
    let deadline = Instant::now() + timeout(&call)?;
    let start = start(&call)?;
    let is_protobuf = call.accepted.encoding == Encoding::Protobuf;
    let media_type = if is_protobuf { encoding::PROTOBUF_WATCH } else { JSON };
    let prefix = objects::prefix_of(&call.def, &call.info.namespace);
    let sends_initial = call.query.flag("sendInitialEvents");
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let (from, initial) = match start {
        Start::State => {
            let listing = list::snapshot(core, &call).await?;
            (listing.revision, Some(listing))
        }
        Start::After(revision) => (revision, None),
    };
    let watcher = match open(core, &prefix, from).await {
        Ok(watcher) => watcher,
        Err(error) if error.code == 410 => return Ok(response(error_stream(&error, is_protobuf), media_type)),
        Err(error) => return Err(error),
    };
    let mut stream = Stream {
        resource_prefix: objects::prefix_of(&call.def, ""),
        wishes: Wishes { bookmarks, marks_initial_end: bookmarks && sends_initial },
        call,
        selection,
        watcher,
        frames: VecDeque::new(),
        deadline,
        next_bookmark: Instant::now() + limits::BOOKMARK_PERIOD,
        last_bookmark: from,
        from,
        stopping: core.until_stopping(),
        is_over: false,
    };
    if let Some(listing) = initial {
        stream.begin_with(&listing)?;
    }
    Ok(response(stream.into_frames(), media_type))
}

/// A watch from the future waits for it: the log is followed from where it is now and earlier events are skipped.
async fn open(core: &Core, prefix: &str, from: u64) -> Result<Box<dyn Watcher>> {
    core.objects.watch(prefix, from.min(core.objects.revision())).await
}

fn start(call: &Call) -> Result<Start> {
    let version = call.query.text("resourceVersion");
    let sends_initial = call.query.get("sendInitialEvents").filter(|v| !v.is_empty());
    if sends_initial.is_some() && call.query.flag("sendInitialEvents") {
        return Ok(Start::State);
    }
    match version {
        "" | "0" => Ok(Start::State),
        text => text
            .parse()
            .map(Start::After)
            .map_err(|_| ApiError::new(500, "", format!("Invalid value: {text:?}: resourceVersion is not a version"))),
    }
}

fn timeout(call: &Call) -> Result<Duration> {
    match call.query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds as u64)),
        _ => Ok(limits::WATCH_TIMEOUT_MIN.mul_f64(1.0 + rand::rng().random::<f64>())),
    }
}

fn response(frames: impl futures::Stream<Item = Bytes> + Send + 'static, media_type: &'static str) -> Response<Body> {
    let body = StreamBody::new(frames.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes))));
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A frame of a protobuf watch: the length in four bytes, then the event.
fn protobuf_frame(event_type: &str, object: &Value) -> Result<Bytes> {
    let event = protobuf::encode_watch_event(event_type, &encoding::protobuf_object(object)?);
    let length = u32::try_from(event.len()).map_err(ApiError::internal)?;
    let mut out = length.to_be_bytes().to_vec();
    out.extend_from_slice(&event);
    Ok(Bytes::from(out))
}

fn error_frame(error: &ApiError, is_protobuf: bool) -> Bytes {
    if is_protobuf {
        return protobuf_frame("ERROR", &error.to_status()).unwrap_or_default();
    }
    let mut frame = json!({ "type": "ERROR", "object": error.to_status() }).to_string();
    frame.push('\n');
    Bytes::from(frame)
}

fn error_stream(error: &ApiError, is_protobuf: bool) -> impl futures::Stream<Item = Bytes> + Send + use<> {
    futures::stream::iter([error_frame(error, is_protobuf)])
}

impl Stream {
    fn begin_with(&mut self, listing: &Listing) -> Result<()> {
        for (key, entry) in &listing.entries {
            if self.selection.matches(&self.call, split_key(key, &self.resource_prefix).1, entry) {
                let frame = self.frame("ADDED", entry, entry.mod_revision.0)?;
                self.frames.push_back(frame);
            }
        }
        if self.wishes.marks_initial_end {
            let frame = self.bookmark(listing.revision, true);
            self.frames.push_back(frame);
        }
        Ok(())
    }

    fn into_frames(self) -> impl futures::Stream<Item = Bytes> + Send {
        futures::stream::unfold(self, |mut stream| async move { stream.next_frames().await.map(|bytes| (bytes, stream)) })
    }

    /// The next frames, several in one piece where there are several; none at the end.
    async fn next_frames(&mut self) -> Option<Bytes> {
        loop {
            if let Some(first) = self.frames.pop_front() {
                return Some(self.gathered(first));
            }
            if self.is_over {
                return None;
            }
            let wake = if self.wishes.bookmarks { self.next_bookmark.min(self.deadline) } else { self.deadline };
            let batch = tokio::select! {
                batch = self.watcher.next_batch(limits::WATCH_BATCH_EVENTS_MAX) => Some(batch),
                () = tokio::time::sleep_until(wake) => None,
                _ = self.stopping.wait_for(|stops| *stops) => return None,
            };
            match batch {
                Some(Ok(events)) => events.iter().for_each(|event| self.push(event)),
                Some(Err(error)) => {
                    self.is_over = true;
                    let error = store_error(error);
                    if error.code == 410 {
                        self.frames.push_back(error_frame(&error, self.is_protobuf()));
                    }
                }
                None => self.tick(),
            }
        }
    }

    fn gathered(&mut self, first: Bytes) -> Bytes {
        if self.frames.is_empty() {
            return first;
        }
        let mut out = first.to_vec();
        while out.len() < limits::LIST_CHUNK_BYTES {
            let Some(frame) = self.frames.pop_front() else { break };
            out.extend_from_slice(&frame);
        }
        Bytes::from(out)
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if now >= self.deadline {
            self.is_over = true;
            return;
        }
        if now >= self.next_bookmark {
            self.next_bookmark = now + limits::BOOKMARK_PERIOD;
            let progress = self.watcher.progress().0;
            if progress > self.last_bookmark {
                self.last_bookmark = progress;
                let frame = self.bookmark(progress, false);
                self.frames.push_back(frame);
            }
        }
    }

    /// Judges an event: an object that enters the selection is added, one that leaves it is deleted.
    fn push(&mut self, event: &Event) {
        if event.revision.0 <= self.from {
            return;
        }
        let name = split_key(&event.key, &self.resource_prefix).1;
        let is = event.current.as_ref().filter(|e| self.selection.matches(&self.call, name, e));
        let was = event.previous.as_ref().filter(|e| self.selection.matches(&self.call, name, e));
        let frame = match (was, is) {
            (None, Some(new)) => self.frame("ADDED", new, event.revision.0),
            (Some(_), Some(new)) => self.frame("MODIFIED", new, event.revision.0),
            // What is gone is shown as it was last, at the revision of its going.
            (Some(old), None) => self.frame("DELETED", old, event.revision.0),
            (None, None) => return,
        };
        match frame {
            Ok(frame) => self.frames.push_back(frame),
            Err(error) => {
                self.frames.push_back(error_frame(&error, self.is_protobuf()));
                self.is_over = true;
            }
        }
    }

    fn frame(&self, event_type: &str, entry: &Entry, revision: u64) -> Result<Bytes> {
        if self.is_protobuf() {
            let mut object = load(&self.call, entry)?;
            crate::stored::set_resource_version(&mut object, revision);
            return protobuf_frame(event_type, &self.view(object)?);
        }
        let mut out = format!("{{\"type\":\"{event_type}\",\"object\":").into_bytes();
        let is_spliced = encoding::can_splice(&self.call.def, self.call.accepted)
            && encoding::layout(&self.call.def).splice(&entry.value, revision, &mut out);
        if !is_spliced {
            let mut object = load(&self.call, entry)?;
            crate::stored::set_resource_version(&mut object, revision);
            let shown = self.view(object)?;
            serde_json::to_writer(&mut out, &shown).map_err(ApiError::internal)?;
        }
        out.extend_from_slice(b"}\n");
        Ok(Bytes::from(out))
    }

    fn is_protobuf(&self) -> bool {
        self.call.accepted.encoding == Encoding::Protobuf
    }

    fn view(&self, object: Value) -> Result<Value> {
        match self.call.accepted.view {
            View::Object => Ok(object),
            View::PartialMetadata => Ok(encoding::partial_metadata(&object)),
            View::Table => {
                let metadata = json!({ "resourceVersion": object.pointer("/metadata/resourceVersion") });
                encoding::table_of(&self.call, &[object], metadata)
            }
        }
    }

    fn bookmark(&self, revision: u64, ends_initial: bool) -> Bytes {
        let (kind, api_version) = match self.call.accepted.view {
            View::PartialMetadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
            _ => (self.call.def.kind.as_str(), self.call.def.api_version()),
        };
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if ends_initial {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let object = json!({ "kind": kind, "apiVersion": api_version, "metadata": metadata });
        if self.is_protobuf() {
            return protobuf_frame("BOOKMARK", &object).unwrap_or_default();
        }
        let mut frame = json!({ "type": "BOOKMARK", "object": object }).to_string();
        frame.push('\n');
        Bytes::from(frame)
    }
}
