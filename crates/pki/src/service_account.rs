//! The key that signs service-account tokens (ES256).

use crate::Error;

/// A service-account signing key.
#[derive(Debug)]
pub struct ServiceAccountKey {
    key: rcgen::KeyPair,
}

impl ServiceAccountKey {
    pub fn generate() -> Result<Self, Error> {
        Ok(ServiceAccountKey { key: rcgen::KeyPair::generate()? })
    }

    /// Loads a key from its PKCS#8 PEM.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        let key = rcgen::KeyPair::from_pem(pem).map_err(|e| Error::malformed("private key", e))?;
        Ok(ServiceAccountKey { key })
    }

    /// PKCS#8 PEM of the private key (`sa.key`).
    pub fn private_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// PEM of the public key (`sa.pub`).
    pub fn public_pem(&self) -> String {
        self.key.public_key_pem()
    }

    /// The uncompressed point `0x04 ‖ X ‖ Y` of the public key, 65 bytes: what a JWK's `x` and `y` are made of.
    pub fn public_point(&self) -> &[u8] {
        self.key.public_key_raw()
    }
}
