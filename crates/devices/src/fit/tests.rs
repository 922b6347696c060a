//! HAMi's acceptance cases for a fit, and a property test against a model that knows none of the code above.

use proptest::prelude::*;

use super::*;
use crate::pod::PodView;
use crate::request::ContainerClaim;

fn card(id: &str, devmem: u64, devcore: u32, count: u32) -> CardState {
    let text = format!("{id},{count},{devmem},{devcore},NVIDIA-Tesla T4,0,true");
    CardState { card: Arc::new(crate::inventory::decode(&text).unwrap().remove(0)), cordoned: false, usage: Usage::default() }
}

fn used(mut state: CardState, slots: u32, memory_mib: u64, cores: u32) -> CardState {
    state.usage = Usage { slots, memory_mib, cores };
    state
}

fn request(count: u32, memory_mib: u64, cores: u32) -> PodRequest {
    let request = ContainerRequest { count, memory: Memory::Mib(memory_mib), cores };
    PodRequest { containers: vec![ContainerClaim { name: "c".into(), role: Role::App, request: Some(request) }] }
}

fn selection(annotations: &[(&str, &str)]) -> Selection {
    let mut pod = PodView::default();
    pod.metadata.annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Selection::of_pod(&pod).unwrap()
}

fn fit(cards: &[CardState], request: &PodRequest, annotations: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let selection = selection(annotations);
    let query = Query {
        request,
        selection: &selection,
        card_policy: CardPolicy::default(),
        headroom: Headroom::default(),
        earlier: None,
    };
    pod(cards, &query)
        .map(|allocation| allocation.containers.into_iter().flatten().map(|slice| slice.uuid.0).collect())
        .map_err(|unfit| unfit.to_string())
}

fn reason(cards: &[CardState], request: &PodRequest) -> String {
    fit(cards, request, &[]).unwrap_err()
}

#[test]
fn card_policies_choose_the_fullest_or_the_emptiest() {
    let cards = [card("d3", 8000, 100, 10), used(card("d4", 8000, 100, 10), 1, 6000, 75)];
    assert_eq!(fit(&cards, &request(1, 1000, 20), &[("hami.io/gpu-scheduler-policy", "binpack")]).unwrap(), ["d4"]);
    assert_eq!(fit(&cards, &request(1, 1000, 20), &[("hami.io/gpu-scheduler-policy", "spread")]).unwrap(), ["d3"]);
}

#[test]
fn reasons_are_those_of_hami() {
    assert_eq!(reason(&[card("d", 128, 100, 10)], &request(1, 512, 0)), "1/1 CardInsufficientMemory");
    let full_cores = [used(card("d", 8000, 100, 10), 1, 10, 100)];
    assert_eq!(reason(&full_cores, &request(1, 10, 50)), "1/1 CardInsufficientCore");
    assert_eq!(reason(&full_cores, &request(1, 10, 0)), "1/1 CardComputeUnitsExhausted");
    let shared = [used(card("d", 8000, 100, 10), 1, 10, 0)];
    assert_eq!(reason(&shared, &request(1, 10, 100)), "1/1 ExclusiveDeviceAllocateConflict");
    assert_eq!(fit(&[card("d", 8000, 100, 10)], &request(1, 10, 100), &[]).unwrap(), ["d"]);
    let slots = [used(card("d", 8000, 100, 10), 10, 10, 0)];
    assert_eq!(reason(&slots, &request(1, 10, 1)), "1/1 CardTimeSlicingExhausted");
    assert_eq!(reason(&[card("d", 8000, 100, 10)], &request(2, 10, 1)), "1/1 NodeInsufficientDevice");
    let mut broken = card("d", 8000, 100, 10);
    Arc::make_mut(&mut broken.card).health = false;
    assert_eq!(reason(&[broken], &request(1, 10, 1)), "1/1 CardNotHealth");
    let one_small = [card("a", 8000, 100, 10), card("b", 128, 100, 10)];
    assert_eq!(reason(&one_small, &request(2, 512, 0)), "1/2 CardInsufficientMemory, 1/2 AllocatedCardsInsufficientRequest");
}

#[test]
fn selectors_refuse_by_type_and_uuid() {
    let cards = [card("dev-1", 8000, 100, 10)];
    let ask = request(1, 10, 1);
    assert_eq!(fit(&cards, &ask, &[("nvidia.com/use-gpuuuid", "dev-0")]), Err("1/1 CardUuidMismatch".into()));
    assert_eq!(fit(&cards, &ask, &[("nvidia.com/use-gputype", "A100")]), Err("1/1 CardTypeMismatch".into()));
    assert_eq!(fit(&cards, &ask, &[("nvidia.com/vgpu-mode", "mps")]), Err("1/1 CardTypeMismatch".into()));
}

#[test]
fn cordoned_cards_take_nothing_new() {
    let mut cards = [card("dev-0", 8000, 100, 10), card("dev-1", 8000, 100, 10)];
    cards[1].cordoned = true;
    assert_eq!(fit(&cards, &request(1, 10, 1), &[]).unwrap(), ["dev-0"]);
    cards[0].cordoned = true;
    assert_eq!(reason(&cards, &request(1, 10, 1)), "2/2 CardCordoned");
}

#[test]
fn mutex_takes_idle_cards_only() {
    let cards = [used(card("a", 8000, 100, 10), 1, 10, 1), card("b", 8000, 100, 10)];
    let mutex = [("hami.io/gpu-scheduler-policy", "mutex")];
    assert_eq!(fit(&cards, &request(1, 10, 1), &mutex).unwrap(), ["b"]);
    assert!(fit(&cards, &request(2, 10, 1), &mutex).unwrap_err().contains("1/2 ExclusiveDeviceAllocateConflict"));
}

