//! The custom resource definitions that the management cluster needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};

use crate::{Error, names};

const MANIFESTS: [&str; 4] = [
    include_str!("../../../deploy/crds/kamaji-tenantcontrolplane.yaml"),
    include_str!("../../../deploy/crds/kamaji-datastore.yaml"),
    include_str!("../../../deploy/crds/metallb-ipaddresspool.yaml"),
    include_str!("../../../deploy/crds/metallb-l2advertisement.yaml"),
];

/// The definitions, parsed.
pub fn definitions() -> Result<Vec<CustomResourceDefinition>, Error> {
    MANIFESTS.iter().map(|text| serde_saphyr::from_str(text).map_err(|e| Error::Manifest(e.to_string()))).collect()
}

/// Applies the definitions and waits until each is served.
pub async fn install(client: &Client) -> Result<(), Error> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions()? {
        let name = definition.name_any();
        let params = PatchParams::apply(names::FIELD_MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(&definition)).await.map_err(Error::api(format!("apply CRD {name}")))?;
        kube::runtime::wait::await_condition(api.clone(), &name, kube::runtime::conditions::is_crd_established())
            .await
            .map_err(|e| Error::Manifest(format!("CRD {name} was not established: {e}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_parses_and_has_kamajis_columns() {
        let all = definitions().expect("definitions");
        let tenant = &all[0].spec.versions[0];
        let columns: Vec<&str> =
            tenant.additional_printer_columns.as_ref().expect("columns").iter().map(|c| c.name.as_str()).collect();
        let expected = ["Version", "Installed Version", "Status", "Control-Plane endpoint", "Kubeconfig", "Datastore", "Age"];
        assert_eq!(columns, expected);
        assert_eq!(all.len(), 4);
    }
}
