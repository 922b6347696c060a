//! `atoll-gpu`.
