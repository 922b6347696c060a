//! Work that ends.

mod cron;
pub mod cron_job;
mod indexes;
pub mod job;
mod job_status;
pub mod ttl;
