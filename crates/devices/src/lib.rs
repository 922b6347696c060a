//! `atoll-devices`.
