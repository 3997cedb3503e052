//! Which Sources a command is for.

use super::exit_status::FAULTS;
use super::failure::Failure;
use crate::config::{Config, Source};

/// The Sources of those names, or all.
pub(super) fn select_sources(config: &Config, names: &[String]) -> Result<Vec<Source>, Failure> {
    let known = |name: &&String| config.sources.iter().any(|source| source.name == **name);
    refuse_unknown(names.iter().filter(|name| !known(name)), "")?;
    let is_selected = |source: &&Source| names.is_empty() || names.contains(&source.name);
    Ok(config.sources.iter().filter(is_selected).cloned().collect())
}

/// Fails if there are unknown names. `elsewhere`: where else a Source of that name is not.
pub(super) fn refuse_unknown<'a>(
    unknown: impl Iterator<Item = &'a String>,
    elsewhere: &str,
) -> Result<(), Failure> {
    let texts = unknown
        .map(|name| format!("no Source {name:?} in the configuration{elsewhere} [unknown-source]"));
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(FAULTS, texts.join("\nresyncd: ")))
    }
}
