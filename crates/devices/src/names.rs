//! HAMi's names: resources, annotation keys, words in annotations. Facts of its interface, spelled once.

/// Extended resources.
pub mod resource {
    /// Number of cards of which a slice is wanted.
    pub const GPU: &str = "nvidia.com/gpu";
    /// MiB (times the memory factor) of each card.
    pub const MEMORY: &str = "nvidia.com/gpumem";
    /// Percent of each card's memory.
    pub const MEMORY_PERCENTAGE: &str = "nvidia.com/gpumem-percentage";
    /// Percent of each card's compute.
    pub const CORES: &str = "nvidia.com/gpucores";
    /// Priority at run time, 0 high, 1 low; known to the runtime only.
    pub const PRIORITY: &str = "nvidia.com/priority";

    /// All of them.
    pub const ALL: [&str; 5] = [GPU, MEMORY, MEMORY_PERCENTAGE, CORES, PRIORITY];

    /// Whether `name` is a resource that HAMi's components give a meaning to.
    pub fn is_managed(name: &str) -> bool {
        ALL.contains(&name)
    }
}

/// Annotations that Pods and Nodes carry.
pub mod annotation {
    /// Prefix of HAMi's own keys.
    pub const PREFIX: &str = "hami.io/";

    /// Node: its cards.
    pub const NODE_REGISTER: &str = "hami.io/node-nvidia-register";
    /// Node: comma-separated UUIDs that take no further Pods.
    pub const NODE_CORDON: &str = "hami.io/device-cordon";
    /// Node: the lock of older HAMi device plugins.
    pub const NODE_LOCK: &str = "hami.io/mutex.lock";

    /// Pod (annotation and label): node that was chosen.
    pub const VGPU_NODE: &str = "hami.io/vgpu-node";
    /// Pod: Unix seconds of the decision.
    pub const VGPU_TIME: &str = "hami.io/vgpu-time";
    /// Pod: slices that a plugin has still to hand out.
    pub const TO_ALLOCATE: &str = "hami.io/vgpu-devices-to-allocate";
    /// Pod: slices that were decided.
    pub const ALLOCATED: &str = "hami.io/vgpu-devices-allocated";
    /// Pod: one of [`super::phase`].
    pub const BIND_PHASE: &str = "hami.io/bind-phase";
    /// Pod: Unix seconds of the binding.
    pub const BIND_TIME: &str = "hami.io/bind-time";
    /// Pod: MIG instances.
    pub const MIG_ALLOCATIONS: &str = "hami.io/vgpu-mig-allocations";

    /// Pod, set by users: order among nodes.
    pub const NODE_POLICY: &str = "hami.io/node-scheduler-policy";
    /// Pod, set by users: order among the cards of a node.
    pub const CARD_POLICY: &str = "hami.io/gpu-scheduler-policy";
    /// Pod, set by users: weights of slots, cores and memory in the order among cards.
    pub const WEIGHTS: &str = "hami.io/device-scoring-weights";
    /// Pod, set by users: card types to use.
    pub const USE_TYPE: &str = "nvidia.com/use-gputype";
    /// Pod, set by users: card types not to use.
    pub const NO_USE_TYPE: &str = "nvidia.com/nouse-gputype";
    /// Pod, set by users: cards to use.
    pub const USE_UUID: &str = "nvidia.com/use-gpuuuid";
    /// Pod, set by users: cards not to use.
    pub const NO_USE_UUID: &str = "nvidia.com/nouse-gpuuuid";
    /// Pod, set by users: all cards of a container on one NUMA node.
    pub const NUMA_BIND: &str = "nvidia.com/numa-bind";
    /// Pod, set by users: how a card is shared.
    pub const MODE: &str = "nvidia.com/vgpu-mode";

    /// `hami.io/` keys that users set; the others are bookkeeping.
    pub const USER: [&str; 3] = [NODE_POLICY, CARD_POLICY, WEIGHTS];

    /// Bookkeeping of scheduler and plugins, which nobody else may write (HAMi issue 3041).
    pub fn is_bookkeeping(key: &str) -> bool {
        key.starts_with(PREFIX) && !USER.contains(&key)
    }
}

/// Values of [`annotation::BIND_PHASE`].
pub mod phase {
    /// Bound, nothing handed out yet.
    pub const ALLOCATING: &str = "allocating";
    /// Everything handed out.
    pub const SUCCESS: &str = "success";
    /// A plugin could not hand out.
    pub const FAILED: &str = "failed";
}

/// The label by which an object or a namespace is left alone: `hami.io/webhook: ignore`.
pub const IGNORE_LABEL: (&str, &str) = ("hami.io/webhook", "ignore");
/// Name of the scheduler that places GPU Pods.
pub const SCHEDULER: &str = "hami-scheduler";
/// The vendor's word in a Pod's allocation.
pub const VENDOR: &str = "NVIDIA";

/// Declares a string type that names one kind of thing.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// Name of a Node object.
    NodeName
);
name!(
    /// `metadata.uid` of a Pod.
    PodUid
);
name!(
    /// UUID of a card, `GPU-…`.
    DeviceUuid
);
