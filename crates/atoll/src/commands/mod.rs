//! One file per command.

pub mod control_plane;
