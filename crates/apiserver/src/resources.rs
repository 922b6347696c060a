//! From a request for a resource to the code of its verb.

use std::sync::Arc;

use http::Response;

use crate::error::{ApiError, Result};
use crate::http_types::Body;
use crate::pipeline::Authorized;
use crate::pipeline::call::{Call, read_body};
use crate::server::Core;
use crate::{connect, definitions, read, write};

pub(crate) async fn serve(core: &Arc<Core>, authorized: Authorized) -> Result<Response<Body>> {
    let (call, parts, body) = Call::resolve(authorized, core.registry())?;
    if call.info.is_connect() {
        return connect::serve(core, &call, parts, body).await;
    }
    if !definitions::is_definition(&call.def) || matches!(call.info.verb.as_str(), "get" | "list" | "watch") {
        return answer(core, call, body).await;
    }
    let follow_up = call.on_row(call.def.clone(), &call.info.name, "");
    let response = answer(core, call, body).await?;
    definitions::follow(core, &follow_up).await?;
    Ok(response)
}

async fn answer(core: &Arc<Core>, call: Call, body: Body) -> Result<Response<Body>> {
    match (call.info.verb.as_str(), call.info.subresource.as_str()) {
        ("get", "" | "status" | "resize" | "ephemeralcontainers" | "approval") => read::get(core, &call).await,
        ("get", "scale") => write::scale::get(core, &call).await,
        ("update", "scale") => write::scale::update(core, &call, read_body(body).await?).await,
        ("patch", "scale") => write::scale::patch(core, &call, read_body(body).await?).await,
        ("list", _) => read::list(core, &call).await,
        ("watch", _) => read::watch(core, call).await,
        ("create", "") if is_bindings(&call) => write::binding::bind(core, &call, read_body(body).await?).await,
        ("create", "binding") => write::binding::bind(core, &call, read_body(body).await?).await,
        ("create", "eviction") => write::eviction::evict(core, &call, read_body(body).await?).await,
        ("create", "token") => write::create_virtual(core, &call, read_body(body).await?).await,
        ("create", "") => write::create(core, &call, read_body(body).await?).await,
        ("update", "" | "status" | "finalize" | "resize" | "ephemeralcontainers" | "approval") => {
            write::update(core, &call, read_body(body).await?).await
        }
        ("patch", "" | "status" | "resize" | "ephemeralcontainers" | "approval") => {
            write::patch(core, &call, read_body(body).await?).await
        }
        ("delete", "") => write::delete(core, &call, read_body(body).await?).await,
        ("deletecollection", "") => write::delete_collection(core, &call, read_body(body).await?).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn is_bindings(call: &Call) -> bool {
    call.def.group.is_empty() && call.def.plural == "bindings"
}
