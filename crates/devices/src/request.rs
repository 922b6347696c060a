//! What the containers of a Pod ask for.

use crate::Error;
use crate::limits;
use crate::names::resource;
use crate::pod::{Container, PodView};

/// Defaults of HAMi's device configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDefaults {
    /// Cards of a container that names memory or cores only.
    pub gpu_count: u32,
    /// MiB that one unit of `nvidia.com/gpumem` stands for.
    pub memory_factor: u64,
    /// Memory where none is named, in MiB; 0 means the whole card.
    pub memory_mib: u64,
    /// Cores where none are named.
    pub cores: u32,
}

impl Default for RequestDefaults {
    fn default() -> Self {
        Self { gpu_count: 1, memory_factor: 1, memory_mib: 0, cores: 0 }
    }
}

/// Memory wanted of each card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A fixed amount.
    Mib(u64),
    /// 1 to 100 percent of whatever card it becomes.
    Percent(u32),
}

impl Memory {
    /// In MiB, on a card with `total_mib`.
    pub fn on_card(self, total_mib: u64) -> u64 {
        match self {
            Self::Mib(mib) => mib,
            Self::Percent(percent) => total_mib.saturating_mul(u64::from(percent)) / 100,
        }
    }
}

/// What one container wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Number of cards; a container never gets two slices of one card.
    pub count: u32,
    /// Memory of each card.
    pub memory: Memory,
    /// Percent of each card's compute; 0 is unlimited and not accounted.
    pub cores: u32,
}

/// When a container runs, which decides what it can share slices with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that keeps running (`restartPolicy: Always`).
    Sidecar,
    /// Runs beside the others.
    App,
}

/// A container in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerClaim {
    /// Name.
    pub name: String,
    /// When it runs.
    pub role: Role,
    /// What it wants; `None` for a container without cards.
    pub request: Option<ContainerRequest>,
}

/// What a Pod wants: init containers first, then the others, as in the annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRequest {
    /// One entry a container.
    pub containers: Vec<ContainerClaim>,
}

impl PodRequest {
    /// Reads the wishes of `pod`; `None` if no container has any.
    ///
    /// Unlike HAMi, which takes a negative, fractional or huge value for 'no GPU wanted' and lets the Pod pass unlimited,
    /// this refuses it.
    pub fn of_pod(pod: &PodView, defaults: &RequestDefaults) -> Result<Option<Self>, Error> {
        let mut containers = Vec::with_capacity(pod.spec.init_containers.len() + pod.spec.containers.len());
        for container in &pod.spec.init_containers {
            let role = if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init };
            containers.push(claim(container, role, defaults)?);
        }
        for container in &pod.spec.containers {
            containers.push(claim(container, Role::App, defaults)?);
        }
        let any = containers.iter().any(|container| container.request.is_some());
        Ok(any.then_some(Self { containers }))
    }

    /// Most cards that one container wants.
    pub fn cards_max(&self) -> u32 {
        self.containers.iter().filter_map(|c| c.request).map(|request| request.count).max().unwrap_or(0)
    }
}

fn claim(container: &Container, role: Role, defaults: &RequestDefaults) -> Result<ContainerClaim, Error> {
    Ok(ContainerClaim { name: container.name.clone(), role, request: of_container(container, defaults)? })
}

/// Whether the container names any of HAMi's resources, whatever the value.
pub fn names_any(container: &Container) -> bool {
    let mut keys = container.resources.limits.keys().chain(container.resources.requests.keys());
    keys.any(|name| resource::is_managed(name))
}

/// The value of a resource, from limits, else from requests.
pub fn value(container: &Container, name: &'static str) -> Result<Option<i64>, Error> {
    let resources = &container.resources;
    let Some(amount) = resources.limits.get(name).or_else(|| resources.requests.get(name)) else { return Ok(None) };
    let problem = |problem: &str| Error::Resource { container: container.name.clone(), resource: name, problem: problem.into() };
    let value = amount.whole().ok_or_else(|| problem("is no whole number"))?;
    if value < 0 {
        return Err(problem("is negative"));
    }
    if value > limits::RESOURCE_VALUE_MAX {
        return Err(problem("is larger than 2147483647"));
    }
    Ok(Some(value))
}

