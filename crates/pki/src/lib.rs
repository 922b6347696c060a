//! `atoll-pki`.
