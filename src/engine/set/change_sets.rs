//! Change Sets (version 0.1, sections 5.1 and 6.1): Change Lists without an interval, each of which names the one before it.
//!
//! They are followed backwards until one states a change that is known, and then applied, the oldest first. So all of them together
//! reach from what was covered to the newest change. Where none of them states a known change, they begin at their earliest change after
//! what was covered, and what is between is a gap.
//!
//! Invariants: how many sets are read back, and how long they are in total, is bounded; no set is read twice in one poll.

use std::collections::HashSet;
use std::sync::Arc;

use url::Url;

use super::changes::{change_of, note_expiry};
use super::documents::{ChangedDocument, poll_document};
use super::span::end_of;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::SummarizedDocument;
use crate::protocol::{Capability, ChangeKind, SourceTime};
use crate::store::{BatchCommit, Change, SetId};
use crate::sync::{NewsFilter, Span, is_plausible};

/// How many sets are read back in one poll.
const MAX_SETS: usize = 1000;
/// How many changes are looked up at once.
const AT_ONCE: usize = 1000;

/// The Change Sets of one poll.
#[derive(Default)]
struct Chain {
    /// The newest first.
    sets: Vec<ChangedDocument>,
    /// Whether the oldest one states a change that is known.
    is_known: bool,
    /// The earliest change after what was covered.
    begins: Option<SourceTime>,
    /// Why the set before the oldest one is not read, although there should be one.
    cut: Option<String>,
    /// The error that may pass by itself because of which it could not be fetched.
    failed: Option<EngineError>,
}

/// What the changes of one set are to what is known.
#[derive(Clone, Copy, Default)]
struct Seen {
    is_known: bool,
    begins: Option<SourceTime>,
}

impl Chain {
    fn add(&mut self, set: ChangedDocument, seen: Seen) {
        self.is_known = seen.is_known;
        self.begins = [self.begins, seen.begins].into_iter().flatten().min();
        self.sets.push(set);
    }

    /// What all sets cover together. `covered`: the end of what was covered before.
    fn span(&self, covered: Option<SourceTime>) -> Span {
        let sets = self.sets.iter();
        Span {
            from: if self.is_known { covered } else { self.begins },
            until: sets.filter_map(|set| set.read.summary.newest).max(),
        }
    }

    /// Takes the error because of which nothing is proven.
    fn take_error(&mut self) -> Option<EngineError> {
        let mut sets = self.sets.iter();
        let damaged = sets.find_map(|set| set.read.expect_undamaged().err());
        damaged.or(self.failed.take())
    }
}

impl SetState {
    /// Reads a Change Set that has changed, and those before it, as far as their changes are not known. Returns what they cover.
    pub(super) async fn read_change_sets(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
    ) -> Result<Span, EngineError> {
        let covered = self.sequencer.coverage().unbroken_until();
        let mut chain = self.collect_change_sets(uri, changed, covered).await?;
        self.note_cut_change_sets(chain.cut.take());
        let (span, failed) = (chain.span(covered), chain.take_error());
        let mut trial = self.sequencer.clone();
        if let Some(interval) = span.interval().filter(|_| failed.is_none()) {
            drop(trial.change_list(clock::now(), interval));
        }
        let mut left = chain.sets.len();
        for ChangedDocument { read, record } in chain.sets.into_iter().rev() {
            left -= 1;
            let filter = NewsFilter::everything();
            let filter = self.sequencer.mark_late_end(filter, end_of(&read.summary));
            let mut commit = BatchCommit::new(self.deletion_rules());
            if left == 0 && failed.is_none() {
                commit = self.commit_of(&trial, None);
                commit.documents.push(record);
            }
            self.ingest_news(read, filter, commit).await?;
        }
        match failed {
            Some(error) => Err(error),
            None => {
                self.sequencer = trial;
                Ok(span)
            }
        }
    }

