//! The store as its callers meet it.
#![allow(clippy::unwrap_used)]

mod basics;
mod crash;
mod erase;
mod informers;
mod model;
mod support;
