//! The parts of a Resource List or Resource Dump: what its index names, or its pages, or the one document that it is. Those that the index
//! rules out by what it states of them are left out.
//!
//! Parts of a Resource List that have not changed since they were read last are not read again; of dumps the packages are not. An index
//! that was caught stating that a part with news is unchanged is not believed: all parts are requested, until it states another time of
//! that part.

use resourcesync::{Capability, DocumentSummary, Head, SourceTime};
use resyncd_core::{AbsenceFacts, PartPlan, plan_part, unchanged_proof};
use url::Url;

use super::fetch_ahead::FetchAhead;
use super::ingest::ingest_part;
use super::notices::clear_unfollowed;
use super::polled_document::{ChangedDocument, poll_early_document, read_early_document};
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::documents::{Child, DeadParts, DocumentWalk, PartFailures};
use crate::store::{
    ListProgress, NamedSoFar, Origin, PageEnd, Part, PartEnd, PartEvidence, UnchangedPart,
};

/// How many unchanged parts are committed in one transaction.
const UNCHANGED_A_STEP: usize = 256;

/// The parts of a Resource List or Resource Dump, ingested or skipped.
#[derive(Default)]
pub(super) struct SnapshotParts {
    /// What it depends on whether absence proves anything, as its documents state it.
    pub(super) absence: AbsenceFacts,
    /// How many entries were read, of parts that have changed.
    pub(super) entries: u64,
    /// Whether they are those of a Resource Dump.
    is_dump: bool,
    /// Whether an error ends the reading: a Resource List is read in place of the dump.
    pub(super) ends_early: bool,
    /// The error of a package that ends the reading.
    pub(super) ended_by: Option<EngineError>,
    /// How many parts are named so far.
    named: u64,
    /// How many entries of the index that was entered last can't be read.
    bad_index_entries: u64,
    dead: DeadParts,
    failures: PartFailures,
    /// Whether any resource is named.
    pub(super) names_any: bool,
    /// The resources that are named so far.
    pub(super) names: NamedSoFar,
    /// Whether this reading leaves parts out.
    pub(super) leaves_out: bool,
    /// Whether any part was left out: its index states that nothing in it is selected.
    pub(super) has_left_out: bool,
    /// Whether any part was read, or is known and unchanged.
    pub(super) has_read: bool,
    /// Whether a part may change while the document that names it does not.
    pub(super) may_change_unseen: bool,
    /// The times of its pages; `None` where it has none.
    pub(super) pages: Option<PageTimes>,
    /// Whether they are the parts of an index.
    are_of_index: bool,
    /// Whether the times that the index states for them are not believed.
    are_misdated: bool,
    /// Whether a part may still be the one that names the Change Set or the dump (version 0.1): neither the index nor a part that was
    /// read so far does.
    may_name: bool,
    /// Unchanged parts that are not committed yet.
    unchanged: Vec<UnchangedPart>,
}

/// The times of the pages of a list.
#[derive(Clone, Copy, Default)]
pub(super) struct PageTimes {
    /// The oldest time that a page states.
    oldest: Option<SourceTime>,
    /// The time of the newest entry.
    newest: Option<SourceTime>,
    /// Whether all of them state the same time, so that they are of one snapshot. Others may have been made one after the other
    /// while the list changed, and then what has moved from one page to another may be on none.
    pub(super) are_one: bool,
}

impl PageTimes {
    /// The time of the list as a whole: the oldest that a page states, or else that of the newest entry. `first`: the time
    /// of the first page.
    pub(super) fn of_list(&self, first: SourceTime, states_time: bool) -> SourceTime {
        if states_time {
            self.oldest.map_or(first, |oldest| first.min(oldest))
        } else {
            self.newest.map_or(first, |newest| first.max(newest))
        }
    }

    fn note(&mut self, stated: Option<SourceTime>, newest: Option<SourceTime>) {
        self.are_one &= stated.is_some() && stated == self.oldest;
        self.oldest = self.oldest.into_iter().chain(stated).min();
        self.newest = self.newest.max(newest);
    }
}

impl SetState {
    /// Begins to ingest a Resource List. `skips_unchanged`: unchanged parts are not read again.
    pub(super) async fn begin_resource_list(
        &mut self,
        uri: &Url,
        changed: &ChangedDocument,
        skips_unchanged: bool,
    ) -> Result<(), EngineError> {
        let (set, summary) = (self.record.id, &changed.read.summary);
        if self.record.is_implied() {
            // Where an index names no Change Set and no dump, its parts may.
            let is_naming = summary.head.names_documents() || !summary.is_index;
            self.follow_sitemap(uri, &summary.head, is_naming).await?;
            if is_naming {
                self.naming = Some(changed.record.clone());
            }
        }
        let (store, filter) = (
            &self.context.store,
            self.context.source.filter.fingerprint(),
        );
        let trusted = skips_unchanged.then_some(filter);
        store.begin_parts(set, uri, trusted).await?;
        self.has_begun_parts = true;
        store.begin_list(set).await?;
        clear_unfollowed(&self.context, set);
        Ok(())
    }

