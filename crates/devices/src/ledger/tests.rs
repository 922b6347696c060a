//! The ledger against a model that only adds up, and the races that HAMi's issues tell of.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::quota::QuotaLimits;

fn ledger(nodes: &[(&str, &str)]) -> Ledger {
    let ledger = Ledger::new(RequestDefaults::default(), "binpack".parse().unwrap());
    for (node, cards) in nodes {
        ledger.set_node(&NodeName::from(*node), Ok(crate::inventory::decode(cards).unwrap()), &BTreeSet::new());
    }
    ledger
}

fn one_card() -> Ledger {
    ledger(&[("n", "d,10,8000,100,T4,0,true")])
}

fn pod(uid: &str, memory: u64, cores: u32) -> PodView {
    serde_json::from_value(json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "c", "resources": {"limits":
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory, "nvidia.com/gpucores": cores}}}]}
    }))
    .unwrap()
}

fn ask(uid: &str, memory: u64, cores: u32) -> Ask {
    Ask::of_pod(&pod(uid, memory, cores), &RequestDefaults::default()).unwrap().unwrap()
}

fn annotated(mut pod: PodView, node: &str, allocated: &str) -> PodView {
    pod.metadata.annotations.insert("hami.io/vgpu-node".into(), node.into());
    pod.metadata.annotations.insert("hami.io/vgpu-devices-allocated".into(), allocated.into());
    pod
}

fn bound(mut pod: PodView, node: &str) -> PodView {
    pod.spec.node_name = node.into();
    pod
}

fn used(ledger: &Ledger, node: usize, card: usize) -> (u32, u64, u32) {
    let usage = ledger.nodes()[node].cards[card].usage;
    (usage.slots, usage.memory_mib, usage.cores)
}

fn node(name: &str) -> NodeName {
    NodeName::from(name)
}

#[test]
fn a_dropped_reservation_gives_back_and_a_confirmed_one_stays() {
    let ledger = one_card();
    let reservation = ledger.reserve(&ask("a", 5000, 30), &node("n")).unwrap();
    assert_eq!(used(&ledger, 0, 0), (1, 5000, 30));
    assert_eq!(ledger.reserve(&ask("b", 5000, 30), &node("n")).unwrap_err().to_string(), "1/1 CardInsufficientMemory");
    drop(reservation);
    assert_eq!(used(&ledger, 0, 0), (0, 0, 0));
    ledger.reserve(&ask("b", 5000, 30), &node("n")).unwrap().confirm();
    assert_eq!(used(&ledger, 0, 0), (1, 5000, 30));
}

#[test]
fn an_older_guard_does_not_undo_a_newer_reservation() {
    let ledger = one_card();
    let older = ledger.reserve(&ask("a", 5000, 30), &node("n")).unwrap();
    let newer = ledger.reserve(&ask("a", 6000, 40), &node("n")).unwrap();
    assert!(newer.is_current() && !older.is_current());
    drop(older);
    assert_eq!(used(&ledger, 0, 0), (1, 6000, 40));
    newer.confirm();
    assert_eq!(used(&ledger, 0, 0), (1, 6000, 40));
}

#[test]
fn an_older_event_does_not_move_a_newer_decision() {
    let ledger = ledger(&[("m", "e,10,8000,100,T4,0,true"), ("n", "d,10,8000,100,T4,0,true")]);
    let stale = annotated(pod("a", 5000, 30), "m", "e,NVIDIA,5000,30:;");
    let reservation = ledger.reserve(&ask("a", 5000, 30), &node("n")).unwrap();
    assert_eq!(ledger.observe(&stale), Observed::Unchanged);
    reservation.confirm();
    assert_eq!(ledger.observe(&stale), Observed::Unchanged);
    assert_eq!((used(&ledger, 0, 0), used(&ledger, 1, 0)), ((0, 0, 0), (1, 5000, 30)));
    let own = bound(annotated(pod("a", 5000, 30), "n", "d,NVIDIA,5000,30:;"), "n");
    assert_eq!(ledger.observe(&own), Observed::Unchanged);
    assert_eq!(used(&ledger, 1, 0), (1, 5000, 30));
}

