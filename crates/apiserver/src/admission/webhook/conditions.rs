//! Match conditions: CEL expressions that decide whether a webhook is called.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::config::Webhook;
use crate::admission::Attributes;
use crate::limits;

/// Compiled expressions, by their text.
#[derive(Default)]
pub(super) struct Conditions {
    compiled: Mutex<HashMap<String, Arc<cel::Program>>>,
}

impl Conditions {
    /// Whether all conditions are true. One that is false settles it even beside errors; an error counts only when none is false
    /// (as upstream does it).
    pub(super) fn hold(&self, webhook: &Webhook, attributes: &Attributes) -> Result<bool, String> {
        if webhook.match_conditions.is_empty() {
            return Ok(true);
        }
        let context = context(attributes).map_err(|why| format!("match conditions cannot be evaluated: {why}"))?;
        let mut failure = None;
        for condition in &webhook.match_conditions {
            let outcome = self.program(&condition.expression).and_then(|program| {
                let value = program.execute(&context).map_err(|e| e.to_string())?;
                match value {
                    cel::Value::Bool(hold) => Ok(hold),
                    other => Err(format!("it is {other:?}, not a bool")),
                }
            });
            match outcome {
                Ok(false) => return Ok(false),
                Ok(true) => {}
                Err(why) => failure = failure.or(Some(format!("match condition {:?}: {why}", condition.name))),
            }
        }
        failure.map_or(Ok(true), Err)
    }

    fn program(&self, expression: &str) -> Result<Arc<cel::Program>, String> {
        let mut compiled = self.compiled.lock();
        if let Some(program) = compiled.get(expression) {
            return Ok(program.clone());
        }
        let program = Arc::new(cel::Program::compile(expression).map_err(|e| e.to_string())?);
        if compiled.len() >= limits::COMPILED_CONDITIONS_MAX {
            compiled.clear();
        }
        compiled.insert(expression.to_owned(), program.clone());
        Ok(program)
    }
}

fn context(attributes: &Attributes) -> Result<cel::Context<'static, 'static>, String> {
    let mut context = cel::Context::default();
    let variables = [
        ("object", attributes.object.clone()),
        ("oldObject", attributes.old.as_deref().cloned().unwrap_or(Value::Null)),
        ("request", request(attributes)),
    ];
    for (name, value) in variables {
        let value = cel::to_value(&value).map_err(|e| e.to_string())?;
        context.add_variable_from_value(name, value);
    }
    Ok(context)
}

/// The `request` variable: an AdmissionRequest without its objects.
fn request(attributes: &Attributes) -> Value {
    json!({
        "kind": { "group": attributes.kind.group, "version": attributes.kind.version, "kind": attributes.kind.kind },
        "resource": { "group": attributes.group, "version": attributes.version, "resource": attributes.resource },
        "subResource": attributes.subresource,
        "name": attributes.name,
        "namespace": attributes.namespace,
        "operation": attributes.operation.as_str(),
        "userInfo": {
            "username": attributes.user.name, "uid": attributes.user.uid,
            "groups": attributes.user.groups, "extra": attributes.user.extra,
        },
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    })
}
