//! The arithmetic of a rollout: how many replicas each set gets next.

use super::deployment::{DESIRED, MAX, Rollout};
use crate::action::Action;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// How many Pods a deployment wants and by how many it may stray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `spec.replicas`.
    pub wanted: i32,
    /// Pods above that.
    pub surge: i32,
    /// Pods below that.
    pub unavailable: i32,
}

/// A number or percentage of `total`.
pub(crate) fn scaled(value: &IntOrString, total: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * i64::from(total);
            (if up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }) as i32
        }
    }
}

impl Limits {
    /// Reads `replicas` and the rolling update's numbers (25 % each by default; not both 0).
    pub fn of(spec: &DeploymentSpec) -> Self {
        let wanted = spec.replicas.unwrap_or(1);
        let strategy = spec.strategy.as_ref();
        if strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate") {
            return Self { wanted, surge: 0, unavailable: 0 };
        }
        let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".into());
        let surge = scaled(rolling.and_then(|r| r.max_surge.as_ref()).unwrap_or(&quarter), wanted, true);
        let unavailable = scaled(rolling.and_then(|r| r.max_unavailable.as_ref()).unwrap_or(&quarter), wanted, false);
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(wanted) };
        Self { wanted, surge, unavailable }
    }

    /// Most Pods at any time.
    pub fn max(&self) -> i32 {
        if self.wanted == 0 { 0 } else { self.wanted + self.surge }
    }
}

/// `spec.replicas` of a set.
pub fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// Available Pods of a set.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0)
}

fn annotation(set: &ReplicaSet, key: &str) -> Option<i32> {
    set.metadata.annotations.as_ref()?.get(key)?.parse().ok()
}

/// Whether `replicas` changed since the sets were last sized.
pub(super) fn was_scaled(rollout: &Rollout<'_>) -> bool {
    let active = rollout.all().filter(|set| size(set) > 0);
    active.filter_map(|set| annotation(set, DESIRED)).any(|desired| desired != rollout.limits.wanted)
}

/// Sets a size, with the annotations that go with it.
fn resize(rollout: &Rollout<'_>, set: &ReplicaSet, to: i32) -> Vec<Action> {
    let mut changed = set.clone();
    let annotations = changed.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED.into(), rollout.limits.wanted.to_string());
    annotations.insert(MAX.into(), rollout.limits.max().to_string());
    let from = size(set);
    if let Some(spec) = &mut changed.spec {
        spec.replicas = Some(to);
    }
    if changed == *set {
        return Vec::new();
    }
    let mut actions = vec![Action::update(&changed)];
    if from != to {
        let direction = if to > from { "up" } else { "down" };
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        actions.push(Action::note(rollout.deployment, "ScalingReplicaSet", message));
    }
    actions
}

/// The deployment itself was scaled: the only active set follows, or all do in proportion.
pub(super) fn scale_all(rollout: &Rollout<'_>) -> Vec<Action> {
    let active: Vec<&Arc<ReplicaSet>> = rollout.all().filter(|set| size(set) > 0).collect();
    let limits = rollout.limits;
    match active[..] {
        [] => return rollout.new.as_ref().map(|new| resize(rollout, new, limits.wanted)).unwrap_or_default(),
        [only] => return resize(rollout, only, limits.wanted),
        _ => {}
    }
    // The new set is saturated: old ones are leftovers.
    if let Some(new) = &rollout.new
        && size(new) == limits.wanted
        && available(new) == limits.wanted
    {
        return scale_down_to_zero(rollout);
    }
    let total: i32 = active.iter().map(|set| size(set)).sum();
    let mut left = limits.max() - total;
    if rollout_is_recreate(rollout) {
        return Vec::new();
    }
    let mut order = active;
    // Larger sets first; of equal ones the newer when growing, the older when shrinking.
    let grow = left > 0;
    order.sort_by_key(|set| {
        let created = set.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second());
        (-size(set), if grow { -created } else { created })
    });
    let mut sizes = Vec::new();
    for set in &order {
        let before = annotation(set, MAX).filter(|max| *max > 0).unwrap_or(limits.wanted.max(1));
        let ideal = (f64::from(size(set)) * f64::from(limits.max()) / f64::from(before)).round() as i32;
        let change = (ideal - size(set)).clamp(left.min(0), left.max(0));
        left -= change;
        sizes.push(size(set) + change);
    }
    if let Some(first) = sizes.first_mut() {
        *first = (*first + left).max(0);
    }
    order.into_iter().zip(sizes).flat_map(|(set, to)| resize(rollout, set, to)).collect()
}

fn rollout_is_recreate(rollout: &Rollout<'_>) -> bool {
    let strategy = rollout.deployment.spec.as_ref().and_then(|s| s.strategy.as_ref());
    strategy.and_then(|s| s.type_.as_deref()) == Some("Recreate")
}

/// Old sets to nothing.
pub(super) fn scale_down_to_zero(rollout: &Rollout<'_>) -> Vec<Action> {
    rollout.old.iter().filter(|set| size(set) > 0).flat_map(|set| resize(rollout, set, 0)).collect()
}

/// The new set to a size.
pub(super) fn scale_new(rollout: &Rollout<'_>, to: i32) -> Vec<Action> {
    rollout.new.as_ref().filter(|new| size(new) != to).map(|new| resize(rollout, new, to)).unwrap_or_default()
}

/// How many replicas the new set may have beside the others.
pub(super) fn first_size(rollout: &Rollout<'_>) -> i32 {
    let own = rollout.new.as_ref().map_or(0, |new| size(new));
    let total: i32 = rollout.all().map(|set| size(set)).sum();
    let room = (rollout.limits.max() - total).max(0);
    own + room.min((rollout.limits.wanted - own).max(0))
}