#[test]
fn a_pod_that_was_seen_bound_is_not_undone_by_a_guard_that_believes_otherwise() {
    let ledger = one_card();
    let lost_answer = ledger.reserve(&ask("a", 5000, 30), &node("n")).unwrap();
    ledger.observe(&bound(annotated(pod("a", 5000, 30), "n", "d,NVIDIA,5000,30:;"), "n"));
    drop(lost_answer);
    assert_eq!(used(&ledger, 0, 0), (1, 5000, 30));
    let other = ledger.reserve(&ask("b", 1000, 0), &node("n")).unwrap();
    ledger.observe(&bound(annotated(pod("b", 1000, 0), "n", "d,NVIDIA,2000,0:;"), "n"));
    drop(other);
    assert_eq!(used(&ledger, 0, 0), (2, 7000, 30));
}

#[test]
fn a_restart_finds_bound_and_merely_annotated_pods_and_plans_the_same_again() {
    let ledger = ledger(&[("n", "c,10,8000,100,T4,0,true:d,10,8000,100,T4,0,true")]);
    ledger.observe(&bound(annotated(pod("a", 5000, 30), "n", "c,NVIDIA,5000,30:;"), "n"));
    ledger.observe(&annotated(pod("b", 1000, 30), "n", "d,NVIDIA,1000,30:;"));
    assert_eq!((used(&ledger, 0, 0), used(&ledger, 0, 1)), ((1, 5000, 30), (1, 1000, 30)));
    // Binpack alone would now choose the fuller card c.
    let again = ledger.reserve(&ask("b", 1000, 30), &node("n")).unwrap();
    assert_eq!(again.allocation().encode(), "d,NVIDIA,1000,30:;");
    assert_eq!(used(&ledger, 0, 1), (1, 1000, 30));
}

#[test]
fn finished_gone_and_unknown_pods_hold_nothing() {
    let ledger = one_card();
    let mut running = bound(annotated(pod("a", 5000, 30), "n", "d,NVIDIA,5000,30:;"), "n");
    assert_eq!(ledger.observe(&running), Observed::Recorded);
    running.status.phase = "Failed".into();
    assert_eq!(ledger.observe(&running), Observed::Freed);
    running.status.phase = "Running".into();
    ledger.observe(&running);
    let before = ledger.generation();
    ledger.reserve(&ask("b", 100, 0), &node("n")).unwrap().confirm();
    assert_eq!(ledger.reconcile(before, &BTreeSet::new()), 1);
    assert_eq!(used(&ledger, 0, 0), (1, 100, 0));
    assert!(ledger.release(&PodUid::from("b")));
    assert_eq!(used(&ledger, 0, 0), (0, 0, 0));
}

#[test]
fn a_bound_pod_that_lost_its_annotation_keeps_what_it_was_given() {
    let ledger = one_card();
    ledger.observe(&bound(annotated(pod("a", 5000, 30), "n", "d,NVIDIA,5000,30:;"), "n"));
    assert_eq!(ledger.observe(&bound(pod("a", 5000, 30), "n")), Observed::Unchanged);
    assert_eq!(used(&ledger, 0, 0), (1, 5000, 30));
}

#[test]
fn an_unreadable_live_pod_closes_its_node_until_it_is_gone() {
    let ledger = one_card();
    ledger.observe(&bound(annotated(pod("a", 1, 1), "n", "d,NVIDIA,lots:;"), "n"));
    let refusal = ledger.plan(&ask("b", 1, 1), &node("n")).unwrap_err().to_string();
    assert!(refusal.starts_with("node unreadable: Pod a: "), "{refusal}");
    ledger.release(&PodUid::from("a"));
    assert!(ledger.plan(&ask("b", 1, 1), &node("n")).is_ok());
}

