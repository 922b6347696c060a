//! The webhook's verdict on one Pod: pure, in HAMi's order.
//!
//! Two things are stricter than HAMi. Bookkeeping annotations are taken from the scheduler and the plugins alone (HAMi
//! issue 3041), also on Pods that are otherwise left alone; and a wish that cannot be followed is refused here instead of
//! being read as another one (issues 2862, 2995).

use std::collections::BTreeSet;

use atoll_devices::names::{IGNORE_LABEL, annotation, resource};
use atoll_devices::pod::{Container, PodView};
use atoll_devices::request::{self, PodRequest};
use atoll_devices::{RequestDefaults, Selection};
use serde_json::{Value, json};

/// What the webhook is configured with.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Name that GPU Pods get as their scheduler.
    pub scheduler_name: String,
    /// Whether a Pod with `default-scheduler`, which is what the API server fills in, is taken over.
    pub force_overwrite_default_scheduler: bool,
    /// Whether containers without cards are told to see none.
    pub overwrite_env: bool,
    /// Runtime class for GPU Pods that name none.
    pub runtime_class: Option<String>,
    /// `GPU_CORE_UTILIZATION_POLICY` for GPU containers, if not the default.
    pub core_policy: Option<String>,
    /// Users that may write bookkeeping annotations.
    pub trusted_users: BTreeSet<String>,
    /// Defaults of requests.
    pub defaults: RequestDefaults,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            scheduler_name: atoll_devices::names::SCHEDULER.to_owned(),
            force_overwrite_default_scheduler: true,
            overwrite_env: false,
            runtime_class: None,
            core_policy: None,
            trusted_users: ["hami-scheduler", "hami-device-plugin"]
                .map(|name| format!("system:serviceaccount:kube-system:{name}"))
                .into(),
            defaults: RequestDefaults::default(),
        }
    }
}

/// What happens to the Pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It passes, changed by these JSON patch operations (none: unchanged).
    Allow {
        /// Operations.
        patch: Vec<Value>,
        /// Told to the user.
        warnings: Vec<String>,
    },
    /// It is refused.
    Deny {
        /// HTTP code of the refusal.
        code: u16,
        /// Why.
        message: String,
    },
}

impl Verdict {
    fn deny(message: impl Into<String>) -> Self {
        Self::Deny { code: 403, message: message.into() }
    }
}

/// Judges a Pod that `user` creates.
pub fn on_create(raw: &Value, user: &str, rules: &Rules) -> Verdict {
    let pod = match PodView::from_json(raw) {
        Ok(pod) => pod,
        Err(error) => return Verdict::Deny { code: 400, message: format!("cannot read the pod: {error}") },
    };
    let mut edit = Edit::default();
    if !rules.trusted_users.contains(user) {
        strip_bookkeeping(&pod, &mut edit);
    }
    if pod.spec.containers.is_empty() {
        return Verdict::deny("pod has no containers");
    }
    if is_left_alone(&pod, rules) {
        return edit.allow();
    }
    match devices(&pod, raw, rules, &mut edit) {
        Ok(()) => edit.allow(),
        Err(refusal) => refusal,
    }
}

