//! The store as its callers meet it.
#![allow(clippy::unwrap_used)]

mod basics;
mod erase;
mod model;
mod support;
