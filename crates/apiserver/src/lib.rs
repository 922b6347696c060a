//! `atoll-apiserver`.
