//! Allocate against an API server of two Pods: who gets what, and what is written about it.

use std::collections::HashMap;

use atoll_node_protocol::device_plugin::{ContainerAllocateRequest, ContainerAllocateResponse};
use atoll_node_protocol::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use atoll_node_protocol::pod_resources::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources, GetPodResourcesRequest,
    GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use http_body_util::BodyExt;
use parking_lot::Mutex as SyncMutex;
use serde_json::Value;
use tonic::Response;

use super::*;

/// Serves list, get and merge patch of Pods, with resourceVersions that are compared.
#[derive(Clone, Default)]
struct Pods(Arc<SyncMutex<HashMap<String, Value>>>);

impl Pods {
    fn add(&self, name: &str, counts: &[u32], allocated: &str) {
        let containers: Vec<Value> = counts
            .iter()
            .enumerate()
            .map(|(at, count)| json!({"name": format!("c{at}"), "resources": {"limits": {"nvidia.com/gpu": count.to_string()}}}))
            .collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "d", "uid": format!("uid-{name}"), "resourceVersion": "1", "annotations": {
                "hami.io/vgpu-node": "n", "hami.io/bind-phase": "allocating", "hami.io/bind-time": "1",
                "hami.io/vgpu-devices-to-allocate": allocated, "hami.io/vgpu-devices-allocated": allocated}},
            "spec": {"nodeName": "n", "containers": containers}, "status": {"phase": "Pending"}});
        self.0.lock().insert(name.to_owned(), pod);
    }

    fn annotation(&self, pod: &str, key: &str) -> String {
        self.0.lock()[pod]["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
    }

    fn answer(&self, method: &http::Method, path: &str, body: &[u8]) -> (u16, Value) {
        let mut pods = self.0.lock();
        let name = path.rsplit('/').next().unwrap_or_default();
        if path.ends_with("/pods") {
            let items: Vec<&Value> = pods.values().collect();
            return (200, json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}));
        }
        let Some(pod) = pods.get_mut(name) else {
            return (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": name}));
        };
        if method == http::Method::DELETE {
            return (200, pods.remove(name).unwrap_or_default());
        }
        if method == http::Method::PATCH {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let version = &patch["metadata"]["resourceVersion"];
            if version.is_string() && *version != pod["metadata"]["resourceVersion"] {
                return (409, json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"}));
            }
            json_patch::merge(pod, &patch);
            let next = pod["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() + 1;
            pod["metadata"]["resourceVersion"] = json!(next.to_string());
        }
        (200, pod.clone())
    }

    fn client(&self) -> kube::Client {
        let pods = self.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let pods = pods.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
                let (code, answer) = pods.answer(&head.method, head.uri.path(), &body);
                let answer = kube::client::Body::from(answer.to_string().into_bytes());
                http::Response::builder().status(code).body(answer).map_err(|error| error.to_string())
            }
        });
        kube::Client::new(service, "default")
    }
}

fn plugin(pods: &Pods) -> Recorded {
    let cards = atoll_devices::inventory::decode("GPU-a,10,8000,100,T4,0,true:GPU-b,10,8000,100,T4,0,true").unwrap();
    Recorded {
        client: pods.client(),
        node: "n".to_owned(),
        cards: watch::channel(Arc::new(cards)).1,
        defaults: RequestDefaults::default(),
        hook: None,
        shape: Mutex::new(()),
        open: Open::default(),
    }
}

async fn allocate(plugin: &Recorded, identity: Option<(&str, &str)>, ids: &[&str]) -> Result<ContainerAllocateResponse, Status> {
    let devices_ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let mut request = Request::new(AllocateRequest { container_requests: vec![ContainerAllocateRequest { devices_ids }] });
    if let Some((pod, container)) = identity {
        let identity = AllocationIdentity { pod_uid: format!("uid-{pod}"), container: container.to_owned() };
        identity.write(request.metadata_mut()).unwrap();
    }
    Ok(plugin.allocate(request).await?.container_responses.remove(0))
}

fn card(response: &ContainerAllocateResponse) -> &str {
    &response.envs["NVIDIA_VISIBLE_DEVICES"]
}

/// HAMi's acceptance case 33, and two Pods of one shape on different cards.
#[tokio::test]
async fn each_container_gets_what_its_own_pods_annotation_says() {
    let pods = Pods::default();
    pods.add("p", &[1, 1], "GPU-a,NVIDIA,500,3:;GPU-b,NVIDIA,600,4:;");
    pods.add("q", &[1], "GPU-b,NVIDIA,500,3:;");
    let plugin = plugin(&pods);
    // The ids that the node agent took are of other cards; the record counts.
    let q = allocate(&plugin, Some(("q", "c0")), &["GPU-a-0"]).await.unwrap();
    assert_eq!((card(&q), q.envs["CUDA_DEVICE_MEMORY_LIMIT_0"].as_str()), ("GPU-b", "500m"));
    let second = allocate(&plugin, Some(("p", "c1")), &["GPU-a-1"]).await.unwrap();
    assert_eq!((card(&second), second.envs["CUDA_DEVICE_SM_LIMIT"].as_str()), ("GPU-b", "4"));
    assert_eq!(pods.annotation("p", annotation::BIND_PHASE), "allocating");
    assert_eq!(pods.annotation("p", annotation::TO_ALLOCATE), "GPU-a,NVIDIA,500,3:;;");
    assert_eq!(card(&allocate(&plugin, Some(("p", "c0")), &["GPU-a-2"]).await.unwrap()), "GPU-a");
    assert_eq!(pods.annotation("p", annotation::BIND_PHASE), "success");
    assert_eq!(pods.annotation("p", annotation::TO_ALLOCATE), ";;");
    // Asked again, after an agent's restart say, the answer is the same.
    assert_eq!(card(&allocate(&plugin, Some(("p", "c0")), &["GPU-a-2"]).await.unwrap()), "GPU-a");
    assert_eq!(pods.annotation("p", annotation::ALLOCATED), "GPU-a,NVIDIA,500,3:;GPU-b,NVIDIA,600,4:;");
}

