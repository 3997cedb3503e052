//! The environment variables that a configuration uses.

use std::collections::HashMap;

/// The environment variables of the process, or others in their place. A variable that is empty counts as not set.
pub struct Environment {
    /// `None`: those of the process.
    given: Option<HashMap<String, String>>,
}

impl Environment {
    /// Those of the process.
    #[must_use]
    pub fn of_process() -> Self {
        Self { given: None }
    }

    /// These and no others.
    #[must_use]
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            given: Some(variables.iter().map(owned).collect()),
        }
    }

    /// The value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<String> {
        let value = match &self.given {
            Some(given) => given.get(name).cloned(),
            None => std::env::var(name).ok(),
        };
        value.filter(|value| !value.is_empty())
    }
}
