//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`: programs inside the cluster that change or refuse writes.
//!
//! Every call goes through the cluster's [`Dialer`](crate::egress::Dialer), by Service and by URL alike: nothing is dialled from
//! the hosting network on a tenant's word.

mod call;
mod conditions;
mod config;
mod mutate;
mod review;
mod validate;

use std::sync::Arc;

use async_trait::async_trait;

use super::{Attributes, Operation, Plugin};
use crate::cluster::Cluster;
use crate::error::Result;
use call::Caller;
use conditions::Conditions;

/// What both plugins share: TLS settings by CA, compiled conditions.
#[derive(Default)]
pub struct Webhooks {
    caller: Caller,
    conditions: Conditions,
}

#[derive(Clone)]
pub struct MutatingAdmissionWebhook(pub Arc<Webhooks>);

#[async_trait]
impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    async fn admit(&self, attributes: &mut Attributes, cluster: &Cluster) -> Result<()> {
        mutate::run(&self.0, attributes, cluster).await
    }
}

#[derive(Clone)]
pub struct ValidatingAdmissionWebhook(pub Arc<Webhooks>);

#[async_trait]
impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, _operation: Operation) -> bool {
        true
    }

    async fn validate(&self, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
        validate::run(&self.0, attributes, cluster).await
    }
}
