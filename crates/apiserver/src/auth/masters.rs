//! The group that may do everything, whatever RBAC says.

use async_trait::async_trait;

use super::{Attributes, Authorizer, Decision, MASTERS_GROUP};
use crate::cluster::Cluster;

#[derive(Debug, Default)]
pub struct MastersOnly;

#[async_trait]
impl Authorizer for MastersOnly {
    async fn authorize(&self, attributes: &Attributes, _: &Cluster) -> Decision {
        if attributes.user.in_group(MASTERS_GROUP) { Decision::Allow(String::new()) } else { Decision::NoOpinion(String::new()) }
    }
}
