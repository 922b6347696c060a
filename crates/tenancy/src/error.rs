//! What can go wrong while a tenant is reconciled.

/// The operator's errors. Each is retried; the text goes into the tenant's condition.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {source}")]
    Api { what: String, source: Box<kube::Error> },
    #[error(transparent)]
    Pki(#[from] atoll_pki::Error),
    #[error("the kubeconfig of {0} is not usable: {1}")]
    Tenant(String, String),
    #[error("Secret {0} has no key {1}: delete the Secret to have it made anew")]
    SecretKey(String, &'static str),
    #[error("a built-in manifest does not parse: {0}")]
    Manifest(String),
}

impl Error {
    pub(crate) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
        let what = what.into();
        move |source| Error::Api { what, source: Box::new(source) }
    }

    /// What a condition's `reason` says.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Api { .. } => "ManagementApiError",
            Error::Pki(_) | Error::SecretKey(..) => "CertificateError",
            Error::Tenant(..) => "TenantApiError",
            Error::Manifest(_) => "InternalError",
        }
    }
}
