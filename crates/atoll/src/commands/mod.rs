//! One file per command.

pub mod control_plane;
pub mod controllers;
pub mod example;
pub mod gpu;
mod health;
pub mod lab;
pub mod node;
pub mod operator;
pub mod platform;
pub mod role;
pub mod scheduler;
pub mod tenant;
pub mod tunnel_agent;
