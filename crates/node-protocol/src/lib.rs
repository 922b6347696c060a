//! `atoll-node-protocol`.