/// Judges a change of a Pod by `user`: bookkeeping stays as it is, unless a trusted user writes it.
pub fn on_update(old: &Value, new: &Value, user: &str, rules: &Rules) -> Verdict {
    if rules.trusted_users.contains(user) {
        return Edit::default().allow();
    }
    let annotations = |pod: &Value| pod["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let (old, new) = (annotations(old), annotations(new));
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let changed: Vec<&str> = keys
        .into_iter()
        .filter(|key| annotation::is_bookkeeping(key) && old.get(*key) != new.get(*key))
        .map(String::as_str)
        .collect();
    if changed.is_empty() {
        return Edit::default().allow();
    }
    Verdict::deny(format!("{} may be changed by the scheduler and the device plugins only", changed.join(", ")))
}

/// HAMi leaves Pods alone that another scheduler places, and those with the label `hami.io/webhook: ignore`.
fn is_left_alone(pod: &PodView, rules: &Rules) -> bool {
    let name = pod.spec.scheduler_name.as_str();
    let taken_over = name.is_empty()
        || name == rules.scheduler_name
        || (name == "default-scheduler" && rules.force_overwrite_default_scheduler);
    let ignored = pod.metadata.labels.get(IGNORE_LABEL.0).map(String::as_str) == Some(IGNORE_LABEL.1);
    !taken_over || ignored
}

fn devices(pod: &PodView, raw: &Value, rules: &Rules, edit: &mut Edit) -> Result<(), Verdict> {
    let mut any = false;
    for (list, containers) in [("initContainers", &pod.spec.init_containers), ("containers", &pod.spec.containers)] {
        for (at, container) in containers.iter().enumerate() {
            let path = format!("/spec/{list}/{at}");
            any |= one_container(container, &raw["spec"][list][at], &path, rules, edit)?;
        }
    }
    if !any {
        return Ok(());
    }
    if pod.spec.init_containers.iter().chain(&pod.spec.containers).any(is_privileged) {
        return Err(Verdict::deny("a privileged container sees every card, so a pod that shares cards may have none"));
    }
    if !pod.spec.node_name.is_empty() {
        return Err(Verdict::deny("pod has node assigned"));
    }
    let readable = Selection::of_pod(pod).map(drop).and_then(|()| PodRequest::of_pod(pod, &rules.defaults).map(drop));
    readable.map_err(|error| Verdict::Deny { code: 422, message: error.to_string() })?;
    warn_of_resources_in_annotations(pod, edit);
    if pod.spec.scheduler_name != rules.scheduler_name {
        edit.set("/spec/schedulerName", json!(rules.scheduler_name));
    }
    if let (None, Some(class)) = (&pod.spec.runtime_class_name, &rules.runtime_class) {
        edit.set("/spec/runtimeClassName", json!(class));
    }
    Ok(())
}

fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|context| context.privileged).unwrap_or(false)
}

/// HAMi's mutation of one container; says whether it wants cards.
fn one_container(container: &Container, raw: &Value, path: &str, rules: &Rules, edit: &mut Edit) -> Result<bool, Verdict> {
    let value = |name| request::value(container, name).map_err(|e| Verdict::Deny { code: 422, message: e.to_string() });
    let percent = value(resource::MEMORY_PERCENTAGE)?;
    if percent.is_some_and(|percent| !(0..=100).contains(&percent)) {
        let message = format!("container {:?}: {} must be from 0 to 100", container.name, resource::MEMORY_PERCENTAGE);
        return Err(Verdict::Deny { code: 500, message });
    }
    let mut env = Vec::new();
    if let Some(priority) = value(resource::PRIORITY)? {
        env.push(("CUDA_TASK_PRIORITY", priority.to_string()));
    }
    let (count, memory, cores) = (value(resource::GPU)?, value(resource::MEMORY)?, value(resource::CORES)?);
    let mut limits = Vec::new();
    let wants = match count {
        Some(count) => {
            let whole_card = percent == Some(100) || (memory.is_none() && percent.is_none());
            if count > 0 && cores.is_none() && whole_card {
                limits.push((resource::CORES, 100));
            }
            count > 0
        }
        None if memory.is_some() || cores.is_some() || percent.is_some() => {
            limits.push((resource::GPU, rules.defaults.gpu_count));
            true
        }
        None => false,
    };
    if let (true, Some(policy)) = (wants, &rules.core_policy) {
        env.push(("GPU_CORE_UTILIZATION_POLICY", policy.clone()));
    }
    if !wants && rules.overwrite_env {
        env.push(("NVIDIA_VISIBLE_DEVICES", "none".to_owned()));
    }
    edit.add_env(raw, path, &env);
    edit.add_limits(raw, path, &limits);
    Ok(wants)
}

fn strip_bookkeeping(pod: &PodView, edit: &mut Edit) {
    let keys: Vec<&String> = pod.metadata.annotations.keys().filter(|key| annotation::is_bookkeeping(key)).collect();
    for key in keys {
        edit.patch.push(json!({"op": "remove", "path": format!("/metadata/annotations/{}", escape(key))}));
        edit.warnings.push(format!("annotation {key} was removed: the scheduler and the device plugins write it"));
    }
}

/// HAMi issue 2862: resources as annotations look as if they worked.
fn warn_of_resources_in_annotations(pod: &PodView, edit: &mut Edit) {
    for key in pod.metadata.annotations.keys().filter(|key| resource::is_managed(key)) {
        edit.warnings.push(format!("annotation {key} has no effect; write it into the container's resource limits"));
    }
}

