//! `atoll-controllers`.
