//! Which Sources a command is for.

use super::exit_status::FAULTS;
use crate::config::{Config, Source};

/// The Sources of those names, or all; prints unknown names.
pub(super) fn select_sources(config: &Config, names: &[String]) -> Result<Vec<Source>, u8> {
    let known = |name: &&String| config.sources.iter().any(|source| source.name == **name);
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    for name in &unknown {
        eprintln!("resyncd: no Source {name:?} in the configuration [unknown-source]");
    }
    if !unknown.is_empty() {
        return Err(FAULTS);
    }
    let is_selected = |source: &&Source| names.is_empty() || names.contains(&source.name);
    Ok(config.sources.iter().filter(is_selected).cloned().collect())
}
