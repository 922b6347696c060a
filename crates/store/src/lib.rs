//! `atoll-store`.
