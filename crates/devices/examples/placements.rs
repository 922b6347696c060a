//! How many fractional placements the ledger alone makes in a second, on 1,000 nodes with 8 cards each:
//! `cargo run --release -p atoll-devices --example placements`.

use std::collections::BTreeSet;
use std::time::Instant;

use atoll_devices::cards::CardSpec;
use atoll_devices::ledger::{Ask, Ledger};
use atoll_devices::names::NodeName;
use atoll_devices::selection::NodePolicy;
use atoll_devices::{PodView, RequestDefaults};

const NODES: usize = 1_000;
const PODS: usize = 5_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ledger = Ledger::new(RequestDefaults::default(), "binpack".parse()?);
    let names: Vec<String> = (0..NODES).map(|at| format!("node-{at:04}")).collect();
    let spec: CardSpec = "8xA100-80GB".parse()?;
    for name in &names {
        ledger.set_node(&NodeName::from(name.as_str()), Ok(spec.cards(name)), &BTreeSet::new());
    }
    let asks: Vec<Ask> = (0..PODS).map(ask).collect::<Result<_, _>>()?;
    let admitted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let began = Instant::now();
    for ask in &asks {
        match ledger.place(ask, NodePolicy::Binpack, &admitted) {
            Ok(reservation) => reservation.confirm(),
            Err(_) => return Err("no node is left".into()),
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{PODS} placements on {NODES} nodes x 8 cards in {seconds:.2} s: {:.0} a second", PODS as f64 / seconds);
    Ok(())
}

fn ask(at: usize) -> Result<Ask, Box<dyn std::error::Error>> {
    let memory = 2_000 + at % 7 * 1_000;
    let limits = serde_json::json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory, "nvidia.com/gpucores": 10});
    let pod = serde_json::json!({
        "metadata": {"name": format!("p{at}"), "namespace": "default", "uid": format!("uid-{at:05}")},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}});
    Ok(Ask::of_pod(&PodView::from_json(&pod)?, &RequestDefaults::default())?.ok_or("asks for no card")?)
}
