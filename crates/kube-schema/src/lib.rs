//! What a Kubernetes object is.
//!
//! Owns the registry of resource definitions and field schemas, built-in and custom alike, and every walk over them: decode,
//! prune, default, validate, the patch kinds, server-side apply, protobuf, tables, OpenAPI, selectors.
//!
//! Invariants: no IO, no clock, no randomness; a walk never knows whether a kind is built in; a kind's peculiarities are columns
//! of its row. It deliberately does not know HTTP, storage, users or admission.

pub mod apply;
pub mod convert;
pub mod decode;
pub mod defaults;
pub mod discovery;
pub mod limits;
pub mod openapi;
pub mod patch;
pub mod prepare;
pub mod print;
pub mod protobuf;
pub mod quantity;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod structural;
pub mod table;
pub mod timestamp;
pub mod validation;
pub mod warnings;

pub use convert::convert;
pub use decode::{DecodeError, Decoded, FieldValidation, Parsed, decode, parse_json, parse_yaml};
pub use defaults::apply_defaults;
pub use prepare::{prepare_create, prepare_update};
pub use quantity::Quantity;
pub use registry::{NameRule, Registry, ResourceDef, SchemaSource, StorageIdentity, Strategy, SubresourceDef};
pub use schema::{ListType, PatchStrategy, Schema, Shape};
pub use selector::{FieldSelector, LabelSelector};
pub use validation::{FieldError, validate_create, validate_update};
pub use warnings::warnings;

/// The Kubernetes version whose API this crate holds.
pub const API_VERSION: &str = "v1.36.0";
