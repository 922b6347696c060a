//! `atoll-tunnel`.
