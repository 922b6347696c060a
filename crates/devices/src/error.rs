//! What can be wrong with a string or object that somebody else wrote.

/// Why an input was refused. The text is meant for the person who wrote the input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An annotation that does not decode.
    #[error("annotation {key}: {problem}")]
    Annotation {
        /// Key of the annotation.
        key: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// A resource quantity that is not usable as a count.
    #[error("container {container:?}: {resource}: {problem}")]
    Resource {
        /// The container that asks.
        container: String,
        /// Name of the resource.
        resource: &'static str,
        /// What is wrong with its quantity.
        problem: String,
    },
    /// A card specification such as `2xA100-80GB` that does not parse.
    #[error("cards {spec:?}: {problem}")]
    CardSpec {
        /// The specification as given.
        spec: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A scheduling policy by a name that nobody implements.
    #[error("unknown {what} {name:?}; known: {known}")]
    UnknownPolicy {
        /// Which policy.
        what: &'static str,
        /// The name as given.
        name: String,
        /// Names that are known.
        known: &'static str,
    },
}

impl Error {
    pub(crate) fn annotation(key: &'static str, problem: impl Into<String>) -> Self {
        Self::Annotation { key, problem: problem.into() }
    }
}
