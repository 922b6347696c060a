//! `Warning` headers that a request gathers on its way.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::limits;

/// Warnings of one request; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning; a repeated one and those beyond the bound are dropped.
    pub fn add(&self, text: impl Into<String>) {
        let text = text.into();
        let mut list = self.0.lock();
        let bytes: usize = list.iter().map(String::len).sum();
        if list.len() < limits::WARNINGS_MAX && bytes + text.len() <= limits::WARNING_BYTES_MAX && !list.contains(&text) {
            list.push(text);
        }
    }

    pub fn texts(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}