#[test]
fn nodes_without_readable_cards_take_nothing() {
    let ledger = one_card();
    assert_eq!(ledger.plan(&ask("a", 1, 1), &node("x")), Err(NodeUnfit::Unregistered));
    ledger.set_node(&node("n"), Err("bad".into()), &BTreeSet::new());
    assert_eq!(ledger.plan(&ask("a", 1, 1), &node("n")), Err(NodeUnfit::Unreadable("bad".into())));
}

#[test]
fn cards_that_come_back_are_as_full_as_before() {
    let ledger = one_card();
    ledger.reserve(&ask("a", 5000, 30), &node("n")).unwrap().confirm();
    ledger.remove_node(&node("n"));
    assert!(ledger.set_node(&node("n"), Ok(crate::inventory::decode("d,10,8000,100,T4,0,true").unwrap()), &BTreeSet::new()));
    assert_eq!(used(&ledger, 0, 0), (1, 5000, 30));
}

#[test]
fn planning_changes_nothing() {
    let ledger = one_card();
    let before = (ledger.nodes(), ledger.generation());
    ledger.plan(&ask("a", 5000, 30), &node("n")).unwrap();
    assert_eq!((ledger.nodes(), ledger.generation()), before);
}

#[test]
fn the_smallest_quota_of_a_namespace_holds_and_frees() {
    let ledger = one_card();
    let memory = |mib| Some(QuotaLimits { memory_mib: Some(mib), ..QuotaLimits::default() });
    ledger.set_quota("default", "big", memory(8000));
    ledger.set_quota("default", "small", memory(2000));
    let first = ledger.reserve(&ask("a", 1500, 0), &node("n")).unwrap();
    assert_eq!(ledger.reserve(&ask("b", 1000, 0), &node("n")).unwrap_err().to_string(), "1/1 ResourceQuotaNotFit");
    let mut elsewhere = ask("c", 1000, 0);
    elsewhere.namespace = "other".into();
    ledger.reserve(&elsewhere, &node("n")).unwrap().confirm();
    drop(first);
    ledger.reserve(&ask("b", 1000, 0), &node("n")).unwrap().confirm();
    assert_eq!(ledger.quotas()[0].used.memory_mib, 1000);
    ledger.set_quota("default", "small", None);
    ledger.reserve(&ask("d", 5000, 0), &node("n")).unwrap().confirm();
}

#[test]
fn a_limit_on_slices_counts_cards() {
    let ledger = one_card();
    ledger.set_quota("default", "q", Some(QuotaLimits { gpus: Some(0), ..QuotaLimits::default() }));
    assert_eq!(ledger.reserve(&ask("b", 1, 0), &node("n")).unwrap_err().to_string(), "1/1 ResourceQuotaNotFit");
}

/// HAMi's acceptance cases 12 and 14.
#[test]
fn policies_choose_node_and_card_together() {
    let at = |node_policy: &str, card_policy: &str| {
        let ledger = Ledger::new(RequestDefaults::default(), card_policy.parse().unwrap());
        let cards = |text| Ok(crate::inventory::decode(text).unwrap());
        ledger.set_node(&node("node1"), cards("d1,10,8000,100,T4,0,true:d2,10,8000,100,T4,0,true"), &BTreeSet::new());
        ledger.set_node(&node("node2"), cards("d3,10,8000,100,T4,0,true:d4,10,8000,100,T4,0,true"), &BTreeSet::new());
        ledger.observe(&bound(annotated(pod("a", 2000, 25), "node1", "d1,NVIDIA,2000,25:;"), "node1"));
        ledger.observe(&bound(annotated(pod("b", 6000, 75), "node2", "d4,NVIDIA,6000,75:;"), "node2"));
        let nodes = BTreeSet::from(["node1", "node2"]);
        let placed = ledger.place(&ask("p", 1000, 20), node_policy.parse().unwrap(), &nodes).unwrap();
        (placed.node().0.clone(), placed.allocation().containers[0][0].uuid.0.clone())
    };
    assert_eq!(at("binpack", "binpack"), ("node2".into(), "d4".into()));
    assert_eq!(at("spread", "spread"), ("node1".into(), "d2".into()));
}

