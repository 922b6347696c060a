//! `atoll-tenancy`.
