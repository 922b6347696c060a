//! Fields that an endpoint resets, so that nobody comes to own them through it.

use super::element::PathElement;
use super::set::FieldSet;
use crate::registry::ResourceDef;

/// Which changes count at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All but these and what is below them: `status` at the main endpoint, `spec` at `/status`.
    Exclude(FieldSet),
    /// Only what is at or below one of these patterns; `None` stands for any element
    /// (`spec.containers.*.resources` at `/resize`).
    Include(Vec<Vec<Option<PathElement>>>),
}

impl Filter {
    /// What an endpoint of a resource resets; the resource itself is the empty subresource.
    pub fn of_endpoint(def: &ResourceDef, subresource: &str) -> Option<Filter> {
        match (def.group.as_str(), def.plural.as_str(), subresource) {
            ("", "pods", "resize") => {
                return Some(Filter::include(&[
                    &["spec", "containers", "*", "resources"],
                    &["spec", "containers", "*", "resizePolicy"],
                    &["spec", "initContainers", "*", "resources"],
                    &["spec", "initContainers", "*", "resizePolicy"],
                ]));
            }
            ("", "pods", "ephemeralcontainers") => return Some(Filter::include(&[&["spec", "ephemeralContainers"]])),
            _ => {}
        }
        let paths = def.reset_fields(subresource);
        if paths.is_empty() {
            return None;
        }
        let mut set = FieldSet::new();
        for path in paths {
            match path.as_str() {
                // All but the status: upstream knows the two usual neighbours by name.
                "*" => set.extend(FieldSet::of_fields(&[&["metadata"], &["spec"]])),
                path => set.insert(path.split('.').map(PathElement::field)),
            }
        }
        Some(Filter::Exclude(set))
    }

    /// Excludes plain field paths.
    pub fn exclude(paths: &[&[&str]]) -> Self {
        Filter::Exclude(FieldSet::of_fields(paths))
    }

    /// Includes plain field paths; `*` stands for any element.
    pub fn include(paths: &[&[&str]]) -> Self {
        let element = |name: &&str| if *name == "*" { None } else { Some(PathElement::field(*name)) };
        Filter::Include(paths.iter().map(|path| path.iter().map(element).collect()).collect())
    }

    pub(super) fn apply(&self, set: &mut FieldSet) {
        match self {
            Filter::Exclude(fields) => set.subtract_recursive(fields),
            Filter::Include(patterns) => {
                let patterns: Vec<&[Option<PathElement>]> = patterns.iter().map(Vec::as_slice).collect();
                keep(set, &patterns);
            }
        }
    }
}

fn keep(set: &mut FieldSet, patterns: &[&[Option<PathElement>]]) {
    if patterns.iter().any(|p| p.is_empty()) {
        return;
    }
    set.children.retain(|element, child| {
        let below: Vec<&[Option<PathElement>]> =
            patterns.iter().filter(|p| p[0].as_ref().is_none_or(|e| e == element)).map(|p| &p[1..]).collect();
        if below.is_empty() {
            return false;
        }
        keep(child, &below);
        !child.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn excluded_parts_go_and_only_included_ones_stay() {
        let all = FieldSet::from_json(&json!({
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:resources": {"f:limits": {}}}}},
            "f:status": {".": {}, "f:phase": {}},
        }))
        .expect("fields");
        let mut spec = all.clone();
        Filter::exclude(&[&["status"]]).apply(&mut spec);
        assert_eq!(spec.to_json().get("f:status"), None);
        let mut resize = all;
        Filter::include(&[&["spec", "containers", "*", "resources"]]).apply(&mut resize);
        assert_eq!(
            resize.to_json(),
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:resources": {"f:limits": {}}}}}})
        );
    }
}
