//! `atoll-scheduler`.
