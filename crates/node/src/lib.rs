//! `atoll-node`.
