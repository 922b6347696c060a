//! Putting the platform up on one machine, looking at it, taking it down.

mod dirs;
mod error;
pub mod net;
pub mod process;

pub use dirs::{Dirs, Lock, install_binary};
pub use error::Error;
