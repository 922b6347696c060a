//! What a refused apply tells its user.

use super::element::PathElement;
use super::managed::ManagerId;
use super::set::{FieldSet, path_text};

/// One field that another manager owns with another value: a cause of the `Conflict` status, reason `FieldManagerConflict`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: ManagerId,
    pub path: Vec<PathElement>,
}

/// `reason` of each cause.
pub const CONFLICT_REASON: &str = "FieldManagerConflict";

impl Conflict {
    /// `message` of the cause.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    /// `field` of the cause.
    pub fn field(&self) -> String {
        path_text(&self.path)
    }

    pub(super) fn list(sets: Vec<(ManagerId, FieldSet)>) -> Vec<Conflict> {
        let of = |(manager, set): (ManagerId, FieldSet)| {
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path }).collect::<Vec<_>>()
        };
        sets.into_iter().flat_map(of).collect()
    }
}

/// `message` of the status.
pub fn conflicts_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: {}: {}", one.message(), one.field());
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.field()));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
