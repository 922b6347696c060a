use super::allocation::{Choice, Given, choice, pick};
use super::*;

fn ids(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn devices_left_behind_come_first_then_preferred_ones() {
    let healthy = ids(&["a", "b", "c", "d"]);
    let choice = choice(&healthy, &BTreeSet::from(["a", "b"]), &ids(&["b", "x"]));
    assert_eq!(choice, Choice { reusable: vec!["b".into()], free: vec!["c".into(), "d".into()] });
    assert_eq!(pick(&choice, &["d".into(), "a".into()], 2), Some(ids(&["b", "d"])));
    assert_eq!(pick(&choice, &[], 4), None, "a is another container's");
}

#[test]
fn only_extended_names_can_be_registered() {
    for (name, expected) in
        [("nvidia.com/gpu", true), ("cpu", false), ("kubernetes.io/x", false), ("node.kubernetes.io/x", false), ("a.b/", false)]
    {
        assert_eq!(is_extended(name), expected, "{name}");
    }
}

#[test]
fn allocations_survive_a_restart_and_their_resources_count_zero_until_the_plugin_is_back() {
    let root = tempfile::tempdir().unwrap();
    let paths = NodePaths::new(root.path());
    paths.create().unwrap();
    let devices = Devices::load(paths.clone()).unwrap();
    {
        let mut inner = devices.inner.lock();
        inner.remembered.insert("nvidia.com/gpu".into());
        let env = BTreeMap::from([("CARD".to_owned(), "GPU-1".to_owned())]);
        let mounts = vec![("/usr/local/vgpu".to_owned(), "/vgpu".to_owned(), true)];
        let given = Given { ids: ids(&["GPU-1-0"]), env, mounts, ..Given::default() };
        inner.allocations.insert("uid", "c", "nvidia.com/gpu", given);
    }
    devices.save();
    let devices = Devices::load(paths).unwrap();
    assert_eq!(devices.amounts(), BTreeMap::from([("nvidia.com/gpu".to_owned(), Amounts::default())]));
    let allocation = devices.allocation("uid", "c");
    assert_eq!(allocation.env, [("CARD".to_owned(), "GPU-1".to_owned())]);
    assert_eq!(allocation.mounts[0].base, root.path());
    devices.free("uid");
    assert_eq!(devices.allocation("uid", "c"), Allocation::default());
}

#[test]
fn a_registration_offers_nothing_and_is_asked_nothing_before_its_first_list() {
    let root = tempfile::tempdir().unwrap();
    let devices = Devices::load(NodePaths::new(root.path())).unwrap();
    let container = serde_json::json!({ "name": "c", "resources": { "limits": { "nvidia.com/gpumem": "4000" } } });
    let container = serde_json::from_value(container).unwrap();
    let registration = devices.register("nvidia.com/gpumem", "mem.sock", Default::default());
    assert_eq!((devices.amounts(), devices.wants(&container)), (BTreeMap::new(), Vec::new()));
    assert!(devices.take_list("nvidia.com/gpumem", registration, Default::default()));
    assert_eq!(devices.amounts(), BTreeMap::from([("nvidia.com/gpumem".to_owned(), Amounts::default())]));
    assert_eq!(devices.wants(&container), [("nvidia.com/gpumem".to_owned(), 4000)]);
}