/// JSON patch under construction.
#[derive(Default)]
struct Edit {
    patch: Vec<Value>,
    warnings: Vec<String>,
}

impl Edit {
    fn allow(self) -> Verdict {
        Verdict::Allow { patch: self.patch, warnings: self.warnings }
    }

    fn set(&mut self, path: impl Into<String>, value: Value) {
        self.patch.push(json!({"op": "add", "path": path.into(), "value": value}));
    }

    fn add_env(&mut self, raw: &Value, path: &str, env: &[(&str, String)]) {
        let present = raw["env"].as_array();
        let set_by_user = |name: &str| present.is_some_and(|env| env.iter().any(|var| var["name"] == name));
        let missing: Vec<Value> = env
            .iter()
            .filter(|(name, _)| !set_by_user(name))
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        if present.is_none() && !missing.is_empty() {
            self.set(format!("{path}/env"), Value::Array(missing));
            return;
        }
        for var in missing {
            self.set(format!("{path}/env/-"), var);
        }
    }

    /// Adds limits, and requests where the container has some: for extended resources both must be equal.
    fn add_limits(&mut self, raw: &Value, path: &str, limits: &[(&str, u32)]) {
        if limits.is_empty() {
            return;
        }
        let present = |field: &str| raw["resources"][field].is_object();
        if !raw["resources"].is_object() {
            self.set(format!("{path}/resources"), json!({}));
        }
        if !present("limits") {
            self.set(format!("{path}/resources/limits"), json!({}));
        }
        for (name, value) in limits {
            for field in ["limits", "requests"] {
                if field == "limits" || present("requests") {
                    self.set(format!("{path}/resources/{field}/{}", escape(name)), json!(value.to_string()));
                }
            }
        }
    }
}

