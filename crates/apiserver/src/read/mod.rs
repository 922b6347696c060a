//! Reads: get, list, watch.

mod cursor;
mod list;
mod options;
mod selection;
mod watch;

use http::Response;
use serde_json::Value;

pub(crate) use list::{gather, list, list_answer};
pub(crate) use selection::Selection;
pub(crate) use watch::watch;

use crate::error::Result;
use crate::http_types::{Body, JSON, answer};
use crate::pipeline::call::Call;
use crate::server::Core;
use crate::{convert, encoding, stored, strategy};

/// An object as requests of this row see it.
pub(crate) fn load(call: &Call, entry: &atoll_store::Entry) -> Result<Value> {
    let object = convert::from_storage(&call.registry, &call.def, stored::from_stored(&entry.value, entry.mod_revision.0)?);
    // What was stored under an older definition is pruned and defaulted by the current one.
    if call.def.is_custom() { strategy::canonical(&call.def, object) } else { Ok(object) }
}

/// One object.
pub(crate) async fn get(core: &Core, call: &Call) -> Result<Response<Body>> {
    options::not_newer(core, &call.query).map_err(options::of_single)?;
    let entry = core.objects.get(&call.key(&call.info.name)).await?.ok_or_else(|| call.not_found())?;
    if encoding::can_splice(&call.def, call.accepted) && !call.query.flag("pretty") {
        let mut out = Vec::new();
        if encoding::layout(&call.def).splice(&entry.value, entry.mod_revision.0, &mut out) {
            out.push(b'\n');
            return Ok(answer(200, JSON, out));
        }
    }
    encoding::object_answer(call, 200, &load(call, &entry)?)
}
