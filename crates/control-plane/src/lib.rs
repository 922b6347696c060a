//! `atoll-control-plane`.