/// A JSON pointer token.
fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = "jane";
    const SCHEDULER: &str = "system:serviceaccount:kube-system:hami-scheduler";

    fn pod(limits: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"limits": limits}}]}})
    }

    /// The Pod after the webhook, or the refusal.
    fn admit(mut pod: Value) -> Result<Value, String> {
        match on_create(&pod, USER, &Rules::default()) {
            Verdict::Allow { patch, .. } => {
                let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
                json_patch::patch(&mut pod, &patch).unwrap();
                Ok(pod)
            }
            Verdict::Deny { message, .. } => Err(message),
        }
    }

    fn limits(pod: &Value) -> &Value {
        &pod["spec"]["containers"][0]["resources"]["limits"]
    }

    #[test]
    fn a_fraction_gets_the_scheduler_and_nothing_else() {
        let before = pod(&json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "30"}));
        let mut expected = before.clone();
        expected["spec"]["schedulerName"] = json!("hami-scheduler");
        assert_eq!(admit(before), Ok(expected));
    }

    #[test]
    fn pods_without_containers_or_with_a_node_are_refused() {
        assert_eq!(admit(json!({"spec": {"containers": []}})), Err("pod has no containers".into()));
        let mut assigned = pod(&json!({"nvidia.com/gpu": 1}));
        assigned["spec"]["nodeName"] = json!("n");
        assert_eq!(admit(assigned), Err("pod has node assigned".into()));
        let mut no_device = pod(&json!({"cpu": 1}));
        no_device["spec"]["nodeName"] = json!("n");
        assert_eq!(admit(no_device.clone()), Ok(no_device));
    }

    #[test]
    fn pods_of_another_scheduler_or_with_the_ignore_label_are_left_alone() {
        let mut other = pod(&json!({"nvidia.com/gpu": 1}));
        other["spec"]["schedulerName"] = json!("volcano");
        assert_eq!(admit(other.clone()), Ok(other));
        let mut ignored = pod(&json!({"nvidia.com/gpu": 1}));
        ignored["metadata"]["labels"] = json!({"hami.io/webhook": "ignore"});
        assert_eq!(admit(ignored.clone()), Ok(ignored));
    }

    #[test]
    fn a_privileged_container_beside_a_gpu_container_is_refused() {
        let mut pod = pod(&json!({"nvidia.com/gpu": 1}));
        pod["spec"]["initContainers"] = json!([{"name": "i", "securityContext": {"privileged": true}}]);
        assert!(admit(pod).unwrap_err().contains("privileged"));
    }

    #[test]
    fn memory_alone_means_one_card() {
        assert_eq!(limits(&admit(pod(&json!({"nvidia.com/gpumem": "500"}))).unwrap())["nvidia.com/gpu"], "1");
        let mut with_requests = pod(&json!({"nvidia.com/gpumem": "500"}));
        with_requests["spec"]["containers"][0]["resources"]["requests"] = json!({"nvidia.com/gpumem": "500"});
        let admitted = admit(with_requests).unwrap();
        assert_eq!(admitted["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"], "1");
    }

    #[test]
    fn a_whole_card_gets_all_cores() {
        let cores = |request: Value| limits(&admit(pod(&request)).unwrap()).get("nvidia.com/gpucores").cloned();
        assert_eq!(cores(json!({"nvidia.com/gpu": 1})), Some(json!("100")));
        assert_eq!(cores(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 100})), Some(json!("100")));
        assert_eq!(cores(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50})), None);
        assert_eq!(cores(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 50})), None);
        assert_eq!(cores(json!({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 70})), Some(json!(70)));
    }

    #[test]
    fn percent_beyond_a_hundred_and_unreadable_wishes_are_errors() {
        assert!(admit(pod(&json!({"nvidia.com/gpumem-percentage": 101}))).unwrap_err().contains("from 0 to 100"));
        for percent in [0, 100] {
            assert!(admit(pod(&json!({"nvidia.com/gpumem-percentage": percent}))).is_ok());
        }
        assert!(admit(pod(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "half"}))).unwrap_err().contains("whole number"));
        let mut policy = pod(&json!({"nvidia.com/gpu": 1}));
        policy["metadata"]["annotations"] = json!({"hami.io/gpu-scheduler-policy": "binpak"});
        assert!(admit(policy).unwrap_err().contains("unknown card policy"));
    }

    #[test]
    fn priority_and_empty_visibility_become_environment() {
        let admitted = admit(pod(&json!({"nvidia.com/gpu": 1, "nvidia.com/priority": 0}))).unwrap();
        assert_eq!(admitted["spec"]["containers"][0]["env"], json!([{"name": "CUDA_TASK_PRIORITY", "value": "0"}]));
        let rules = Rules { overwrite_env: true, ..Rules::default() };
        let mut cpu = pod(&json!({}));
        cpu["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
        let Verdict::Allow { patch, .. } = on_create(&cpu, USER, &rules) else { panic!("refused") };
        assert_eq!(
            patch,
            [json!({"op": "add", "path": "/spec/containers/0/env/-",
            "value": {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}})]
        );
    }

    #[test]
    fn bookkeeping_is_stripped_from_strangers_whatever_their_scheduler() {
        let forged = |scheduler: &str| {
            let mut pod = pod(&json!({"cpu": 1}));
            pod["spec"]["schedulerName"] = json!(scheduler);
            pod["metadata"]["annotations"] =
                json!({"hami.io/vgpu-devices-allocated": "x", "hami.io/gpu-scheduler-policy": "binpack", "a": "b"});
            pod
        };
        for scheduler in ["volcano", "default-scheduler"] {
            let kept = json!({"hami.io/gpu-scheduler-policy": "binpack", "a": "b"});
            assert_eq!(admit(forged(scheduler)).unwrap()["metadata"]["annotations"], kept);
        }
        let trusted = on_create(&forged("volcano"), SCHEDULER, &Rules::default());
        assert_eq!(trusted, Verdict::Allow { patch: vec![], warnings: vec![] });
    }

    #[test]
    fn only_scheduler_and_plugins_change_bookkeeping() {
        let with = |value: &str| json!({"metadata": {"annotations": {"hami.io/vgpu-node": value, "hami.io/node-scheduler-policy": value}}});
        let rules = Rules::default();
        let Verdict::Deny { message, .. } = on_update(&with("a"), &with("b"), USER, &rules) else { panic!("allowed") };
        assert!(message.starts_with("hami.io/vgpu-node may be"), "{message}");
        assert!(matches!(on_update(&with("a"), &json!({}), USER, &rules), Verdict::Deny { .. }));
        assert!(matches!(on_update(&with("a"), &with("b"), SCHEDULER, &rules), Verdict::Allow { .. }));
        assert!(matches!(on_update(&with("a"), &with("a"), USER, &rules), Verdict::Allow { .. }));
    }
}
