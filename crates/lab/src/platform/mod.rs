//! Putting the platform up on one machine, looking at it, taking it down.

pub mod cluster;
mod dirs;
mod down;
mod error;
pub mod gpu;
mod keeper;
pub mod net;
pub mod process;
pub mod tenants;
mod up;
pub mod workers;

pub use dirs::{Dirs, Lock, install_binary};
pub use down::down;
pub use error::Error;
pub use up::{Platform, UpOptions, read_options, up};
