//! The environment variables that a configuration uses.

use std::collections::HashMap;

/// The variable that names the folder of the credentials that systemd has loaded for a unit.
pub(super) const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The environment variables of the process, or others in their place. A variable that is empty counts as not set.
#[derive(Default)]
pub struct Environment {
    /// `None`: those of the process.
    given: Option<HashMap<String, String>>,
    /// Whether another process is to have the credentials that systemd loads.
    checks_only: bool,
}

impl Environment {
    /// Those of the process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::default()
    }

    /// The same, to check a configuration that another process is to use. systemd gives the credentials of a unit to the processes that
    /// start it, but neither to its `ExecReload=` nor to a person: where there are none at all, their contents are not checked.
    #[must_use]
    pub fn checking(self) -> Self {
        Self {
            checks_only: true,
            ..self
        }
    }

    /// These and no others.
    #[must_use]
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Self {
            given: Some(variables.iter().map(owned).collect()),
            ..Self::default()
        }
    }

    /// Whether the credentials that systemd loads can't be here, and are not needed.
    pub(super) fn passes_over_credentials(&self) -> bool {
        self.checks_only && self.get(CREDENTIALS).is_none()
    }

    /// The variables whose names begin so, with their values, in the order of their names.
    pub(super) fn beginning_with(&self, prefix: &str) -> Vec<(String, String)> {
        let all: Vec<(String, String)> = match &self.given {
            Some(given) => given.clone().into_iter().collect(),
            None => std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        };
        let wanted =
            |(name, value): &(String, String)| name.starts_with(prefix) && !value.is_empty();
        let mut found: Vec<_> = all.into_iter().filter(wanted).collect();
        found.sort();
        found
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
