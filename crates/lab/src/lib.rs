//! `atoll-lab`.
