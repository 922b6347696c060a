//! Fractional accelerators: what cards there are, what a Pod asks of them, where it fits, and who has what.
//!
//! Owns: HAMi's names and encodings ([`names`], [`inventory`], [`allocation`]), the parse of a Pod's wishes ([`request`],
//! [`selection`]), fit and score ([`fit`], [`score`]), the [`ledger`] of reservations, and what a Pod costs of a quota
//! ([`quota`]).
//!
//! Invariants:
//! - No IO, no clock, no randomness: equal input gives equal output, ties broken by name.
//! - The sum of what the ledger's reservations hold of a card never passes the card's memory, cores or slots by a
//!   reservation that the ledger granted. (What live Pods say is recorded as said, over the limit too.)
//! - Check and commit are one step; a reservation that is dropped unconfirmed gives back exactly what it took.
//! - What cannot be read fails closed: a node with an unreadable live allocation takes no further Pods.
//!
//! Does not know: the Kubernetes client, gRPC, webhooks, which scheduler asks, whether a card is real.

pub mod allocation;
pub mod cards;
mod error;
pub mod fit;
pub mod inventory;
pub mod ledger;
pub mod limits;
pub mod names;
pub mod pod;
pub mod quantity;
pub mod quota;
pub mod request;
pub mod score;
pub mod selection;

pub use allocation::{Allocation, Slice};
pub use error::Error;
pub use fit::{CardState, Reason, Unfit, Usage};
pub use inventory::Card;
pub use ledger::{Ledger, Reservation};
pub use pod::PodView;
pub use request::{PodRequest, RequestDefaults};
pub use selection::Selection;