    /// Follows Change Sets backwards.
    async fn collect_change_sets(
        &self,
        uri: &Url,
        changed: ChangedDocument,
        covered: Option<SourceTime>,
    ) -> Result<Chain, EngineError> {
        let mut chain = Chain::default();
        let mut named = HashSet::from([uri.clone(), changed.read.document.url().clone()]);
        let (mut bytes, mut next) = (0, Some(changed));
        while let Some(ChangedDocument { read, record }) = next.take() {
            let (read, seen) = self.look_into(read, covered).await?;
            let before = read.summary.head.previous_change_set().cloned();
            bytes += read.document.bytes_len();
            chain.add(ChangedDocument { read, record }, seen);
            let Some(before) = before.filter(|_| !seen.is_known) else {
                break;
            };
            if !named.insert(before.clone()) {
                chain.cut = Some(format!("{before} was read already, and is named again"));
            } else if chain.sets.len() >= MAX_SETS || bytes >= self.context.limits.document {
                chain.cut = Some(format!("there are too many; {before} is not read"));
            } else {
                match self.change_set_at(&before).await {
                    Ok(read) => next = Some(read),
                    Err(error) if error.is_fatal() => return Err(error),
                    Err(error) if error.is_transient() => chain.failed = Some(error),
                    Err(error) => chain.cut = Some(error.to_string()),
                }
            }
        }
        Ok(chain)
    }

    async fn change_set_at(&self, uri: &Url) -> Result<ChangedDocument, EngineError> {
        let changed = poll_document(&self.context, self.record.id, uri, true).await?;
        // A document that is fetched anew is never unchanged.
        let changed = changed.ok_or(EngineError::Interrupted)?;
        changed.read.expect(&Capability::ChangeList)?;
        Ok(changed)
    }

    /// Compares the changes of a set with what is known.
    async fn look_into(
        &self,
        mut read: SummarizedDocument,
        covered: Option<SourceTime>,
    ) -> Result<(SummarizedDocument, Seen), EngineError> {
        let (context, set) = (Arc::clone(&self.context), self.record.id);
        let uri = read.document.url().clone();
        let looking = tokio::task::spawn_blocking(move || {
            let seen = look_into(&context, set, &mut read, covered)?;
            Ok((read, seen))
        });
        looking
            .await
            .map_err(|error| EngineError::of_join(&error, &uri))?
    }
}

/// For a blocking thread.
fn look_into(
    context: &SourceContext,
    set: SetId,
    read: &mut SummarizedDocument,
    covered: Option<SourceTime>,
) -> Result<Seen, EngineError> {
    let now = clock::now().wall;
    let mut seen = Seen::default();
    let (mut has_wanted, mut has_unwanted) = (false, false);
    let mut changes: Vec<Change> = Vec::new();
    let mut reader = read.document.reader()?;
    while let Some(mut entry) = reader.next_entry()? {
        note_expiry(&mut entry, now);
        let changed_at = entry.changed_at().filter(|&it| is_plausible(it, now));
        let Some(changed_at) = changed_at else {
            continue;
        };
        if covered.is_none_or(|covered| covered < changed_at) {
            let begins = seen.begins.unwrap_or(changed_at);
            seen.begins = Some(begins.min(changed_at));
            continue;
        }
        match change_of(context, entry, ChangeKind::Updated, Some(changed_at)) {
            Some(change) => changes.push(change),
            None => has_unwanted = true,
        }
        if changes.len() >= AT_ONCE && !seen.is_known {
            has_wanted = true;
            seen.is_known = knows_any(context, set, covered, &changes)?;
            changes.clear();
        }
    }
    has_wanted |= !changes.is_empty();
    seen.is_known = seen.is_known || knows_any(context, set, covered, &changes)?;
    // What is not wanted is not known, whenever it happened.
    seen.is_known |= has_unwanted && !has_wanted;
    Ok(seen)
}

fn knows_any(
    context: &SourceContext,
    set: SetId,
    covered: Option<SourceTime>,
    changes: &[Change],
) -> Result<bool, EngineError> {
    let Some(covered) = covered else {
        return Ok(false);
    };
    context.counters.step();
    Ok(context
        .store
        .knows_any(set, context.name(), covered, changes)?)
}
