//! A write on its way to the store: `Decoded → Mutated → Validated → Admitted`.
//!
//! Only the step before can make the next one, and only [`Admitted`] can be committed. It is tied to the revision it was admitted
//! against: when somebody else wrote in between, the write starts again from a new [`Decoded`].

use std::sync::Arc;

use atoll_kube_schema::ResourceDef;
use serde_json::Value;

use crate::admission::{Attributes, Operation};
use crate::error::Result;
use crate::server::Core;
use crate::services::Reservation;
use crate::{convert, strategy};

/// What all steps carry.
struct Draft {
    def: Arc<ResourceDef>,
    key: String,
    /// Revision of the object that this replaces or deletes; none for a create.
    base: Option<u64>,
    attributes: Attributes,
    /// Addresses and ports that this write has taken.
    reservation: Option<Reservation>,
}

impl Draft {
    /// Whether admission sees an object of the stored kind, rather than the body of a subresource (`Binding`).
    fn is_own_kind(&self) -> bool {
        // A `Scale` reaches admission as the object that it scales.
        self.attributes.kind.kind == self.def.kind || self.attributes.subresource == "scale"
    }
}

/// An object in canonical form, with its defaults, as the client meant it.
pub(crate) struct Decoded(Draft);
/// After the plugins that may change it.
pub(crate) struct Mutated(Draft);
/// After preparation and validation by the rules of its kind.
pub(crate) struct Validated(Draft);
/// After the plugins that may refuse it.
pub(crate) struct Admitted {
    draft: Draft,
    /// In its storage version; none for a delete.
    stored: Option<Value>,
}

impl Decoded {
    pub fn new(def: Arc<ResourceDef>, key: String, base: Option<u64>, attributes: Attributes) -> Decoded {
        Decoded(Draft { def, key, base, attributes, reservation: None })
    }

    /// Runs the mutating plugins. What they changed is brought into canonical form and defaulted again.
    pub async fn mutate(mut self, core: &Core) -> Result<Mutated> {
        let draft = &mut self.0;
        let before = draft.attributes.object.clone();
        core.admission.admit(&mut draft.attributes, core).await?;
        if draft.attributes.object != before && draft.is_own_kind() && draft.attributes.operation != Operation::Delete {
            let object = std::mem::take(&mut draft.attributes.object);
            draft.attributes.object = strategy::canonical(&draft.def, object)?;
        }
        Ok(Mutated(self.0))
    }
}

impl Mutated {
    /// Fills what the server decides and checks the rules of the kind.
    pub fn validate(mut self, core: &Core) -> Result<Validated> {
        if !self.0.is_own_kind() {
            return Ok(Validated(self.0));
        }
        let Draft { def, attributes, reservation, .. } = &mut self.0;
        if attributes.is_resource("", "services") {
            let old = attributes.old.clone();
            *reservation = match attributes.operation {
                Operation::Delete => old.map(|old| core.services.release(&old)),
                _ => Some(core.services.reserve(&mut attributes.object, old.as_deref(), &attributes.name)?),
            };
        }
        match attributes.operation {
            Operation::Create => strategy::prepare_create(def, attributes)?,
            Operation::Update => strategy::prepare_update(def, attributes)?,
            Operation::Delete | Operation::Connect => {}
        }
        strategy::validate(def, attributes)?;
        Ok(Validated(self.0))
    }
}

impl Validated {
    /// Runs the validating plugins.
    pub async fn admit(self, core: &Core) -> Result<Admitted> {
        core.admission.validate(&self.0.attributes, core).await?;
        let object = &self.0.attributes.object;
        let stored =
            if object.is_null() { None } else { Some(convert::to_storage(&core.registry(), &self.0.def, object.clone())) };
        Ok(Admitted { draft: self.0, stored })
    }
}

impl Admitted {
    pub fn key(&self) -> &str {
        &self.draft.key
    }

    pub fn base(&self) -> Option<u64> {
        self.draft.base
    }

    /// What is to be stored, in its storage version; none for a delete.
    pub fn object(&self) -> Option<&Value> {
        self.stored.as_ref()
    }

    /// The object in the version of the request.
    pub fn into_object(self) -> Value {
        self.draft.attributes.object
    }

    /// What was taken for this write is kept: it is committed.
    pub fn settle(&self) {
        if let Some(reservation) = &self.draft.reservation {
            reservation.settle();
        }
    }

    pub fn erases_history(&self) -> bool {
        self.draft.def.strategy.erases_history
    }

    /// A delete that does not remove yet: the object stays, marked.
    pub fn into_mark(mut self, stored: Value, object: Value) -> Admitted {
        self.stored = Some(stored);
        self.draft.reservation = None;
        self.draft.attributes.object = object;
        self
    }

    /// An update after which nothing holds the object any longer removes it.
    pub fn into_removal(mut self) -> Admitted {
        self.stored = None;
        self
    }
}
