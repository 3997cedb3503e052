//! `sync --dry-run`: a copy of the state that is worked on instead, and the changes that would be applied.

use std::fmt;
use std::sync::Arc;

use indicatif::HumanBytes;
use resourcesync::ChangeKind;
use resyncd_mirror::{Mirror, MirrorError, MirrorId, MirrorPlace};
use serde::Serialize;

use super::failure::Failure;
use super::output::json_line;
use crate::clock;
use crate::config::Config;
use crate::engine::{has_another_mirror, in_scratch_folder};
use crate::store::{PlannedTask, ResourceId, ScratchFolder, Store, StoreError, copy_state};

/// How many changes are read at once.
const PAGE: usize = 10_000;

/// A copy of the state, and a configuration that uses it and has empty mirrors.
pub(super) struct Scratch {
    config: Config,
    _folder: ScratchFolder,
}

impl Scratch {
    pub(super) async fn of(config: &Config) -> Result<Self, StoreError> {
        let config = config.clone();
        let copying = move || {
            let folder = ScratchFolder::create(&config.state_dir)?;
            copy_state(&config.state(), &folder.state(), clock::now().wall)?;
            Ok(Self {
                config: in_scratch_folder(&config, &folder),
                _folder: folder,
            })
        };
        let copied = tokio::task::spawn_blocking(copying).await;
        copied.unwrap_or(Err(StoreError::Panicked))
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

/// Has the copy of a state accept the empty mirrors of a dry run, if those that it knows are there; prints which are not.
pub(super) async fn release_mirrors(config: &Config, store: &Arc<Store>) -> Result<(), Failure> {
    let mut released = Ok(());
    for source in &config.sources {
        if has_another_mirror(store, source).await? {
            // The run begins with a baseline, and takes any mirror.
            continue;
        }
        let known = store.mirror_id(&source.name).await?;
        if let Some(known) = known.as_deref().and_then(MirrorId::parse)
            && let Err(error) = check_mirror(&source.mirror, known).await?
        {
            let text = format!("{}: {}", source.name, error.of_opening());
            let missing = Failure::coded(error.code(), text);
            if let Err(other) = std::mem::replace(&mut released, Err(missing)) {
                other.print();
            }
        }
        store.release_mirror(&source.name).await?;
    }
    released
}

async fn check_mirror(
    mirror: &MirrorPlace,
    known: MirrorId,
) -> Result<Result<(), MirrorError>, StoreError> {
    let mirror = mirror.clone();
    let checking = tokio::task::spawn_blocking(move || Mirror::check_id(&mirror, &known));
    checking.await.map_err(|_| StoreError::Panicked)
}

/// What would be done with a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Create,
    Update,
    /// Asked whether it has changed.
    Check,
    Delete,
    HoldBack,
}

impl Action {
    /// `None`: the mirror is as it should be.
    fn of(task: &PlannedTask) -> Option<Self> {
        match task.kind {
            ChangeKind::Deleted if !task.is_live => None,
            ChangeKind::Deleted if task.is_held_back => Some(Self::HoldBack),
            ChangeKind::Deleted => Some(Self::Delete),
            _ if !task.is_live => Some(Self::Create),
            _ if task.is_check => Some(Self::Check),
            _ => Some(Self::Update),
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Create => "would create",
            Self::Update => "would update",
            Self::Check => "would check",
            Self::Delete => "would delete",
            Self::HoldBack => "would hold back the deletion of",
        }
    }
}

/// How many resources something would be done with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PlannedCounts {
    create: u64,
    update: u64,
    check: u64,
    delete: u64,
    hold_back: u64,
    /// The bytes that would be fetched, as far as they are announced.
    bytes: u64,
}

impl PlannedCounts {
    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    fn count(&mut self, action: Action, length: u64) {
        let counter = match action {
            Action::Create => &mut self.create,
            Action::Update => &mut self.update,
            Action::Check => &mut self.check,
            Action::Delete => &mut self.delete,
            Action::HoldBack => &mut self.hold_back,
        };
        *counter += 1;
        if matches!(action, Action::Create | Action::Update) {
            self.bytes = self.bytes.saturating_add(length);
        }
    }
}

impl fmt::Display for PlannedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nothing() {
            return write!(f, "nothing to do");
        }
        let counted = [
            (self.create, "to create"),
            (self.update, "to update"),
            (self.check, "to check"),
            (self.delete, "to delete"),
            (self.hold_back, "deletions to hold back"),
        ];
        let counted = counted.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = counted
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        write!(f, "{}", parts.join(", "))?;
        match self.bytes {
            0 => Ok(()),
            bytes => write!(f, "; {} to fetch", HumanBytes(bytes)),
        }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "type", rename = "change")]
struct ChangeLine<'a> {
    source: &'a str,
    set: &'a str,
    uri: &'a str,
    action: Action,
    length: Option<u64>,
}

/// Prints what would be done for a Source, a line per resource, and counts it.
pub(super) async fn print_planned(
    store: &Arc<Store>,
    source: &str,
    json: bool,
    counts: &mut PlannedCounts,
) -> Result<(), StoreError> {
    let mut after = ResourceId(0);
    loop {
        let page = store.planned(source, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        for task in &page {
            after = task.resource;
            let Some(action) = Action::of(task) else {
                continue;
            };
            counts.count(action, task.length.unwrap_or(0));
            if json {
                let line = ChangeLine {
                    source,
                    set: &task.capability_list,
                    uri: &task.uri,
                    action,
                    length: task.length,
                };
                println!("{}", json_line(&line));
            } else {
                println!("{source}: {} {}", action.text(), task.uri);
            }
        }
        if is_last {
            return Ok(());
        }
    }
}