#[test]
fn numa_bind_keeps_a_container_together() {
    let mut cards = [card("a", 8000, 100, 10), card("b", 8000, 100, 10), card("c", 8000, 100, 10)];
    Arc::make_mut(&mut cards[1].card).numa = 1;
    Arc::make_mut(&mut cards[2].card).numa = 1;
    let bind = [("nvidia.com/numa-bind", "true")];
    assert_eq!(fit(&cards, &request(2, 10, 1), &bind).unwrap(), ["b", "c"]);
    assert_eq!(fit(&cards, &request(3, 10, 1), &bind), Err("3/3 NumaNotFit".into()));
    assert_eq!(fit(&cards, &request(3, 10, 1), &[]).unwrap(), ["a", "b", "c"]);
}

#[test]
fn quota_counts_every_card_of_the_pod() {
    let cards = [card("a", 8000, 100, 10), card("b", 8000, 100, 10)];
    let selection = Selection::default();
    let headroom = Headroom { memory_mib: Some(1000), cores: None };
    let ask = |memory| request(2, memory, 0);
    let fits = |request: &PodRequest| {
        pod(&cards, &Query { request, selection: &selection, card_policy: CardPolicy::default(), headroom, earlier: None })
    };
    assert!(fits(&ask(500)).is_ok());
    assert_eq!(fits(&ask(501)).unwrap_err().to_string(), "1/2 ResourceQuotaNotFit, 1/2 AllocatedCardsInsufficientRequest");
}

#[test]
fn percent_is_of_the_card_that_it_becomes() {
    let request = ContainerRequest { count: 1, memory: Memory::Percent(30), cores: 0 };
    let request = PodRequest { containers: vec![ContainerClaim { name: "c".into(), role: Role::App, request: Some(request) }] };
    let selection = Selection::default();
    let query = Query {
        request: &request,
        selection: &selection,
        card_policy: CardPolicy::default(),
        headroom: Headroom::default(),
        earlier: None,
    };
    let allocation = pod(&[card("a", 40_960, 100, 10)], &query).unwrap();
    assert_eq!(allocation.encode(), "a,NVIDIA,12288,0:;");
}

fn any_card() -> impl Strategy<Value = (u64, u32, u32, u64, u32)> {
    (1_u64..2000, 1_u32..=100, 0_u32..4, 0_u64..2000, 0_u32..=100)
}

fn any_container() -> impl Strategy<Value = (u8, u32, u64, u32)> {
    (0_u8..3, 0_u32..3, 1_u64..900, 0_u32..=100)
}

proptest! {
    /// Replays the Pod's life second by second on plain arrays: whatever runs together must fit together.
    #[test]
    fn a_fit_never_goes_over_a_card(cards in prop::collection::vec(any_card(), 1..5), pods in prop::collection::vec(any_container(), 1..5)) {
        let states: Vec<CardState> = cards
            .iter()
            .enumerate()
            .map(|(at, (mem, core, slots, used_mem, used_cores))| {
                used(card(&format!("d{at}"), *mem, *core, *slots), u32::from(*used_mem > 0), (*used_mem).min(*mem), (*used_cores).min(*core))
            })
            .collect();
        let role = |code: u8| [Role::Init, Role::Sidecar, Role::App][usize::from(code)];
        let mut containers: Vec<ContainerClaim> = pods.iter().map(|(code, count, memory, cores)| ContainerClaim {
            name: "c".into(),
            role: role(*code),
            request: (*count > 0).then_some(ContainerRequest { count: *count, memory: Memory::Mib(*memory), cores: *cores }),
        }).collect();
        containers.sort_by_key(|c| c.role == Role::App);
        let request = PodRequest { containers };
        let selection = Selection::default();
        let query = Query { request: &request, selection: &selection, card_policy: CardPolicy::default(), headroom: Headroom::default(), earlier: None };
        let planned = pod(&states, &query);
        prop_assert_eq!(fits(&states, &query), planned.as_ref().map(drop).map_err(Clone::clone));
        if let Ok(allocation) = planned {
            prop_assert_eq!(allocation.containers.len(), request.containers.len());
            for (at, _) in states.iter().enumerate() {
                let id = format!("d{at}");
                let (mem, core, slots, _, _) = cards[at];
                let base = states[at].usage;
                let mut running = vec![(base.slots, base.memory_mib, base.cores)];
                for (claim, slices) in request.containers.iter().zip(&allocation.containers) {
                    prop_assert_eq!(slices.len(), claim.request.map_or(0, |r| r.count as usize));
                    let mine: Vec<_> = slices.iter().filter(|s| s.uuid.0 == id).collect();
                    prop_assert!(mine.len() <= 1, "two slices of one card");
                    let Some(slice) = mine.first() else { continue };
                    running.push((1, slice.memory_mib, slice.cores));
                    let total = running.iter().fold((0, 0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1, sum.2 + r.2));
                    prop_assert!(total.0 <= slots && total.1 <= mem && total.2 <= core, "{} over: {:?}", id, total);
                    if claim.role == Role::Init { running.pop(); }
                }
                let roles: Vec<Role> = request.containers.iter().map(|c| c.role).collect();
                let held = base.plus(allocation.usage(&roles).get(id.as_str()).copied().unwrap_or_default());
                prop_assert!(held == base || (held.slots <= slots && held.memory_mib <= mem && held.cores <= core));
            }
        }
    }
}