    /// Ingests a list or dump with its pages, or all those of an index. An error of one does not keep the others from being ingested; but
    /// what was not read completely proves nothing.
    pub(super) async fn ingest_parts(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        let (ChangedDocument { read, record }, is_dump) = (changed, parts.is_dump);
        let (stated, unread) = (read.summary.head.md.at, read.expect_all());
        let has_pages = read.next_page().is_some();
        let mut walk = DocumentWalk::of(if is_dump {
            Capability::ResourceDump
        } else {
            Capability::ResourceList
        });
        if !is_dump {
            let store = &self.context.store;
            parts.are_misdated = store.has_misdated_parts(self.record.id).await?;
            parts.pages = has_pages.then(|| PageTimes {
                oldest: stated,
                are_one: stated.is_some(),
                ..PageTimes::default()
            });
        }
        let mut ahead = FetchAhead::of(&self.context, self.record.id);
        let ingested = match walk.enter(read)? {
            Some(dump) if is_dump => self.ingest_packages(dump, at, parts).await,
            Some(read) => {
                parts.named = 1;
                self.fetch_parts_ahead(uri, &mut walk, parts, &mut ahead)
                    .await?;
                let list = ChangedDocument { read, record };
                self.ingest_list_part(uri, list, None, at, parts).await
            }
            None if is_dump => unread,
            None => {
                parts.bad_index_entries = parts.absence.bad_entries;
                Ok(())
            }
        };
        self.note_part(uri, ingested, parts)?;
        while let Some(part) = walk.next().await? {
            parts.named += 1;
            let ingested = if is_dump {
                self.ingest_dump_part(&part, &mut walk, at, parts).await
            } else {
                self.ingest_child(&part, &mut walk, &mut ahead, at, parts)
                    .await
            };
            self.note_part(&part.uri, ingested, parts)?;
            if parts.unchanged.len() >= UNCHANGED_A_STEP {
                self.commit_unchanged(parts).await?;
            }
        }
        self.commit_unchanged(parts).await?;
        self.report_repeated_indexes(&walk);
        let (dead, failures) = (&mut parts.dead, &mut parts.failures);
        self.report.add_dead_list_parts(dead.count());
        std::mem::take(dead).into_result(uri, parts.named)?;
        std::mem::take(failures).into_result()?;
        parts.names_any |= parts.has_left_out;
        // The time of an index is that of all its parts, that of a page only its own.
        parts.may_change_unseen &= stated.is_none() || parts.pages.is_some();
        if !is_dump {
            parts.are_misdated = self.note_misdated_parts().await?;
            parts.may_change_unseen |= parts.are_misdated;
        }
        Ok(())
    }

    /// Whether a part is left out in this reading: its index states that nothing is selected of it.
    pub(super) fn rules_out(&self, part: &Child, parts: &SnapshotParts) -> bool {
        parts.leaves_out && part.is_ruled_out(self.context.source.filter.selection())
    }

    /// Counts a part that could not be read, or not completely, and the parts whose entries in an index can't be read: what they name is
    /// unknown. Only errors that end the reading are returned.
    fn note_part(
        &mut self,
        part: &Url,
        ingested: Result<(), EngineError>,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        let count = std::mem::take(&mut parts.bad_index_entries);
        if count > 0 {
            let document = part.to_string();
            let error = EngineError::UnreadEntries { document, count };
            parts.named += count;
            self.report.add_dead(&error, count);
            parts.dead.add(error, count);
        }
        if let Some(error) = parts.ended_by.take() {
            return Err(error);
        }
        let Err(error) = ingested else {
            return Ok(());
        };
        self.report_failed_part(part, &error);
        if error.is_unusable() && !parts.is_dump {
            parts.dead.add(error, 1);
            Ok(())
        } else {
            parts.fail(error)
        }
    }