/// What `container` wants. A container that names memory, percent or cores without a count wants the default count, as
/// the webhook writes it, so that a Pod that came past the webhook is read alike.
pub fn of_container(container: &Container, defaults: &RequestDefaults) -> Result<Option<ContainerRequest>, Error> {
    let memory = value(container, resource::MEMORY)?;
    let percent = value(container, resource::MEMORY_PERCENTAGE)?;
    let cores = value(container, resource::CORES)?;
    let count = match value(container, resource::GPU)? {
        Some(count) => small(count),
        None if memory.is_some() || percent.is_some() || cores.is_some() => defaults.gpu_count,
        None => 0,
    };
    if count == 0 {
        return Ok(None);
    }
    let memory = match (memory.unwrap_or(0), percent.unwrap_or(0)) {
        (mib @ 1.., _) => Memory::Mib(u64::from(small(mib)).saturating_mul(defaults.memory_factor.max(1))),
        (_, percent @ 1..) => Memory::Percent(small(percent).min(100)),
        _ if defaults.memory_mib > 0 => Memory::Mib(defaults.memory_mib),
        _ => Memory::Percent(100),
    };
    // HAMi clamps cores to a whole card.
    let cores = cores.map_or(defaults.cores, small).min(100);
    Ok(Some(ContainerRequest { count, memory, cores }))
}

fn small(value: i64) -> u32 {
    u32::try_from(value).expect("value() lets through 0 to i32::MAX only")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(limits: &serde_json::Value) -> Container {
        serde_json::from_value(json!({"name": "c", "resources": {"limits": limits}})).unwrap()
    }

    fn read(limits: serde_json::Value) -> Result<Option<ContainerRequest>, Error> {
        of_container(&container(&limits), &RequestDefaults::default())
    }

    #[test]
    fn memory_wins_over_percent_and_nothing_means_the_whole_card() {
        let request = |memory, cores| Some(ContainerRequest { count: 1, memory, cores });
        assert_eq!(
            read(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "4k", "nvidia.com/gpucores": "30"})),
            Ok(request(Memory::Mib(4000), 30))
        );
        assert_eq!(
            read(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10, "nvidia.com/gpumem-percentage": 50})),
            Ok(request(Memory::Mib(10), 0))
        );
        assert_eq!(
            read(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": 150})),
            Ok(request(Memory::Percent(100), 0))
        );
        assert_eq!(read(json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": 0})), Ok(request(Memory::Percent(100), 0)));
        assert_eq!(read(json!({"nvidia.com/gpu": "1"})), Ok(request(Memory::Percent(100), 0)));
        assert_eq!(read(json!({"nvidia.com/gpumem": "500"})), Ok(request(Memory::Mib(500), 0)));
        assert_eq!(read(json!({"nvidia.com/gpu": "0"})), Ok(None));
        assert_eq!(read(json!({"cpu": "1"})), Ok(None));
    }

    #[test]
    fn cores_over_a_hundred_are_clamped() {
        assert_eq!(read(json!({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 120})).unwrap().unwrap().cores, 100);
    }

    #[test]
    fn a_value_that_is_no_count_is_refused_and_never_means_no_gpu() {
        for value in ["-1", "500m", "many", "2147483648"] {
            let error = read(json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": value})).unwrap_err();
            assert!(error.to_string().starts_with("container \"c\": nvidia.com/gpumem: "), "{error}");
        }
    }

    #[test]
    fn requests_serve_where_limits_are_silent() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "resources": {"requests": {"nvidia.com/gpu": 2}}})).unwrap();
        assert_eq!(of_container(&container, &RequestDefaults::default()).unwrap().unwrap().count, 2);
        assert!(names_any(&container));
    }

    #[test]
    fn the_memory_factor_scales() {
        let defaults = RequestDefaults { memory_factor: 256, ..RequestDefaults::default() };
        let request =
            of_container(&container(&json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4})), &defaults).unwrap().unwrap();
        assert_eq!(request.memory, Memory::Mib(1024));
    }

    #[test]
    fn init_containers_come_first_and_sidecars_are_told_apart() {
        let pod: PodView = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "app", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
        }}))
        .unwrap();
        let request = PodRequest::of_pod(&pod, &RequestDefaults::default()).unwrap().unwrap();
        let roles: Vec<_> = request.containers.iter().map(|c| (c.name.as_str(), c.role, c.request.is_some())).collect();
        assert_eq!(roles, [("i", Role::Init, false), ("s", Role::Sidecar, false), ("app", Role::App, true)]);
    }
}
