//! Whose allocation is it? `v1beta1.Allocate` names device ids only (kubernetes issues 63048, 82606), so Atoll's node
//! agent adds the Pod UID and the container's name as gRPC metadata. A kubelet sends neither.

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

/// Metadata key of the Pod's UID on `Allocate`.
pub const POD_UID: &str = "atoll-pod-uid";
/// Metadata key of the container's name on `Allocate`.
pub const CONTAINER: &str = "atoll-container";

/// The container that an `Allocate` call is made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllocationIdentity {
    /// `metadata.uid` of the Pod.
    pub pod_uid: String,
    /// Name of the container, init containers included.
    pub container: String,
}

/// Why metadata does not carry an identity although it names one of its keys.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IdentityError {
    /// One key is there without the other.
    #[error("allocation metadata has no {0}")]
    Missing(&'static str),
    /// A value that cannot be, or is not, plain ASCII text.
    #[error("allocation metadata {0} is not plain text")]
    NotText(&'static str),
}

impl AllocationIdentity {
    /// Adds the identity to a request's metadata.
    pub fn write(&self, metadata: &mut MetadataMap) -> Result<(), IdentityError> {
        metadata.insert(POD_UID, ascii(POD_UID, &self.pod_uid)?);
        metadata.insert(CONTAINER, ascii(CONTAINER, &self.container)?);
        Ok(())
    }

    /// The identity in `metadata`; `None` under a kubelet, which sends neither key. Half an identity is an error: a
    /// plugin that guessed the rest could serve another Pod's record.
    pub fn read(metadata: &MetadataMap) -> Result<Option<Self>, IdentityError> {
        match (metadata.get(POD_UID), metadata.get(CONTAINER)) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(IdentityError::Missing(CONTAINER)),
            (None, Some(_)) => Err(IdentityError::Missing(POD_UID)),
            (Some(pod_uid), Some(container)) => {
                Ok(Some(Self { pod_uid: text(POD_UID, pod_uid)?, container: text(CONTAINER, container)? }))
            }
        }
    }
}

fn ascii(key: &'static str, value: &str) -> Result<MetadataValue<Ascii>, IdentityError> {
    value.parse().map_err(|_| IdentityError::NotText(key))
}

fn text(key: &'static str, value: &MetadataValue<Ascii>) -> Result<String, IdentityError> {
    value.to_str().map(str::to_owned).map_err(|_| IdentityError::NotText(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_the_wire_and_a_kubelet_sends_none() {
        let identity = AllocationIdentity { pod_uid: "3f1c".into(), container: "main".into() };
        let mut metadata = MetadataMap::new();
        assert_eq!(AllocationIdentity::read(&metadata), Ok(None));
        identity.write(&mut metadata).unwrap();
        assert_eq!(AllocationIdentity::read(&metadata), Ok(Some(identity)));
    }

    #[test]
    fn half_an_identity_is_refused() {
        let mut metadata = MetadataMap::new();
        metadata.insert(POD_UID, "3f1c".parse().unwrap());
        assert_eq!(AllocationIdentity::read(&metadata), Err(IdentityError::Missing(CONTAINER)));
    }
}
