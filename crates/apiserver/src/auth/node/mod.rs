//! Nodes: what a kubelet may read and write, by what runs on it.

mod authorizer;
mod graph;
mod restriction;
mod restriction_nodes;

pub use authorizer::NodeAuthorizer;
pub use restriction::NodeRestriction;

use super::UserInfo;

const USER_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
/// Where nodes keep their leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Whether a user is a node.
pub fn is_node(user: &UserInfo) -> bool {
    node_of(user).is_some()
}

/// Whether a user is a node, and which: empty for one whose name says none.
fn node_of(user: &UserInfo) -> Option<&str> {
    if !user.in_group(NODES_GROUP) {
        return None;
    }
    user.name.strip_prefix(USER_PREFIX)
}