/// One step of a rolling update: first up, else down.
pub(super) fn roll(rollout: &Rollout<'_>) -> Vec<Action> {
    let Some(new) = &rollout.new else { return Vec::new() };
    let wanted = rollout.limits.wanted;
    if size(new) > wanted {
        return scale_new(rollout, wanted);
    }
    let up = first_size(rollout);
    if up > size(new) {
        return scale_new(rollout, up);
    }
    shrink_old(rollout, new)
}

/// Old replicas that can go: broken ones first, then healthy ones as far as enough stay available.
fn shrink_old(rollout: &Rollout<'_>, new: &ReplicaSet) -> Vec<Action> {
    let least = rollout.limits.wanted - rollout.limits.unavailable;
    let total: i32 = rollout.all().map(|set| size(set)).sum();
    let new_unavailable = size(new) - available(new);
    let mut removable = total - least - new_unavailable;
    if removable <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i32> = rollout.old.iter().map(|set| size(set)).collect();
    for (set, left) in rollout.old.iter().zip(&mut sizes) {
        let broken = (*left - available(set)).clamp(0, removable);
        *left -= broken;
        removable -= broken;
    }
    let all_available: i32 = rollout.all().map(|set| available(set)).sum();
    let mut spare = (all_available - least).max(0);
    for left in &mut sizes {
        let cut = (*left).min(spare);
        *left -= cut;
        spare -= cut;
    }
    let changed = rollout.old.iter().zip(sizes).filter(|(set, to)| size(set) != *to);
    changed.flat_map(|(set, to)| resize(rollout, set, to)).collect()
}

/// Deletes the oldest empty sets beyond the history limit.
pub(super) fn clean_up(rollout: &Rollout<'_>, deployment: &Deployment) -> Vec<Action> {
    let Some(limit) = deployment.spec.as_ref().map(|s| s.revision_history_limit.unwrap_or(10)) else { return Vec::new() };
    let living: Vec<_> = rollout.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
    let surplus = living.len().saturating_sub(limit.max(0) as usize);
    let empty = |set: &&Arc<ReplicaSet>| {
        size(set) == 0
            && set.status.as_ref().is_none_or(|s| s.replicas == 0)
            && set.metadata.generation.unwrap_or(0) <= set.status.as_ref().and_then(|s| s.observed_generation).unwrap_or(0)
    };
    living.into_iter().take(surplus).filter(empty).map(|set| Action::delete(set.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Write;
    use serde_json::{from_value, json};

    fn deployment(replicas: i32) -> Deployment {
        from_value(json!({"metadata": {"name": "d", "namespace": "a", "uid": "u"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}}, "template": {}}}))
        .unwrap()
    }

    fn set(name: &str, replicas: i32, available: i32, desired: i32) -> Arc<ReplicaSet> {
        let max = (f64::from(desired) * 1.25).ceil() as i32;
        Arc::new(from_value(json!({"metadata": {"name": name, "namespace": "a", "annotations": {DESIRED: desired.to_string(), MAX: max.to_string()}},
            "spec": {"replicas": replicas, "selector": {}}, "status": {"replicas": replicas, "availableReplicas": available}})).unwrap())
    }

    fn sizes(actions: &[Action]) -> Vec<(String, i64)> {
        let of = |a: &Action| match a {
            Action::Write(Write { body, .. }) => {
                Some((body["metadata"]["name"].as_str()?.to_owned(), body["spec"]["replicas"].as_i64()?))
            }
            _ => None,
        };
        actions.iter().filter_map(of).collect()
    }

    fn step(wanted: i32, new: Arc<ReplicaSet>, old: Vec<Arc<ReplicaSet>>) -> Vec<(String, i64)> {
        let deployment = deployment(wanted);
        let limits = Limits::of(deployment.spec.as_ref().unwrap());
        sizes(&roll(&Rollout { deployment: &deployment, new: Some(new), old, limits }))
    }

    #[test]
    fn percentages_round_in_favour_of_progress() {
        assert_eq!(Limits::of(deployment(10).spec.as_ref().unwrap()), Limits { wanted: 10, surge: 3, unavailable: 2 });
        assert_eq!(Limits::of(deployment(1).spec.as_ref().unwrap()), Limits { wanted: 1, surge: 1, unavailable: 0 });
    }

    #[test]
    fn a_rollout_goes_up_within_the_surge_then_down_within_the_unavailability() {
        assert_eq!(step(4, set("n", 0, 0, 4), vec![set("o", 4, 4, 4)]), [("n".into(), 1)]);
        assert_eq!(step(4, set("n", 1, 0, 4), vec![set("o", 4, 4, 4)]), [("o".into(), 3)]);
        assert_eq!(step(4, set("n", 2, 0, 4), vec![set("o", 3, 3, 4)]), []);
        assert_eq!(step(4, set("n", 2, 2, 4), vec![set("o", 3, 3, 4)]), [("o".into(), 1)]);
        assert_eq!(step(4, set("n", 4, 4, 4), vec![set("o", 0, 0, 4)]), []);
    }

    #[test]
    fn broken_old_replicas_go_first() {
        assert_eq!(step(4, set("n", 1, 0, 4), vec![set("o", 4, 2, 4)]), [("o".into(), 3)]);
    }

    #[test]
    fn scaling_during_a_rollout_is_proportional() {
        let deployment = deployment(20);
        let limits = Limits::of(deployment.spec.as_ref().unwrap());
        let rollout = Rollout { deployment: &deployment, new: Some(set("n", 5, 2, 10)), old: vec![set("o", 8, 8, 10)], limits };
        assert!(was_scaled(&rollout));
        let total: i64 = sizes(&scale_all(&rollout)).iter().map(|(_, n)| n).sum();
        assert_eq!(total, 25);
    }
}
