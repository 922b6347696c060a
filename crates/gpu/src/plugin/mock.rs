//! HAMi's mock device plugin. Despite its name it fakes no cards: it makes the secondary resources known to the kubelet,
//! which counts them per container and hands out nothing for them.

use std::sync::Arc;

use atoll_devices::names::resource;
use atoll_node_protocol::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use tokio::sync::watch;
use tonic::{Request, Status};

use super::PluginOptions;
use super::inventory::{self, Cards};
use super::socket::{Allocator, DeviceSet, Resource, offer};
use crate::error::Result;
use crate::limits;

struct Nothing;

#[async_trait::async_trait]
impl Allocator for Nothing {
    fn prefers(&self) -> bool {
        false
    }

    async fn prefer(&self, _: Request<PreferredAllocationRequest>) -> Result<PreferredAllocationResponse, Status> {
        Ok(PreferredAllocationResponse::default())
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<AllocateResponse, Status> {
        let containers = request.into_inner().container_requests.len();
        Ok(AllocateResponse { container_responses: vec![ContainerAllocateResponse::default(); containers] })
    }
}

/// How many devices stand for the cards' amount of a resource.
fn amount(resource: &str, cards: &Cards, memory_factor: u64) -> u64 {
    let healthy = cards.iter().filter(|card| card.health);
    let amount = match resource {
        resource::MEMORY => healthy.map(|card| card.devmem).sum::<u64>() / memory_factor.max(1),
        resource::CORES => healthy.map(|card| u64::from(card.devcore)).sum(),
        resource::MEMORY_PERCENTAGE => healthy.map(|_| 100).sum(),
        _ => 0,
    };
    if amount > limits::MOCK_DEVICES_MAX {
        tracing::error!(resource, amount, "more devices than a registration holds; set a memory factor");
        return limits::MOCK_DEVICES_MAX;
    }
    amount
}

/// Offers `gpumem`, `gpucores` and `gpumem-percentage` of this node's cards until `shutdown` resolves.
pub async fn run(options: PluginOptions, client: kube::Client, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
    let (cards, _) = watch::channel(Cards::default());
    let (stop, stopped) = watch::channel(false);
    let mut tasks = tokio::task::JoinSet::new();
    for name in [resource::MEMORY, resource::CORES, resource::MEMORY_PERCENTAGE] {
        let (mut source, factor) = (cards.subscribe(), options.memory_factor);
        let (directory, stopped) = (options.socket_directory.clone(), stopped.clone());
        tasks.spawn(async move {
            // A resource of which there seems to be nothing would have the kubelet refuse Pods: it is offered once the cards
            // are known.
            if source.changed().await.is_err() {
                return;
            }
            let (devices, receiver) = watch::channel(DeviceSet::Numbered(amount(name, &source.borrow_and_update(), factor)));
            let follow = async move {
                while source.changed().await.is_ok() {
                    let new = DeviceSet::Numbered(amount(name, &source.borrow_and_update(), factor));
                    devices.send_if_modified(|current| std::mem::replace(current, new.clone()) != new);
                }
            };
            let resource = Resource { name, devices: receiver, allocator: Arc::new(Nothing) };
            tokio::join!(follow, offer(resource, directory, stopped));
        });
    }
    drop(stopped);
    tokio::select! {
        () = inventory::follow(client, options.node_name, cards) => {}
        () = shutdown => {}
    }
    let _ = stop.send(true);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_the_healthy_cards() {
        let cards = "2xA100-80GB".parse::<atoll_devices::cards::CardSpec>().unwrap().cards("w");
        let mut cards = Arc::new(cards);
        assert_eq!(amount(resource::MEMORY, &cards, 1), 163_840);
        assert_eq!(amount(resource::MEMORY, &cards, 256), 640);
        assert_eq!(amount(resource::CORES, &cards, 1), 200);
        assert_eq!(amount(resource::MEMORY_PERCENTAGE, &cards, 1), 200);
        Arc::make_mut(&mut cards)[0].health = false;
        assert_eq!(amount(resource::CORES, &cards, 1), 100);
    }
}
