//! `atoll-kube-schema`.
