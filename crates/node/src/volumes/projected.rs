//! Reads from the API what the files of a volume hold.

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapVolumeSource, Pod, ProjectedVolumeSource, Secret, SecretVolumeSource, Volume, VolumeProjection,
};
use kube::Api;

use super::atomic::{File, Files};
use super::content::{DEFAULT_MODE, of_config_map, of_downward, of_secret, pick};
use super::{Context, Volumes};
use crate::error::{Error, Result};

impl Volumes {
    /// The kubelet's name of the volume's kind and its files; `None` for a kind that has no files from the API.
    pub(super) async fn files(&self, context: &Context<'_>, volume: &Volume) -> Result<Option<(&'static str, Files)>> {
        let found = if let Some(secret) = &volume.secret {
            ("kubernetes.io~secret", self.secret(context, secret).await?)
        } else if let Some(map) = &volume.config_map {
            ("kubernetes.io~configmap", self.config_map(context, map).await?)
        } else if let Some(downward) = &volume.downward_api {
            let mode = downward.default_mode.unwrap_or(DEFAULT_MODE);
            let items = downward.items.as_deref().unwrap_or_default();
            let files = of_downward(context.pod, items, mode, context.addresses, context.allocatable);
            ("kubernetes.io~downward-api", files.map_err(Error::Volume)?)
        } else if let Some(projected) = &volume.projected {
            ("kubernetes.io~projected", self.projected(context, projected).await?)
        } else {
            return Ok(None);
        };
        Ok(Some(found))
    }

    async fn secret(&self, context: &Context<'_>, source: &SecretVolumeSource) -> Result<Files> {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let optional = source.optional == Some(true);
        let secret = self.get::<Secret>(context, "secret", name, optional).await?;
        let data = secret.as_ref().map(of_secret).unwrap_or_default();
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        pick(&data, source.items.as_ref(), mode, optional, "secret").map_err(Error::Volume)
    }

    async fn config_map(&self, context: &Context<'_>, source: &ConfigMapVolumeSource) -> Result<Files> {
        let optional = source.optional == Some(true);
        let map = self.get::<ConfigMap>(context, "configmap", &source.name, optional).await?;
        let data = map.as_ref().map(of_config_map).unwrap_or_default();
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        pick(&data, source.items.as_ref(), mode, optional, "configmap").map_err(Error::Volume)
    }

    async fn get<K>(&self, context: &Context<'_>, what: &str, name: &str, optional: bool) -> Result<Option<K>>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), context.namespace());
        match api.get_opt(name).await? {
            Some(object) => Ok(Some(object)),
            None if optional => Ok(None),
            None => Err(Error::Volume(format!("{what} {name:?} not found"))),
        }
    }

    async fn projected(&self, context: &Context<'_>, source: &ProjectedVolumeSource) -> Result<Files> {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let mut files = Files::new();
        for projection in source.sources.iter().flatten() {
            files.extend(self.projection(context, projection, mode).await?);
        }
        Ok(files)
    }

    async fn projection(&self, context: &Context<'_>, from: &VolumeProjection, mode: i32) -> Result<Files> {
        if let Some(secret) = &from.secret {
            let source = SecretVolumeSource {
                secret_name: Some(secret.name.clone()),
                items: secret.items.clone(),
                optional: secret.optional,
                default_mode: Some(mode),
            };
            return self.secret(context, &source).await;
        }
        if let Some(map) = &from.config_map {
            let source = ConfigMapVolumeSource {
                name: map.name.clone(),
                items: map.items.clone(),
                optional: map.optional,
                default_mode: Some(mode),
            };
            return self.config_map(context, &source).await;
        }
        if let Some(downward) = &from.downward_api {
            let items = downward.items.as_deref().unwrap_or_default();
            return of_downward(context.pod, items, mode, context.addresses, context.allocatable).map_err(Error::Volume);
        }
        if let Some(token) = &from.service_account_token {
            let content = self.tokens.get(&self.client, context.pod, token).await?.into_bytes();
            // A token is for its own user alone, where there is one and no group shares the volume.
            let owner = single_user(context.pod).filter(|_| context.fs_group().is_none());
            let mode = if owner.is_some() { 0o600 } else { mode as u32 };
            return Ok(Files::from([(token.path.clone(), File { content, mode, uid: owner })]));
        }
        Err(Error::Volume("a projected source of this kind is not supported by this node".to_owned()))
    }
}

/// The one user that all containers of a Pod run as, if they say so.
pub(super) fn single_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|c| c.run_as_user);
    let mut users =
        crate::pods::resources::containers(pod).map(|c| c.security_context.as_ref().and_then(|s| s.run_as_user).or(of_pod));
    let first = users.next()??;
    users.all(|u| u == Some(first)).then_some(first).and_then(|u| u32::try_from(u).ok())
}
