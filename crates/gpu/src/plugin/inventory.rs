//! The cards of this node, followed through its register annotation. Read only: whoever knows the cards writes it.

use std::sync::Arc;

use atoll_devices::inventory::{self, Card};
use atoll_devices::names::annotation;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::sync::watch;

/// The cards as last read. Unreadable or absent means none: what cannot be read is not handed out.
pub type Cards = Arc<Vec<Card>>;

/// Follows the node's annotation until the receivers are gone. Only changes are sent.
pub async fn follow(client: kube::Client, node_name: String, cards: watch::Sender<Cards>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={node_name}"));
    let mut events = watcher(Api::<Node>::all(client), config).default_backoff().boxed();
    loop {
        let event = tokio::select! {
            () = cards.closed() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(Event::Apply(node) | Event::InitApply(node))) => publish(&cards, of_node(&node)),
            Some(Ok(Event::Delete(_))) => publish(&cards, Vec::new()),
            Some(Ok(Event::Init | Event::InitDone)) => {}
            Some(Err(error)) => tracing::warn!(%error, "watch of the node"),
            None => return,
        }
    }
}

fn of_node(node: &Node) -> Vec<Card> {
    let text = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation::NODE_REGISTER));
    match text.map(|text| inventory::decode(text)).transpose() {
        Ok(cards) => cards.unwrap_or_default(),
        Err(error) => {
            tracing::error!(%error, "no card is offered");
            Vec::new()
        }
    }
}

fn publish(cards: &watch::Sender<Cards>, new: Vec<Card>) {
    cards.send_if_modified(|current| {
        let changed = **current != new;
        if changed {
            tracing::info!(cards = new.len(), "cards of this node");
            *current = Arc::new(new);
        }
        changed
    });
}
