//! Deletecollection: each selected object is deleted on its own.

use bytes::Bytes;
use http::Response;

use super::delete::delete_named;
use super::delete_options::DeleteOptions;
use crate::error::Result;
use crate::http_types::Body;
use crate::pipeline::call::Call;
use crate::read;
use crate::server::Core;

pub(crate) async fn delete_collection(core: &Core, call: &Call, bytes: Bytes) -> Result<Response<Body>> {
    let options = DeleteOptions::read(call, &bytes)?;
    let listing = read::gather(core, call).await?;
    for name in listing.names(call) {
        match delete_named(core, call, &name, &options).await {
            // Somebody else was faster: what was wanted has happened.
            Err(error) if error.code == 404 => {}
            outcome => drop(outcome?),
        }
    }
    // The answer is the list as it was selected, as upstream answers.
    read::list_answer(call, listing)
}
