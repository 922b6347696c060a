//! The plugin point of the scheduler, filled with the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use atoll_devices::ledger::{Ask, NodeUnfit, Observed};
use atoll_devices::names::{NodeName, PodUid, annotation, resource};
use atoll_devices::selection::NodePolicy;
use atoll_devices::{Ledger, RequestDefaults, inventory};
use atoll_scheduler::Wake;
use atoll_scheduler::plugin::{Candidates, Cycle, Plugin, Rejection, Reservation};
use atoll_scheduler::snapshot::{NodeInfo, PodInfo, Snapshot};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::decision::{self, PodKey, Standing};
use super::events::{Events, What};
use crate::limits;

/// A node's cards decide before everything else: HAMi names one node, whatever else would be said about it.
const WEIGHT: i64 = 1_000_000;

/// Places by cards. Clones share everything.
#[derive(Clone)]
pub struct Devices {
    /// Who has what.
    pub ledger: Ledger,
    /// Defaults of requests.
    pub defaults: RequestDefaults,
    /// Policy among nodes if the Pod names none.
    pub node_policy: NodePolicy,
    /// Events on Pods.
    pub events: Events,
    /// Tells the scheduler that something became free.
    pub wake: Wake,
    /// For what is written outside of a binding.
    pub client: kube::Client,
}

/// What the points of one cycle pass on.
struct Asked {
    ask: Ask,
    unfit: BTreeMap<String, NodeUnfit>,
}

impl Devices {
    fn ask(&self, pod: &Pod) -> Result<Option<Ask>, Rejection> {
        let Some(view) = crate::view(pod) else { return Ok(None) };
        Ask::of_pod(&view, &self.defaults).map_err(|error| Rejection::unresolvable(error.to_string()))
    }

    fn node_failed(&self, node: &Node) -> Option<String> {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let offered = allocatable.and_then(|allocatable| allocatable.get(resource::GPU));
        // Without a plugin the kubelet would refuse every Pod that is sent there.
        let count = offered.and_then(|quantity| atoll_devices::quantity::whole(&quantity.0)).unwrap_or(0);
        (count <= 0).then(|| format!("no device plugin offers {} there", resource::GPU))
    }

    /// A decision on a Pod without a node that now fits nowhere would hold its slices for ever: it is taken off.
    fn withdraw(&self, pod: &Pod) {
        let uid = PodUid::from(pod.metadata.uid.clone().unwrap_or_default());
        let undone = self.ledger.entry(&uid).is_some() && crate::view(pod).is_some_and(|view| decision::is_undone(&view));
        if undone && let Some(version) = pod.metadata.resource_version.clone() {
            withdraw_soon(self.client.clone(), PodKey::of(pod), version);
        }
    }
}

/// The message of `FilteringFailed`.
pub fn no_node(unfit: &BTreeMap<String, impl std::fmt::Display>) -> String {
    let reasons: Vec<String> = unfit.iter().map(|(node, why)| format!("{node}: {why}")).collect();
    format!("no available node, {} nodes do not meet: {}", unfit.len(), reasons.join("; "))
}

/// Withdraws beside everything else; the ledger follows when the change comes back by the watch.
fn withdraw_soon(client: kube::Client, key: PodKey, version: String) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        if let Err(error) = decision::withdraw(&client, &key, &version).await {
            // A conflict means that the Pod was written to since, so the decision is not this one any more.
            tracing::debug!(pod = key.name, namespace = key.namespace, %error, "decision was not withdrawn");
        }
    });
}

/// Takes a failed decision off its Pod and only then gives its slices back.
async fn give_back(client: kube::Client, key: PodKey, mut version: String, reservation: atoll_devices::Reservation) {
    let mut attempt = 0;
    // A newer decision on the same Pod writes over this one's annotations itself.
    while reservation.is_current() && attempt < limits::DECISION_ATTEMPTS_MAX {
        attempt += 1;
        match decision::withdraw(&client, &key, &version).await {
            Ok(()) => return,
            Err(error) => tracing::debug!(pod = key.name, namespace = key.namespace, %error, "decision was not withdrawn"),
        }
        match decision::standing(&client, &key, reservation.allocation()).await {
            Ok(Standing::Claimed(now)) => version = now,
            Ok(Standing::Clear) => return,
            // Bound after all; the watch will say so, and until then it counts.
            Ok(Standing::Bound) => break,
            Err(error) => tracing::debug!(pod = key.name, namespace = key.namespace, %error, "pod was not read"),
        }
    }
    if reservation.is_current() {
        // The claim may still be on the Pod: it counts until the Pod is planned again or gone.
        reservation.confirm();
    }
}

