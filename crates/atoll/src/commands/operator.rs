//! `atoll operator`: the tenancy operator alone.

use std::ops::RangeInclusive;

use atoll_tenancy::OperatorOptions;

use super::role::{self, ClusterArgs, Error};

/// Run the tenancy operator on any management cluster
///
/// Example: atoll operator --kubeconfig management.kubeconfig --image registry.example.com/atoll:0.1
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Image of Atoll, for control planes and tunnel agents
    #[arg(long)]
    image: String,
    /// User ids for tenants, FIRST-LAST: one each, not used again before the tenant's data is gone
    #[arg(long, default_value = "300000-309999", value_parser = parse_range)]
    user_ids: RangeInclusive<i64>,
    /// StorageClass of the tenants' data volumes [default: the cluster's default class]
    #[arg(long)]
    storage_class: Option<String>,
    /// Size of a tenant's data volume
    #[arg(long, default_value = "1Gi")]
    storage_size: String,
    /// Do not install the custom resource definitions
    #[arg(long)]
    without_crds: bool,
    /// Do not give addresses of IPAddressPools to LoadBalancer Services (another provider does)
    #[arg(long)]
    without_addresses: bool,
}

pub fn parse_range(text: &str) -> Result<RangeInclusive<i64>, String> {
    let wrong = || format!("{text:?} is no range; write it like 300000-309999");
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let (first, last) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    if first < 1 || first > last {
        return Err(wrong());
    }
    Ok(first..=last)
}

impl Args {
    pub fn run(self) -> Result<(), Error> {
        role::run(|shutdown| async move {
            let options = OperatorOptions {
                image: self.image,
                user_ids: self.user_ids,
                storage_class: self.storage_class,
                storage_size: self.storage_size,
                install_crds: !self.without_crds,
                assign_addresses: !self.without_addresses,
            };
            Ok(atoll_tenancy::run(options, self.cluster.client().await?, shutdown).await?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_must_go_up_and_leave_out_root() {
        assert_eq!(parse_range("300000-309999"), Ok(300_000..=309_999));
        for wrong in ["", "5", "0-9", "9-1", "a-b"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
