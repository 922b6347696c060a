//! How the node makes itself known: credentials, the Node object and its status, the lease, the serving certificate.

pub mod credentials;
pub mod csr;
pub mod lease;
pub mod machine;
pub mod node;
pub mod serving;
pub mod status;