#[tokio::test]
async fn a_request_that_the_record_does_not_cover_fails_and_says_why() {
    let pods = Pods::default();
    pods.add("p", &[1], "GPU-a,NVIDIA,500,3:;");
    let plugin = plugin(&pods);
    let refusal = allocate(&plugin, Some(("p", "c0")), &["GPU-a-0", "GPU-b-0"]).await.unwrap_err();
    assert!(refusal.message().contains("pod d/p device number not matched"), "{}", refusal.message());
    assert_eq!(pods.annotation("p", annotation::BIND_PHASE), "failed");
}

#[tokio::test]
async fn a_kubelet_without_identities_gets_each_record_once() {
    let pods = Pods::default();
    pods.add("p", &[1], "GPU-a,NVIDIA,500,3:;");
    pods.add("q", &[1], "GPU-b,NVIDIA,600,3:;");
    let plugin = plugin(&pods);
    assert_eq!(card(&allocate(&plugin, None, &["GPU-b-0"]).await.unwrap()), "GPU-b");
    assert_eq!(pods.annotation("q", annotation::BIND_PHASE), "success");
    assert_eq!(card(&allocate(&plugin, None, &["GPU-b-1"]).await.unwrap()), "GPU-a", "the one that still waits");
    assert!(allocate(&plugin, None, &["GPU-a-1"]).await.unwrap_err().message().contains("waits for 1 devices"));
}

/// A kubelet that says which Pod's first container has which devices.
#[derive(Clone, Default)]
struct Kubelet(Arc<SyncMutex<Vec<(String, String)>>>);

#[tonic::async_trait]
impl PodResourcesLister for Kubelet {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod = |(pod, id): &(String, String)| {
            let devices =
                ContainerDevices { resource_name: "nvidia.com/gpu".into(), device_ids: vec![id.clone()], topology: None };
            let container = ContainerResources { name: "c0".into(), devices: vec![devices], ..ContainerResources::default() };
            PodResources { name: pod.clone(), namespace: "d".into(), containers: vec![container] }
        };
        Ok(Response::new(ListPodResourcesResponse { pod_resources: self.0.lock().iter().map(pod).collect() }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }

    async fn get(&self, _: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("not asked"))
    }
}

/// A kubelet's PodResources socket in `directory`.
fn serve_kubelet(directory: &std::path::Path) -> (Kubelet, std::path::PathBuf) {
    let (kubelet, socket) = (Kubelet::default(), directory.join("kubelet.sock"));
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(tokio::net::UnixListener::bind(&socket).unwrap());
    let service = PodResourcesListerServer::new(kubelet.clone());
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    (kubelet, socket)
}

#[tokio::test]
async fn equal_records_that_a_kubelet_swapped_are_exchanged() {
    let (pods, directory) = (Pods::default(), tempfile::tempdir().unwrap());
    pods.add("p", &[1], "GPU-a,NVIDIA,500,3:;");
    pods.add("q", &[1], "GPU-b,NVIDIA,500,3:;");
    let (plugin, (kubelet, socket)) = (plugin(&pods), serve_kubelet(directory.path()));
    assert_eq!(card(&allocate(&plugin, None, &["GPU-a-0"]).await.unwrap()), "GPU-a");
    kubelet.0.lock().push(("q".into(), "GPU-a-0".into()));
    settle::once(&plugin.client, &socket, &plugin.open).await.unwrap();
    assert_eq!(pods.annotation("q", annotation::ALLOCATED), "GPU-a,NVIDIA,500,3:;");
    assert_eq!(pods.annotation("q", annotation::BIND_PHASE), "success");
    assert_eq!(pods.annotation("p", annotation::ALLOCATED), "GPU-b,NVIDIA,500,3:;");
    assert_eq!(card(&allocate(&plugin, None, &["GPU-b-0"]).await.unwrap()), "GPU-b");
    kubelet.0.lock().push(("p".into(), "GPU-b-0".into()));
    settle::once(&plugin.client, &socket, &plugin.open).await.unwrap();
    assert_eq!(pods.annotation("p", annotation::ALLOCATED), "GPU-b,NVIDIA,500,3:;");
    assert_eq!(pods.annotation("p", annotation::BIND_PHASE), "success");
}

#[tokio::test]
async fn a_pod_that_was_given_other_limits_than_its_own_is_ended() {
    let (pods, directory) = (Pods::default(), tempfile::tempdir().unwrap());
    pods.add("p", &[1], "GPU-a,NVIDIA,500,3:;");
    pods.add("q", &[1], "GPU-b,NVIDIA,900,3:;");
    let (plugin, (kubelet, socket)) = (plugin(&pods), serve_kubelet(directory.path()));
    allocate(&plugin, None, &["GPU-a-0"]).await.unwrap();
    kubelet.0.lock().push(("q".into(), "GPU-a-0".into()));
    settle::once(&plugin.client, &socket, &plugin.open).await.unwrap();
    assert!(!pods.0.lock().contains_key("q"));
    assert_eq!(pods.annotation("p", annotation::ALLOCATED), "GPU-a,NVIDIA,500,3:;");
    assert_eq!(card(&allocate(&plugin, None, &["GPU-a-1"]).await.unwrap()), "GPU-a", "p still gets what was meant for it");
}
