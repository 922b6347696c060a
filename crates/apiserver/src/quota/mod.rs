//! What objects use of a ResourceQuota: pure, shared by admission (which charges before a write) and the quota controller (which
//! counts what is there).

mod devices;
mod pod;
mod scopes;
mod usage;

pub use devices::DeviceView;
pub use scopes::applies;
pub use usage::{Usage, covered, exceeded, plus, positive_delta, usage_of};