impl Plugin for Devices {
    fn name(&self) -> &'static str {
        "HAMi"
    }

    fn pre_filter(&self, cycle: &mut Cycle, pod: &PodInfo, snapshot: &Snapshot) -> Result<Candidates, Rejection> {
        let ask = match self.ask(&pod.pod) {
            Ok(Some(ask)) => ask,
            Ok(None) => return Ok(Candidates::All),
            Err(rejection) => {
                self.events.tell(What::FilteringFailed, &pod.pod, rejection.reasons.join(", "));
                return Err(rejection);
            }
        };
        let unfit = self.ledger.unfit(&ask, snapshot.nodes.keys().map(String::as_str));
        if unfit.len() == snapshot.nodes.len() {
            self.events.tell(What::FilteringFailed, &pod.pod, no_node(&unfit));
            self.withdraw(&pod.pod);
        }
        cycle.put(Asked { ask, unfit });
        Ok(Candidates::All)
    }

    fn filter(&self, cycle: &Cycle, _pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let unfit = cycle.get::<Asked>().and_then(|asked| asked.unfit.get(node.name()));
        match unfit {
            None => Ok(()),
            Some(NodeUnfit::Cards(unfit)) => Err(Rejection::new(unfit.to_string())),
            Some(other) => Err(Rejection::unresolvable(other.to_string())),
        }
    }

    fn score(&self, cycle: &Cycle, _pod: &PodInfo, node: &NodeInfo) -> Option<i64> {
        let ask = &cycle.get::<Asked>()?.ask;
        let fullness = self.ledger.node_score(&NodeName::from(node.name()), &ask.uid)?;
        // 0 to 30 becomes whole numbers fine enough to tell any two nodes apart.
        let fullness = (fullness * 1e6) as i64;
        if self.ledger.entry(&ask.uid).is_some_and(|(decided, _)| decided.0 == node.name()) {
            // An earlier decision that still serves stays: a binding of it may be on its way.
            return Some(i64::MAX / WEIGHT / 4);
        }
        Some(match ask.selection.node_policy.unwrap_or(self.node_policy) {
            NodePolicy::Binpack => fullness,
            NodePolicy::Spread => -fullness,
        })
    }

    fn weight(&self) -> i64 {
        WEIGHT
    }

    fn reserve(&self, pod: &PodInfo, node: &NodeInfo) -> Result<Option<Box<dyn Reservation>>, Rejection> {
        let Some(ask) = self.ask(&pod.pod)? else { return Ok(None) };
        let name = NodeName::from(node.name());
        let reservation = self.ledger.reserve(&ask, &name).map_err(|unfit| Rejection::new(unfit.to_string()))?;
        let message = format!("node {name} chosen, devices {}", reservation.allocation().encode());
        self.events.tell(What::FilteringSucceed, &pod.pod, message);
        Ok(Some(Box::new(Promise {
            reservation: Some(reservation),
            pod: pod.pod.clone(),
            written: None,
            events: self.events.clone(),
            client: self.client.clone(),
        })))
    }

    fn pod_changed(&self, pod: &Pod) {
        let Some(view) = crate::view(pod) else { return };
        if self.ledger.observe(&view) == Observed::Freed {
            self.wake.wake();
        }
    }

    fn pod_removed(&self, pod: &Pod) {
        if self.ledger.release(&PodUid::from(pod.metadata.uid.clone().unwrap_or_default())) {
            self.wake.wake();
        }
    }

    fn node_changed(&self, node: &Node) {
        let name = NodeName::from(node.metadata.name.clone().unwrap_or_default());
        let annotations = node.metadata.annotations.as_ref();
        let text = |key: &str| annotations.and_then(|annotations| annotations.get(key)).filter(|text| !text.is_empty());
        let Some(register) = text(annotation::NODE_REGISTER) else {
            self.ledger.remove_node(&name);
            return;
        };
        let cards = match self.node_failed(node) {
            Some(problem) => Err(problem),
            None => inventory::decode(register).map_err(|error| error.to_string()),
        };
        let cordoned = text(annotation::NODE_CORDON).map(|text| inventory::decode_cordon(text)).unwrap_or_default();
        if self.ledger.set_node(&name, cards, &cordoned) {
            self.wake.wake();
        }
    }

    fn node_removed(&self, name: &str) {
        self.ledger.remove_node(&NodeName::from(name));
    }
}

/// A reservation on its way to be a binding.
struct Promise {
    reservation: Option<atoll_devices::Reservation>,
    pod: Arc<Pod>,
    /// The Pod's version with the decision on it.
    written: Option<String>,
    events: Events,
    client: kube::Client,
}

#[async_trait::async_trait]
impl Reservation for Promise {
    async fn pre_bind(&mut self, client: &kube::Client, pod: &Pod, _node: &str) -> atoll_scheduler::Result<()> {
        let Some(reservation) = &self.reservation else { return Ok(()) };
        let written = decision::write(client, pod, reservation.node(), reservation.allocation()).await;
        let failed = |error: crate::Error| atoll_scheduler::Error::Plugin { plugin: "HAMi", message: error.to_string() };
        self.written = Some(written.map_err(failed)?);
        Ok(())
    }

    fn resource_version(&self) -> Option<&str> {
        self.written.as_deref()
    }

    fn commit(mut self: Box<Self>) {
        if let Some(reservation) = self.reservation.take() {
            let message = format!("bound to node {}", reservation.node());
            reservation.confirm();
            self.events.tell(What::BindingSucceed, &self.pod, message);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        let message = format!("not bound to node {}; it is tried again", reservation.node());
        self.events.tell(What::BindingFailed, &self.pod, message);
        if let (Some(version), Ok(runtime)) = (self.written.take(), tokio::runtime::Handle::try_current()) {
            // What the Pod's annotations claim is not free before they are gone.
            runtime.spawn(give_back(self.client.clone(), PodKey::of(&self.pod), version, reservation));
        }
    }
}
