//! What was decided for a Pod, and its encoding in `hami.io/vgpu-devices-to-allocate` and `-allocated`.
//!
//! `UUID,TYPE,memMiB,cores:` is a slice and `;` ends a container, so a container without slices is a lone `;`. Older
//! writers put `,,0,0:;` there (HAMi issue 991) or nothing at all (issue 2899): both are read, neither is written.

use std::collections::BTreeMap;

use crate::fit::Usage;
use crate::names::{DeviceUuid, VENDOR};
use crate::request::{PodRequest, Role};
use crate::{Error, limits};

/// A part of one card, for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The card.
    pub uuid: DeviceUuid,
    /// The vendor's word.
    pub kind: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Percent of compute; 0 is unlimited.
    pub cores: u32,
}

impl Slice {
    /// A slice of an NVIDIA card.
    pub fn new(uuid: DeviceUuid, memory_mib: u64, cores: u32) -> Self {
        Self { uuid, kind: VENDOR.to_owned(), memory_mib, cores }
    }

    fn usage(&self) -> Usage {
        Usage { slots: 1, memory_mib: self.memory_mib, cores: self.cores }
    }
}

/// The slices of a Pod: one entry a container, init containers first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// One entry a container.
    pub containers: Vec<Vec<Slice>>,
}

impl Allocation {
    /// As the annotation's value.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for container in &self.containers {
            for slice in container {
                text.push_str(&format!("{},{},{},{}:", slice.uuid, slice.kind, slice.memory_mib, slice.cores));
            }
            text.push(';');
        }
        text
    }

    /// Reads the value of annotation `key`, container by container as it stands.
    pub fn decode(key: &'static str, text: &str) -> Result<Self, Error> {
        if text.len() > limits::ANNOTATION_BYTES_MAX {
            return Err(Error::annotation(key, format!("{} bytes; at most {}", text.len(), limits::ANNOTATION_BYTES_MAX)));
        }
        let mut containers: Vec<&str> = text.split(';').collect();
        if containers.last().is_some_and(|last| last.trim().is_empty()) {
            containers.pop();
        }
        let containers = containers.into_iter().map(|container| decode_container(key, container)).collect::<Result<_, _>>()?;
        Ok(Self { containers })
    }

    /// Puts slots that a writer dropped (HAMi issue 2899) back to the containers that ask for nothing, so that there is
    /// one entry a container. Fails if the entries cannot be those of `request`.
    pub fn aligned(self, key: &'static str, request: &PodRequest) -> Result<Self, Error> {
        if self.containers.len() == request.containers.len() {
            return Ok(self);
        }
        let mut written = self.containers.into_iter().filter(|slices| !slices.is_empty());
        let mut containers = Vec::with_capacity(request.containers.len());
        for claim in &request.containers {
            containers.push(if claim.request.is_some() { written.next().unwrap_or_default() } else { Vec::new() });
        }
        if written.next().is_some() {
            return Err(Error::annotation(key, "holds more containers with devices than the Pod has"));
        }
        Ok(Self { containers })
    }

    /// What the Pod holds of each card: the larger of its init containers' peak and its other containers' sum; a sidecar
    /// runs beside everything that starts after it. Without `roles` for an entry it counts as running beside all.
    ///
    /// It does not shrink once the init containers ended: a Pod whose sandbox is made anew runs them again.
    pub fn usage(&self, roles: &[Role]) -> BTreeMap<DeviceUuid, Usage> {
        let mut lasting: BTreeMap<DeviceUuid, Usage> = BTreeMap::new();
        let mut peak: BTreeMap<DeviceUuid, Usage> = BTreeMap::new();
        for (at, slices) in self.containers.iter().enumerate() {
            let mut own: BTreeMap<&DeviceUuid, Usage> = BTreeMap::new();
            for slice in slices {
                let sum = own.entry(&slice.uuid).or_default();
                *sum = sum.plus(slice.usage());
            }
            let init = roles.get(at) == Some(&Role::Init);
            for (uuid, own) in own {
                let together = lasting.get(uuid).copied().unwrap_or_default().plus(own);
                if init {
                    let peak = peak.entry(uuid.clone()).or_default();
                    *peak = peak.max(together);
                } else {
                    lasting.insert(uuid.clone(), together);
                }
            }
        }
        for (uuid, peak) in peak {
            let held = lasting.entry(uuid).or_default();
            *held = held.max(peak);
        }
        lasting
    }

    /// Whether no container has a slice.
    pub fn is_empty(&self) -> bool {
        self.containers.iter().all(Vec::is_empty)
    }
}

