//! Sliced cards in quotas.

use atoll_devices::{Card, PodView, RequestDefaults, inventory, names, quota};
use serde_json::Value;

/// The cards of the cluster's nodes, for requests in percent or without memory: these count against the largest card that the
/// Pod's selectors admit.
#[derive(Clone, Debug, Default)]
pub struct DeviceView {
    nodes: Vec<(std::collections::BTreeMap<String, String>, Vec<Card>)>,
    defaults: RequestDefaults,
}

impl DeviceView {
    /// Reads the register annotations of Node objects. One that does not parse has no cards.
    pub fn of_nodes<'a>(nodes: impl IntoIterator<Item = &'a Value>) -> DeviceView {
        let read = |node: &Value| {
            let metadata = &node["metadata"];
            let text = metadata["annotations"][names::annotation::NODE_REGISTER].as_str()?;
            let cards = inventory::decode(text).ok()?;
            let labels = metadata["labels"].as_object().into_iter().flatten();
            let labels = labels.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect();
            Some((labels, cards))
        };
        DeviceView { nodes: nodes.into_iter().filter_map(read).collect(), defaults: RequestDefaults::default() }
    }

    /// Whether the Pod names a device at all; only then is a view of the nodes needed.
    pub fn is_needed(pod: &Value) -> bool {
        ["containers", "initContainers"].iter().any(|list| {
            pod["spec"][*list].as_array().into_iter().flatten().any(|container| {
                ["limits", "requests"].iter().any(|kind| {
                    container["resources"][*kind].as_object().is_some_and(|r| r.keys().any(|k| names::resource::is_managed(k)))
                })
            })
        })
    }

    /// What the Pod is charged, by resource name.
    pub(super) fn amounts(&self, pod: &Value) -> Vec<(&'static str, i64)> {
        if !Self::is_needed(pod) {
            return Vec::new();
        }
        let Ok(view) = PodView::from_json(pod) else { return Vec::new() };
        let admitted = self.nodes.iter().filter(|(labels, _)| quota::node_admits(&view, labels));
        let Ok(Some(charge)) = quota::of_pod(&view, &self.defaults, admitted.flat_map(|(_, cards)| cards)) else {
            return Vec::new();
        };
        [names::resource::GPU, names::resource::MEMORY, names::resource::CORES]
            .into_iter()
            .filter_map(|name| Some((name, i64::try_from(charge.of(name, &self.defaults)?).ok()?)))
            .collect()
    }
}
