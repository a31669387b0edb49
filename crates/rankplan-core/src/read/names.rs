//! The names that a program has registered.

/// The names that a program has registered.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The types of accelerators.
    pub accelerators: Vec<String>,
    /// The types of other hardware that have a model of their own. Any other type may be named, too.
    pub hardware: Vec<String>,
    /// The environment variables that a plan sets, so that nothing else may.
    pub variables: Vec<String>,
}
