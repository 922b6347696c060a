//! Which cards and nodes a Pod prefers or admits: the annotations that users set.

use std::collections::BTreeSet;

use crate::inventory::Card;
use crate::names::{DeviceUuid, annotation};
use crate::pod::PodView;
use crate::{Error, limits};

/// Order among nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodePolicy {
    /// The fullest node that fits.
    #[default]
    Binpack,
    /// The emptiest.
    Spread,
}

/// Order among the cards of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardOrder {
    /// The fullest card that fits.
    Binpack,
    /// The emptiest.
    #[default]
    Spread,
    /// Idle cards only.
    Mutex,
}

/// What comes first when cards are put in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardGrouping {
    /// The score alone.
    #[default]
    Score,
    /// The NUMA node, then the score (`binpack,numa`).
    Numa,
}

/// Policy among cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardPolicy {
    /// Order by score.
    pub order: CardOrder,
    /// What stands before the score.
    pub grouping: CardGrouping,
}

/// Weights of the three parts of a card's score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Of used slots.
    pub slot: u32,
    /// Of used cores.
    pub core: u32,
    /// Of used memory.
    pub memory: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { slot: 1, core: 1, memory: 1 }
    }
}

impl std::str::FromStr for NodePolicy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name.trim() {
            "binpack" => Ok(Self::Binpack),
            "spread" => Ok(Self::Spread),
            _ => Err(Error::UnknownPolicy { what: "node policy", name: name.to_owned(), known: "binpack, spread" }),
        }
    }
}

impl std::str::FromStr for CardPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut order = None;
        let mut grouping = CardGrouping::Score;
        for name in text.split(',').map(str::trim) {
            let named = match name {
                "binpack" => CardOrder::Binpack,
                "spread" => CardOrder::Spread,
                "mutex" => CardOrder::Mutex,
                "numa" => {
                    grouping = CardGrouping::Numa;
                    continue;
                }
                _ => {
                    let known = "binpack, spread, mutex, each with numa after a comma";
                    return Err(Error::UnknownPolicy { what: "card policy", name: name.to_owned(), known });
                }
            };
            if order.replace(named).is_some_and(|earlier| earlier != named) {
                return Err(Error::annotation(annotation::CARD_POLICY, format!("{text:?} names two orders")));
            }
        }
        Ok(Self { order: order.unwrap_or_default(), grouping })
    }
}

impl std::str::FromStr for Weights {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut weights = Self::default();
        for entry in text.split(',') {
            let wrong = || Error::annotation(annotation::WEIGHTS, format!("{entry:?} is not like slot=1, core=1 or memory=3"));
            let (name, value) = entry.split_once('=').ok_or_else(wrong)?;
            let value = value.trim().parse().map_err(|_| wrong())?;
            match name.trim() {
                "slot" => weights.slot = value,
                "core" => weights.core = value,
                "memory" => weights.memory = value,
                _ => return Err(wrong()),
            }
        }
        Ok(weights)
    }
}

/// All that a Pod's annotations say about the choice of cards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Order among nodes, if the Pod names one.
    pub node_policy: Option<NodePolicy>,
    /// Order among cards, if the Pod names one.
    pub card_policy: Option<CardPolicy>,
    /// Weights, if the Pod names them.
    pub weights: Weights,
    use_types: Vec<String>,
    no_use_types: Vec<String>,
    use_uuids: BTreeSet<DeviceUuid>,
    no_use_uuids: BTreeSet<DeviceUuid>,
    modes: Vec<String>,
    /// All cards of a container on one NUMA node.
    pub numa_bind: bool,
}

impl Selection {
    /// Reads the annotations of `pod`; one that cannot be followed is an error, never ignored (HAMi issue 2995).
    pub fn of_pod(pod: &PodView) -> Result<Self, Error> {
        Ok(Self {
            node_policy: pod.annotation(annotation::NODE_POLICY).map(str::parse).transpose()?,
            card_policy: pod.annotation(annotation::CARD_POLICY).map(str::parse).transpose()?,
            weights: pod.annotation(annotation::WEIGHTS).map(str::parse).transpose()?.unwrap_or_default(),
            use_types: lowercase_list(pod, annotation::USE_TYPE)?,
            no_use_types: lowercase_list(pod, annotation::NO_USE_TYPE)?,
            use_uuids: list(pod, annotation::USE_UUID)?.into_iter().map(DeviceUuid).collect(),
            no_use_uuids: list(pod, annotation::NO_USE_UUID)?.into_iter().map(DeviceUuid).collect(),
            modes: modes(pod)?,
            numa_bind: numa_bind(pod)?,
        })
    }

