//! Where a Service's traffic goes.

mod backend;
pub mod endpoint_slices;
pub mod endpoints;