    /// Ingests a list that an index names, if it has changed. If it is an index itself, what it names comes next.
    async fn ingest_child(
        &mut self,
        list: &Child,
        walk: &mut DocumentWalk,
        ahead: &mut FetchAhead,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        list.expect_new()?;
        let set = self.record.id;
        let now = clock::now().wall;
        let early = ahead.take(&list.uri);
        let (part, plan) = self.plan_of(list, parts).await?;
        if plan == PartPlan::LeftOut {
            parts.has_left_out = true;
            return Ok(());
        }
        if let Some(part) = part.as_ref().filter(|_| plan == PartPlan::Unchanged) {
            parts.add_unchanged(part, None);
            follow_page_after(part, &list.uri, walk)?;
        }
        if matches!(plan, PartPlan::Unchanged | PartPlan::Repeated) {
            return Ok(());
        }
        // What was fetched ahead proves nothing of the time after its request.
        let asked_at = early
            .as_ref()
            .map_or(now, |early| early.asked_at().min(now));
        let stated = PartEvidence {
            announced: unchanged_proof(list.modified, asked_at),
            asked_at,
        };
        let announced = part.as_ref().and_then(|part| part.known.announced);
        let is_stated_unchanged =
            plan == PartPlan::Revalidate && announced.is_some() && announced == list.modified;
        let (context, uri) = (&self.context, &list.uri);
        let changed = match plan {
            PartPlan::Read => Some(read_early_document(context, set, uri, early).await?),
            _ => poll_early_document(context, set, uri, early).await?,
        };
        if let Some(changed) = changed.as_ref().filter(|_| parts.absence.is_stated) {
            changed.read.expect_something()?;
        }
        match (changed, part) {
            (Some(ChangedDocument { read, record }), _) => {
                let bad_entries = read
                    .summary
                    .bad_entries()
                    .max(u64::from(read.summary.may_be_cut()));
                parts.absence.is_of_draft |= read.summary.is_of_draft();
                let Some(read) = walk.enter(read)? else {
                    parts.bad_index_entries = bad_entries;
                    parts.may_change_unseen = true;
                    return Ok(());
                };
                parts.note_page(list, read.summary.head.md.at, read.summary.newest);
                if parts.are_of_index && self.record.is_implied() {
                    let head = &read.summary.head;
                    let names_documents = parts.takes_documents_of(head);
                    Box::pin(self.follow_sitemap(&list.uri, head, names_documents)).await?;
                }
                // A page may be older than the first one.
                let own = read.summary.head.md.at.filter(|_| list.is_page);
                let at = own.map_or(at, |own| own.min(at));
                let changed = ChangedDocument { read, record };
                let found = self.found;
                self.fetch_parts_ahead(&list.uri, walk, parts, ahead)
                    .await?;
                self.ingest_list_part(&list.uri, changed, Some(stated), at, parts)
                    .await?;
                if is_stated_unchanged && self.found > found {
                    parts.are_misdated = true;
                    self.context.store.note_misdated(set, &list.uri).await?;
                }
                parts.absence.bad_entries += bad_entries;
            }
            (None, Some(part)) => {
                parts.add_unchanged(&part, Some(stated));
                parts.note_page(list, part.page.at, part.page.newest);
                follow_page_after(&part, &list.uri, walk)?;
                self.fetch_parts_ahead(&list.uri, walk, parts, ahead)
                    .await?;
            }
            (None, None) => {}
        }
        parts.may_change_unseen |= stated.announced.is_none();
        Ok(())
    }

    /// What is known of a part, and whether it is to be read. The time that the index states for it counts only if it is believed.
    async fn plan_of(
        &self,
        part: &Child,
        parts: &SnapshotParts,
    ) -> Result<(Option<Part>, PartPlan), EngineError> {
        let known = self.context.store.part(self.record.id, &part.uri).await?;
        let facts = known.as_ref().map(|part| part.known);
        let is_ruled_out = self.rules_out(part, parts);
        let modified = part.modified.filter(|_| !parts.are_misdated);
        let plan = plan_part(facts, modified, is_ruled_out, clock::now().wall);
        Ok((known, plan))
    }

    /// Begins to fetch the parts that come next, unless they need not be read.
    async fn fetch_parts_ahead(
        &self,
        current: &Url,
        walk: &mut DocumentWalk,
        parts: &SnapshotParts,
        ahead: &mut FetchAhead,
    ) -> Result<(), EngineError> {
        for next in ahead.not_begun(current, walk) {
            match self.plan_of(&next, parts).await?.1 {
                PartPlan::LeftOut | PartPlan::Repeated | PartPlan::Unchanged => {}
                plan => ahead.begin(next.uri, plan == PartPlan::Read).await,
            }
        }
        Ok(())
    }