    /// Whether the card's type and mode are admitted.
    pub fn admits_type(&self, card: &Card) -> bool {
        let modes = self.modes.is_empty() || self.modes.iter().any(|mode| mode == card.mode());
        if self.use_types.is_empty() && self.no_use_types.is_empty() {
            return modes;
        }
        let kind = card.kind.to_lowercase();
        let named = |list: &[String]| list.iter().any(|entry| kind.contains(entry.as_str()));
        modes && (self.use_types.is_empty() || named(&self.use_types)) && !named(&self.no_use_types)
    }

    /// Whether the card itself is admitted.
    pub fn admits_uuid(&self, card: &Card) -> bool {
        (self.use_uuids.is_empty() || self.use_uuids.contains(&card.id)) && !self.no_use_uuids.contains(&card.id)
    }

    /// Whether the card is admitted by type, mode and UUID.
    pub fn admits(&self, card: &Card) -> bool {
        self.admits_type(card) && self.admits_uuid(card)
    }
}

fn list(pod: &PodView, key: &'static str) -> Result<Vec<String>, Error> {
    let Some(text) = pod.annotation(key) else { return Ok(Vec::new()) };
    let entries: Vec<String> = text.split(',').map(str::trim).filter(|e| !e.is_empty()).map(str::to_owned).collect();
    if entries.len() > limits::SELECTOR_ENTRIES_MAX {
        return Err(Error::annotation(key, format!("{} entries; at most {}", entries.len(), limits::SELECTOR_ENTRIES_MAX)));
    }
    Ok(entries)
}

fn lowercase_list(pod: &PodView, key: &'static str) -> Result<Vec<String>, Error> {
    Ok(list(pod, key)?.iter().map(|entry| entry.to_lowercase()).collect())
}

fn modes(pod: &PodView) -> Result<Vec<String>, Error> {
    let modes = list(pod, annotation::MODE)?;
    match modes.iter().find(|mode| !matches!(mode.as_str(), "hami-core" | "mig" | "mps")) {
        Some(mode) => Err(Error::annotation(annotation::MODE, format!("unknown mode {mode:?}; known: hami-core, mig, mps"))),
        None => Ok(modes),
    }
}

fn numa_bind(pod: &PodView) -> Result<bool, Error> {
    match pod.annotation(annotation::NUMA_BIND) {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => Err(Error::annotation(annotation::NUMA_BIND, format!("{other:?} is neither true nor false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &[(&str, &str)]) -> PodView {
        let mut pod = PodView::default();
        pod.metadata.annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        pod
    }

    fn card(kind: &str) -> Card {
        crate::inventory::decode(&format!("GPU-1,10,8000,100,{kind},0,true")).unwrap().remove(0)
    }

    #[test]
    fn types_are_case_insensitive_substrings_and_uuids_are_exact() {
        let selection = Selection::of_pod(&pod(&[(annotation::USE_TYPE, "a100,T4"), (annotation::NO_USE_TYPE, "40gb")])).unwrap();
        assert!(selection.admits(&card("NVIDIA-A100-80GB")));
        assert!(!selection.admits(&card("NVIDIA-A100-40GB")));
        assert!(!selection.admits(&card("NVIDIA-H100")));
        let selection = Selection::of_pod(&pod(&[(annotation::USE_UUID, "GPU-12")])).unwrap();
        assert!(!selection.admits(&card("T4")));
    }

    #[test]
    fn an_unknown_word_is_refused_and_never_taken_for_another() {
        for (key, value) in [
            (annotation::NODE_POLICY, "binpak"),
            (annotation::CARD_POLICY, "topology-aware"),
            (annotation::CARD_POLICY, "binpack,spread"),
            (annotation::WEIGHTS, "slot=1,core"),
            (annotation::WEIGHTS, "slot=-1"),
            (annotation::MODE, "fast"),
            (annotation::NUMA_BIND, "yes"),
        ] {
            assert!(Selection::of_pod(&pod(&[(key, value)])).is_err(), "{key}={value}");
        }
        let policy: CardPolicy = "binpack,numa".parse().unwrap();
        assert_eq!(policy, CardPolicy { order: CardOrder::Binpack, grouping: CardGrouping::Numa });
        assert_eq!("slot=1,core=2,memory=3".parse(), Ok(Weights { slot: 1, core: 2, memory: 3 }));
    }
}
