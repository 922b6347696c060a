//! Volumes and claims.

pub mod binder;
pub mod directory;
pub mod protection;