    /// Ingests the entries of a part. Fails if some of them are damaged, once the others are ingested: the part names resources that
    /// are unknown. It proves nothing and counts as incomplete, so that it is read again at each poll. `stated`: what its index states
    /// of it; `None`: it is the Resource List itself, whose record is committed only together with what it proves.
    async fn ingest_list_part(
        &mut self,
        uri: &Url,
        changed: ChangedDocument,
        stated: Option<PartEvidence>,
        at: SourceTime,
        parts: &mut SnapshotParts,
    ) -> Result<(), EngineError> {
        let bad_entries = changed.read.summary.bad_entries();
        let damaged = changed.read.expect_undamaged();
        // A first page is read at each poll, changed or not.
        let first_page = stated
            .is_none()
            .then(|| (uri.clone(), changed.record.digest));
        let is_new = first_page.is_none() || first_page != self.first_page;
        parts.has_read = true;
        parts.names_any |= changed.read.summary.entries > 0;
        parts.entries += changed.read.summary.entries;
        let filter = self.context.source.filter.fingerprint().to_owned();
        let end = PartEnd {
            filter: damaged.is_ok().then_some(filter),
            evidence: stated.unwrap_or(PartEvidence {
                announced: None,
                asked_at: clock::now().wall,
            }),
            bad_entries,
            page: PageEnd {
                at: changed.read.summary.head.md.at,
                newest: changed.read.summary.newest,
                next: changed.read.next_page().cloned(),
            },
            document: stated.map(|_| changed.record),
        };
        let list = ListProgress {
            checks: is_new.then(|| self.check_rules()),
            ..self.list_progress(Origin::ResourceList, at, &parts.names)
        };
        let result = ingest_part(&self.context, &list, uri, changed.read.document, end).await?;
        self.found += result.tasks;
        self.first_page = first_page.or(self.first_page.take());
        damaged
    }

    /// Shows whether the times are not believed that the index states for its parts, and returns it.
    async fn note_misdated_parts(&self) -> Result<bool, EngineError> {
        let store = &self.context.store;
        let are_misdated = store.has_misdated_parts(self.record.id).await?;
        let message = "the index of a Resource List has stated an unchanged time of a part with news: all its parts are requested at \
            each poll, until it states another time of that part";
        self.note("misdated-parts", are_misdated.then(|| message.to_owned()));
        Ok(are_misdated)
    }

    async fn commit_unchanged(&self, parts: &mut SnapshotParts) -> Result<(), EngineError> {
        let unchanged = std::mem::take(&mut parts.unchanged);
        if !unchanged.is_empty() {
            let store = &self.context.store;
            store.mark_parts_unchanged(unchanged, &parts.names).await?;
        }
        Ok(())
    }
}

/// Lets the page come next that an unchanged one named when it was read.
fn follow_page_after(part: &Part, uri: &Url, walk: &mut DocumentWalk) -> Result<(), EngineError> {
    match &part.page.next {
        Some(next) => walk.follow(uri, next),
        None => Ok(()),
    }
}

impl SnapshotParts {
    /// `leaves_out`: whether parts are left out that their index rules out.
    pub(super) fn of(capability: &Capability, summary: &DocumentSummary, leaves_out: bool) -> Self {
        let mut parts = Self {
            leaves_out,
            is_dump: *capability == Capability::ResourceDump,
            are_of_index: summary.is_index,
            may_name: summary.is_index && !summary.head.names_documents(),
            may_change_unseen: summary.is_index && *capability == Capability::ResourceDump,
            ..Self::default()
        };
        parts.absence.is_stated = true;
        parts.add(capability, summary);
        parts
    }

    /// Adds an error; returns one that ends the reading.
    pub(super) fn fail(&mut self, error: EngineError) -> Result<(), EngineError> {
        if self.ends_early {
            return Err(error);
        }
        self.failures.add(error)
    }

    /// Adds what a document of it states of itself.
    pub(super) fn add(&mut self, capability: &Capability, summary: &DocumentSummary) {
        let facts = &mut self.absence;
        facts.is_stated &= summary.head.md.capability.as_ref() == Some(capability);
        facts.is_of_draft |= summary.is_of_draft();
        facts.bad_entries += summary.bad_entries();
    }

    fn add_unchanged(&mut self, part: &Part, asked: Option<PartEvidence>) {
        self.has_read = true;
        self.names_any |= part.names_any;
        self.absence.bad_entries += part.bad_entries;
        self.unchanged.push(UnchangedPart {
            id: part.id,
            evidence: asked,
        });
    }

    fn note_page(&mut self, page: &Child, stated: Option<SourceTime>, newest: Option<SourceTime>) {
        if let Some(pages) = self.pages.as_mut().filter(|_| page.is_page) {
            pages.note(stated, newest);
        }
    }

    /// Whether the head of a part is the first that names a Change Set or a dump.
    fn takes_documents_of(&mut self, head: &Head) -> bool {
        let is_first = self.may_name && head.names_documents();
        self.may_name &= !is_first;
        is_first
    }
}