fn decode_container(key: &'static str, text: &str) -> Result<Vec<Slice>, Error> {
    text.split(':')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
        .filter_map(|entry| decode_slice(key, entry).transpose())
        .collect()
}

fn decode_slice(key: &'static str, entry: &str) -> Result<Option<Slice>, Error> {
    let fields: Vec<&str> = entry.split(',').collect();
    let [uuid, kind, memory, cores, ..] = fields.as_slice() else {
        return Err(Error::annotation(key, format!("device {entry:?} has {} fields; 4 are expected", fields.len())));
    };
    if uuid.is_empty() {
        return Ok(None);
    }
    let wrong = |what: &str| Error::annotation(key, format!("device {entry:?}: {what} is no number"));
    Ok(Some(Slice {
        uuid: DeviceUuid::from(*uuid),
        kind: (*kind).to_owned(),
        memory_mib: memory.parse().map_err(|_| wrong("memory"))?,
        cores: cores.parse().map_err(|_| wrong("cores"))?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::annotation::ALLOCATED;
    use crate::request::ContainerClaim;

    fn decode(text: &str) -> Allocation {
        Allocation::decode(ALLOCATED, text).unwrap()
    }

    fn claim(role: Role, wants: bool) -> ContainerClaim {
        let request = crate::request::ContainerRequest { count: 1, memory: crate::request::Memory::Mib(1), cores: 0 };
        ContainerClaim { name: "c".into(), role, request: wants.then_some(request) }
    }

    #[test]
    fn a_lone_semicolon_is_one_empty_container() {
        assert_eq!(decode(";").containers, [vec![]]);
        assert_eq!(decode(";").encode(), ";");
        assert_eq!(decode("").containers, Vec::<Vec<Slice>>::new());
    }

    #[test]
    fn two_containers_round_trip() {
        let text = "u1,NVIDIA,500,3:;u2,NVIDIA,500,3:;";
        let allocation = decode(text);
        assert_eq!(allocation.containers.len(), 2);
        assert_eq!(allocation.containers[1], [Slice::new("u2".into(), 500, 3)]);
        assert_eq!(allocation.encode(), text);
        assert_eq!(decode("u1,NVIDIA,500,3:u2,NVIDIA,500,3:;;").containers.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn fewer_than_four_fields_or_no_number_is_an_error() {
        for text in ["u1,NVIDIA,500:;", "u1,NVIDIA,lots,3:;", "u1:;", "u1,NVIDIA,-1,3:;"] {
            assert!(Allocation::decode(ALLOCATED, text).is_err(), "{text}");
        }
    }

    #[test]
    fn all_three_ways_to_write_nothing_mean_the_same() {
        let request = PodRequest { containers: vec![claim(Role::Init, false), claim(Role::App, true), claim(Role::App, false)] };
        let expected = decode(";u1,NVIDIA,500,3:;;");
        for text in [";u1,NVIDIA,500,3:;;", ",,0,0:;u1,NVIDIA,500,3:;,,0,0:;", "u1,NVIDIA,500,3:;"] {
            assert_eq!(decode(text).aligned(ALLOCATED, &request).unwrap(), expected, "{text}");
        }
        assert!(decode("u1,NVIDIA,1,1:;u2,NVIDIA,1,1:;").aligned(ALLOCATED, &request).is_err());
    }

    #[test]
    fn init_peak_and_app_sum_collapse_to_the_larger() {
        let roles = [Role::Init, Role::App];
        let usage = decode("d,NVIDIA,500,50:;d,NVIDIA,100,10:;").usage(&roles);
        assert_eq!(usage[&DeviceUuid::from("d")], Usage { slots: 1, memory_mib: 500, cores: 50 });
        let usage = decode("d,NVIDIA,100,10:;d,NVIDIA,200,20:;d,NVIDIA,300,30:;").usage(&[Role::Init, Role::App, Role::App]);
        assert_eq!(usage[&DeviceUuid::from("d")], Usage { slots: 2, memory_mib: 500, cores: 50 });
    }

    #[test]
    fn a_sidecar_runs_beside_later_inits_and_apps() {
        let roles = [Role::Sidecar, Role::Init, Role::App];
        let usage = decode("d,NVIDIA,100,10:;d,NVIDIA,500,0:;d,NVIDIA,200,10:;").usage(&roles);
        assert_eq!(usage[&DeviceUuid::from("d")], Usage { slots: 2, memory_mib: 600, cores: 20 });
    }
}
