//! `ListOptions`: which revision, how much.

use crate::error::{ApiError, Cause, Result};
use crate::objects::too_large_revision;
use crate::request::Query;
use crate::server::Core;

/// What `resourceVersion` and `resourceVersionMatch` ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRevision {
    Newest,
    NotOlderThan(u64),
    Exact(u64),
}

/// The `resourceVersion` parameter; none and empty are the same.
pub fn revision(query: &Query) -> Result<Option<u64>> {
    match query.text("resourceVersion") {
        "" => Ok(None),
        text => text
            .parse()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("Invalid value: {text:?}: resourceVersion is not a version"))),
    }
}

/// Checks that a revision that is asked for has been reached.
pub fn not_newer(core: &Core, query: &Query) -> Result<()> {
    let current = core.objects.revision();
    match revision(query)? {
        Some(asked) if asked > current => Err(too_large_revision(asked, current)),
        _ => Ok(()),
    }
}

/// Upstream's answer to a get with a resourceVersion that is none: 500 without a reason.
pub fn of_single(error: ApiError) -> ApiError {
    if error.code == 400 { ApiError::new(500, "", error.message) } else { error }
}

fn invalid(causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)
}

fn forbidden(field: &str, why: &str) -> Cause {
    Cause::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
}

/// Checks the rules among the options of a list or watch.
pub fn validate(query: &Query, is_watch: bool) -> Result<()> {
    let mut causes = Vec::new();
    let (matching, version) = (query.text("resourceVersionMatch"), query.text("resourceVersion"));
    let sends_initial = query.get("sendInitialEvents").filter(|v| !v.is_empty());
    const FIELD: &str = "resourceVersionMatch";
    if is_watch {
        if !matching.is_empty() && sends_initial.is_none() {
            causes.push(forbidden(FIELD, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        }
        if sends_initial.is_some() {
            if matching != "NotOlderThan" {
                causes.push(forbidden(FIELD, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
            }
            if !matching.is_empty() && matching != "NotOlderThan" {
                causes.push(unsupported(matching, "\"NotOlderThan\""));
            }
        }
        return finish(causes);
    }
    if sends_initial.is_some() {
        causes.push(forbidden(FIELD, "sendInitialEvents is forbidden for list"));
        causes.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        return finish(causes);
    }
    if !matching.is_empty() {
        if !query.text("continue").is_empty() {
            causes.push(forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if version.is_empty() {
            causes.push(forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        match matching {
            "Exact" if version == "0" => {
                causes.push(forbidden(FIELD, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
            }
            "Exact" | "NotOlderThan" => {}
            other => causes.push(unsupported(other, "\"Exact\", \"NotOlderThan\", \"\"")),
        }
    }
    finish(causes)
}

fn unsupported(value: &str, supported: &str) -> Cause {
    Cause::new(
        "FieldValueNotSupported",
        "resourceVersionMatch",
        format!("Unsupported value: {value:?}: supported values: {supported}"),
    )
}

fn finish(causes: Vec<Cause>) -> Result<()> {
    if causes.is_empty() { Ok(()) } else { Err(invalid(causes)) }
}

/// Which snapshot a list without a continue token reads.
pub fn at_revision(query: &Query, limit: Option<usize>) -> Result<AtRevision> {
    Ok(match (revision(query)?, query.text("resourceVersionMatch")) {
        (None | Some(0), _) => AtRevision::Newest,
        (Some(asked), "Exact") => AtRevision::Exact(asked),
        // A page of a stated revision is of just that one, as it was before there was resourceVersionMatch.
        (Some(asked), "") if limit.is_some() => AtRevision::Exact(asked),
        (Some(asked), _) => AtRevision::NotOlderThan(asked),
    })
}
