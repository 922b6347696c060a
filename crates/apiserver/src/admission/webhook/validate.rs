//! Validating webhooks: all at once; each one's refusal refuses, the first in order is told.

use futures::future::join_all;
use tracing::warn;

use super::config::{self, Webhook};
use super::{Webhooks, review};
use crate::admission::Attributes;
use crate::cluster::Cluster;
use crate::error::Result;

const PLURAL: &str = "validatingwebhookconfigurations";

pub(super) async fn run(shared: &Webhooks, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
    let webhooks = config::webhooks(cluster, PLURAL, attributes).await?;
    let mut concerned = Vec::new();
    for webhook in webhooks {
        if config::concerns(shared, &webhook, attributes, cluster).await? {
            concerned.push(webhook);
        }
    }
    let outcomes = join_all(concerned.iter().map(|webhook| ask(shared, webhook, attributes, cluster))).await;
    outcomes.into_iter().collect()
}

async fn ask(shared: &Webhooks, webhook: &Webhook, attributes: &Attributes, cluster: &Cluster) -> Result<()> {
    let verdict = match shared.caller.call(webhook, attributes, cluster, false).await {
        Ok(verdict) => verdict,
        Err(error) if webhook.ignores_failures() => {
            warn!(webhook = webhook.name, code = error.word, "webhook failed open");
            return Ok(());
        }
        Err(error) => return Err(error.into_api_error(webhook)),
    };
    for warning in &verdict.warnings {
        attributes.warnings.add(warning.as_str());
    }
    verdict.refusal.map_or(Ok(()), |status| Err(review::refused(&webhook.name, &status)))
}
