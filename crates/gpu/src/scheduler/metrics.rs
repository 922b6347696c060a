//! HAMi's metrics, written from the ledger on each scrape.

use std::fmt::Write;

use atoll_devices::Ledger;
use atoll_devices::fit::CardState;
use atoll_devices::quota::QuotaLimits;

const MIB: u64 = 1 << 20;

/// Prometheus' text form.
pub fn render(ledger: &Ledger) -> String {
    let mut out = Text::default();
    cards(ledger, &mut out);
    pods(ledger, &mut out);
    quotas(ledger, &mut out);
    out.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let _ = write!(self.0, "{name}{{zone=\"vGPU\"");
        for (label, text) in labels {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, ",{label}=\"{text}\"");
        }
        let _ = writeln!(self.0, "}} {value}");
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

type CardMetric = (&'static str, &'static str, fn(&CardState) -> f64);

const CARD_METRICS: [CardMetric; 6] = [
    ("hami_gpu_memory_limit_bytes", "Memory of the card.", |state| (state.card.devmem * MIB) as f64),
    ("hami_gpu_core_limit_ratio", "Compute of the card, 1 being a whole one.", |state| f64::from(state.card.devcore) / 100.0),
    ("hami_gpu_shared_count", "Slices of the card that are taken.", |state| f64::from(state.usage.slots)),
    ("hami_gpu_memory_allocated_bytes", "Memory of the card that is taken.", |state| (state.usage.memory_mib * MIB) as f64),
    ("hami_gpu_core_allocated_ratio", "Compute of the card that is taken.", |state| f64::from(state.usage.cores) / 100.0),
    ("hami_node_gpu_memory_allocated_ratio", "Part of the card's memory that is taken.", |state| {
        ratio(state.usage.memory_mib, state.card.devmem)
    }),
];

fn cards(ledger: &Ledger, out: &mut Text) {
    let nodes = ledger.nodes();
    for (name, help, value) in CARD_METRICS {
        out.family(name, help);
        for node in &nodes {
            for state in &node.cards {
                let (index, cores) = (state.card.index.to_string(), state.usage.cores.to_string());
                let mut labels = vec![
                    ("node", node.name.0.as_str()),
                    ("device_uuid", state.card.id.0.as_str()),
                    ("device_index", index.as_str()),
                    ("device_type", state.card.kind.as_str()),
                ];
                if name == "hami_gpu_memory_allocated_bytes" {
                    labels.push(("device_cores", cores.as_str()));
                }
                out.sample(name, &labels, value(state));
            }
        }
    }
}

fn pods(ledger: &Ledger, out: &mut Text) {
    let entries = ledger.entries();
    let families = [
        ("hami_vgpu_memory_allocated_bytes", "Memory of a card that a Pod has."),
        ("hami_vgpu_core_allocated_ratio", "Compute of a card that a Pod has."),
    ];
    for (at, (name, help)) in families.into_iter().enumerate() {
        out.family(name, help);
        for entry in &entries {
            for (uuid, usage) in &entry.usage {
                let labels = [
                    ("namespace", entry.namespace.as_str()),
                    ("node", entry.node.0.as_str()),
                    ("pod", entry.name.as_str()),
                    ("container_index", "0"),
                    ("device_uuid", uuid.0.as_str()),
                ];
                let value = if at == 0 { (usage.memory_mib * MIB) as f64 } else { f64::from(usage.cores) / 100.0 };
                out.sample(name, &labels, value);
            }
        }
    }
}

fn quotas(ledger: &Ledger, out: &mut Text) {
    let snapshots = ledger.quotas();
    let limits = |limits: &QuotaLimits| [("memory", limits.memory_mib), ("cores", limits.cores), ("gpus", limits.gpus)];
    out.family("hami_resource_quota_limit", "What a ResourceQuota allows.");
    for snapshot in &snapshots {
        for (quota, allowed) in &snapshot.quotas {
            for (limit, value) in limits(allowed).into_iter().filter_map(|(limit, value)| Some((limit, value?))) {
                let labels = [("namespace", snapshot.namespace.as_str()), ("quota_name", quota.as_str()), ("limit", limit)];
                out.sample("hami_resource_quota_limit", &labels, value);
            }
        }
    }
    out.family("hami_resource_quota_used", "What the namespace's placed Pods have of it.");
    for snapshot in &snapshots {
        let used = [("memory", snapshot.used.memory_mib), ("cores", snapshot.used.cores), ("gpus", snapshot.used.gpus)];
        for (quota, allowed) in &snapshot.quotas {
            for ((limit, value), (_, allowed)) in used.into_iter().zip(limits(allowed)) {
                if allowed.is_some() {
                    let labels = [("namespace", snapshot.namespace.as_str()), ("quota_name", quota.as_str()), ("limit", limit)];
                    out.sample("hami_resource_quota_used", &labels, value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use atoll_devices::RequestDefaults;
    use atoll_devices::ledger::Ask;
    use atoll_devices::names::NodeName;
    use atoll_devices::pod::PodView;

    use super::*;

    #[test]
    fn cards_pods_and_quotas_are_told() {
        let ledger = Ledger::new(RequestDefaults::default(), "binpack".parse().unwrap());
        let cards = atoll_devices::inventory::decode("GPU-a,10,8000,100,NVIDIA-T4,0,true").unwrap();
        ledger.set_node(&NodeName::from("n"), Ok(cards), &BTreeSet::new());
        ledger.set_quota("d", "q", Some(QuotaLimits { memory_mib: Some(9000), ..QuotaLimits::default() }));
        let pod: PodView = serde_json::from_value(serde_json::json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {"containers": [{"name": "c", "resources": {"limits":
                {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30}}}]}}))
        .unwrap();
        let ask = Ask::of_pod(&pod, &RequestDefaults::default()).unwrap().unwrap();
        ledger.reserve(&ask, &NodeName::from("n")).unwrap().confirm();
        let text = render(&ledger);
        let card = r#"zone="vGPU",node="n",device_uuid="GPU-a",device_index="0",device_type="NVIDIA-T4""#;
        for line in [
            format!("hami_gpu_memory_limit_bytes{{{card}}} 8388608000"),
            format!(r#"hami_gpu_memory_allocated_bytes{{{card},device_cores="30"}} 4194304000"#),
            format!("hami_node_gpu_memory_allocated_ratio{{{card}}} 0.5"),
            format!("hami_gpu_shared_count{{{card}}} 1"),
            r#"hami_vgpu_core_allocated_ratio{zone="vGPU",namespace="d",node="n",pod="p",container_index="0",device_uuid="GPU-a"} 0.3"#.to_owned(),
            r#"hami_resource_quota_used{zone="vGPU",namespace="d",quota_name="q",limit="memory"} 4000"#.to_owned(),
            r#"hami_resource_quota_limit{zone="vGPU",namespace="d",quota_name="q",limit="memory"} 9000"#.to_owned(),
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }
}