#[test]
fn a_pod_that_fits_nowhere_is_told_why_node_by_node() {
    let ledger = ledger(&[("m", "e,10,100,100,T4,0,true"), ("n", "d,10,8000,100,T4,0,true")]);
    let refused = ledger.place(&ask("a", 9000, 0), NodePolicy::Binpack, &BTreeSet::from(["m", "n", "x"])).unwrap_err();
    let reasons: Vec<String> = refused.iter().map(|(node, why)| format!("{node}: {why}")).collect();
    assert_eq!(reasons, ["m: 1/1 CardInsufficientMemory", "n: 1/1 CardInsufficientMemory", "x: node unregistered"]);
}

#[test]
fn equal_nodes_are_taken_by_name_and_an_earlier_decision_is_kept() {
    let ledger = ledger(&[("m", "e,10,8000,100,T4,0,true"), ("n", "d,10,8000,100,T4,0,true")]);
    let both = BTreeSet::from(["m", "n"]);
    for policy in [NodePolicy::Binpack, NodePolicy::Spread] {
        assert_eq!(ledger.place(&ask("a", 100, 0), policy, &both).unwrap().node().0, "m");
    }
    ledger.observe(&annotated(pod("a", 100, 0), "n", "d,NVIDIA,100,0:;"));
    assert_eq!(ledger.place(&ask("a", 100, 0), NodePolicy::Spread, &both).unwrap().node().0, "n");
}

#[derive(Clone, Debug)]
enum Step {
    Reserve { pod: u8, node: bool, memory: u64, cores: u32, keep: bool },
    Release { pod: u8 },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..24, any::<bool>(), 1_u64..5000, 0_u32..=100, any::<bool>())
            .prop_map(|(pod, node, memory, cores, keep)| Step::Reserve { pod, node, memory, cores, keep }),
        1 => (0_u8..24).prop_map(|pod| Step::Release { pod }),
    ]
}

proptest! {
    /// The model knows only what each Pod was given and adds it up from nothing after each step.
    #[test]
    fn no_history_puts_a_card_over_its_limits(steps in prop::collection::vec(any_step(), 1..60)) {
        let ledger = ledger(&[("m", "a,3,8000,100,T4,0,true:b,2,4000,100,T4,0,true"), ("n", "c,10,8000,100,T4,0,true")]);
        let limits = BTreeMap::from([("a", (3, 8000, 100)), ("b", (2, 4000, 100)), ("c", (10, 8000, 100))]);
        let mut held: BTreeMap<u8, (String, u64, u32)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Reserve { pod, node: first, memory, cores, keep } => {
                    let target = node(if first { "m" } else { "n" });
                    if let Ok(reservation) = ledger.reserve(&ask(&pod.to_string(), memory, cores), &target) {
                        // A reservation replaces what the Pod had before, confirmed or not.
                        held.remove(&pod);
                        if keep {
                            let slice = &reservation.allocation().containers[0][0];
                            held.insert(pod, (slice.uuid.0.clone(), slice.memory_mib, slice.cores));
                            reservation.confirm();
                        }
                    }
                }
                Step::Release { pod } => {
                    prop_assert_eq!(ledger.release(&PodUid(pod.to_string())), held.remove(&pod).is_some());
                }
            }
            let mut sums: BTreeMap<&str, (u32, u64, u32)> = BTreeMap::new();
            for (card, memory, cores) in held.values() {
                let sum = sums.entry(card).or_default();
                *sum = (sum.0 + 1, sum.1 + memory, sum.2 + cores);
            }
            for snapshot in ledger.nodes() {
                for state in snapshot.cards {
                    let sum = sums.get(state.card.id.0.as_str()).copied().unwrap_or_default();
                    prop_assert_eq!((state.usage.slots, state.usage.memory_mib, state.usage.cores), sum);
                    let limit = limits[state.card.id.0.as_str()];
                    prop_assert!(sum.0 <= limit.0 && sum.1 <= limit.1 && sum.2 <= limit.2);
                }
            }
        }
    }
}
