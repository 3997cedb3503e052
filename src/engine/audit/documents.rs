//! Reads what the Source states now: each set's Resource List, or all lists of its index, and the Change Lists after it.

use std::collections::HashSet;
use std::sync::Arc;

use resourcesync::{Capability, Oddities, Oddity, SourceTime};
use resyncd_core::{AbsenceFacts, AbsenceProof, Offer};
use resyncd_fetch::{CapabilityList, DiscoveryCache};
use url::Url;

use super::context::{AuditContext, blocking};
use super::entries::record_entries;
use crate::config::LimitsConfig;
use crate::engine::EngineError;
use crate::engine::documents::{
    Alternatives, Child, DocumentWalk, SummarizedDocument, fetch_document, offered,
};
use crate::engine::source::discovery::{
    DiscoveredSet, DiscoveredSets, KnownSets, find_sets, had_resourcesync,
};
use crate::store::{AuditDb, Finding, FindingKind, KnownFiles, StatementKind};

/// What was read of a Source.
pub(super) struct SourceDocuments {
    /// Whether everything was read.
    pub(super) is_complete: bool,
    /// Whether a resource that is not named does not exist.
    pub(super) proves_absence: bool,
    /// The time of the oldest Resource List.
    pub(super) since: Option<SourceTime>,
    /// Its sets; the number of the first is 1.
    pub(super) sets: Vec<DiscoveredSet>,
}

impl SourceDocuments {
    /// Whether a file that is not expected is extra.
    pub(super) fn proves_extras(&self) -> bool {
        self.is_complete && self.proves_absence
    }

    /// The Capability List of a set.
    pub(super) fn set(&self, number: u32) -> Option<Url> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.sets.get(index).map(|set| set.uri.clone())
    }
}

/// What was read of one capability of a set.
struct CapabilityRead {
    /// Whether a document of it was read at all.
    any: bool,
    is_complete: bool,
    /// What it depends on whether absence proves anything.
    absence: AbsenceFacts,
    /// The time of the oldest document.
    at: Option<SourceTime>,
    /// Where the documents begin, as they state.
    from: Option<SourceTime>,
}

impl Default for CapabilityRead {
    fn default() -> Self {
        Self {
            any: false,
            is_complete: true,
            absence: AbsenceFacts {
                is_stated: true,
                ..AbsenceFacts::default()
            },
            at: None,
            from: None,
        }
    }
}

impl AuditContext {
    /// Reads all documents. Fails only if the audit database does: a document that can't be read is a finding.
    pub(super) async fn read_documents(
        &self,
        audit_db: &Arc<AuditDb>,
    ) -> Result<SourceDocuments, EngineError> {
        let mut documents = SourceDocuments {
            is_complete: true,
            proves_absence: true,
            since: None,
            sets: Vec::new(),
        };
        let had_resourcesync = match &self.repair {
            Some(repair) => had_resourcesync(&repair.context).await?,
            None => false,
        };
        let known = KnownSets {
            followed: &HashSet::new(),
            had_resourcesync,
        };
        let mut cache = DiscoveryCache::default();
        // Which sets are left out depends on those that are followed.
        let limits = LimitsConfig {
            sets: usize::MAX,
            ..self.limits.clone()
        };
        match find_sets(&self.client, &self.source, &limits, known, &mut cache).await {
            Ok(found) => {
                documents.is_complete = self.are_all_sets(audit_db, &found)?;
                documents.sets = found.sets;
                if let Some(error) = found.error {
                    documents.is_complete = false;
                    unread(audit_db, None, &self.source.url, &error.into())?;
                }
            }
            Err(error) => {
                documents.is_complete = false;
                unread(audit_db, None, &self.source.url, &error)?;
            }
        }
        let mut number = 0;
        for set in &mut documents.sets {
            number += 1;
            let list = match set.list.take() {
                Some(list) => Ok(list),
                None => self.capability_list(&set.uri).await,
            };
            let list = match list {
                Ok(list) => list,
                Err(error) => {
                    documents.is_complete = false;
                    unread(audit_db, Some(number), &set.uri, &error)?;
                    continue;
                }
            };
            if !list.is_plain_sitemap {
                self.client.disregard_robots();
                if let Some(repair) = &self.repair {
                    repair.context.client.disregard_robots();
                }
            }
            if !list.is_implied() {
                // An entry that can't be read may name a list.
                documents.is_complete &=
                    expect_readable(audit_db, Some(number), &set.uri, &list.oddities)?;
            }
            let (listed, changes) = self.read_set(audit_db, number, &set.uri, &list).await?;
            set.list = Some(list);
            documents.is_complete &= listed.any && listed.is_complete && changes.is_complete;
            let absence = AbsenceFacts {
                is_of_draft: listed.absence.is_of_draft || changes.absence.is_of_draft,
                ..listed.absence
            };
            documents.proves_absence &= AbsenceProof::of(absence).is_complete();
            documents.since = match (documents.since, listed.at) {
                (Some(since), Some(at)) => Some(since.min(at)),
                (since, at) => since.or(at),
            };
        }
        Ok(documents)
    }

    /// Whether there is no set but those that were found, unless the configuration names the sets. Records as findings what may name
    /// others.
    fn are_all_sets(
        &self,
        audit_db: &AuditDb,
        found: &DiscoveredSets,
    ) -> Result<bool, EngineError> {
        if !self.source.sets.is_empty() {
            return Ok(true);
        }
        for (uri, oddities) in &found.oddities {
            expect_readable(audit_db, None, uri, oddities)?;
        }
        if let Some(error) = &found.left_out {
            unread(audit_db, None, &self.source.url, &error.clone().into())?;
        }
        Ok(found.advertised.is_some())
    }

    async fn capability_list(&self, uri: &Url) -> Result<CapabilityList, EngineError> {
        let limit = self.limits.document;
        Ok(self.client.named_set(uri, limit).await?)
    }

    /// The time of the newest Resource List of a set that the database knows of.
    async fn listed_at(&self, set: &Url) -> Result<Option<SourceTime>, EngineError> {
        let (state, source, set) = (self.state.clone(), self.source.name.clone(), set.clone());
        blocking(move || {
            let known = KnownFiles::open(&state)?;
            Ok(match known {
                Some(known) => known.listed_at(&source, &set)?,
                None => None,
            })
        })
        .await?
    }

    async fn read_set(
        &self,
        audit_db: &Arc<AuditDb>,
        set: u32,
        uri: &Url,
        list: &CapabilityList,
    ) -> Result<(CapabilityRead, CapabilityRead), EngineError> {
        let known = match offered(&list.capabilities, &Capability::ChangeList).next() {
            // It states whatever has happened since.
            Some(_) => None,
            None => self.listed_at(uri).await?,
        };
        let listed = self
            .read_capability(audit_db, set, list, Capability::ResourceList, known)
            .await?;
        if !listed.any
            && offered(&list.capabilities, &Capability::ResourceList)
                .next()
                .is_none()
        {
            unread(audit_db, Some(set), &list.uri, &EngineError::NoResourceList)?;
        }
        let mut changes = self
            .read_capability(audit_db, set, list, Capability::ChangeList, listed.at)
            .await?;
        if let (Some(at), Some(from)) = (listed.at, changes.from)
            && from > at
        {
            changes.is_complete = false;
            let error = EngineError::LateChangeList(from.to_string());
            unread(audit_db, Some(set), &list.uri, &error)?;
        }
        Ok((listed, changes))
    }

    /// Reads all documents of a capability. Where a Capability List names several, the first one that can be read counts.
    async fn read_capability(
        &self,
        audit_db: &Arc<AuditDb>,
        set: u32,
        list: &CapabilityList,
        capability: Capability,
        since: Option<SourceTime>,
    ) -> Result<CapabilityRead, EngineError> {
        let mut reader = CapabilityReader {
            context: self,
            audit_db,
            set,
            walk: DocumentWalk::of(capability.clone()),
            capability: capability.clone(),
            since,
            is_only_document: list.is_implied()
                && !list
                    .capabilities
                    .iter()
                    .skip(1)
                    .any(Offer::is_named_document),
            listed_at: None,
            first_page: None,
            read: CapabilityRead::default(),
        };
        let mut failed = Alternatives::default();
        let mut index = None;
        for uri in offered(&list.capabilities, &capability) {
            match reader.read_offered(uri).await {
                Ok(following) => {
                    index = following;
                    failed = Alternatives::default();
                    break;
                }
                Err(error) => failed.add(uri, error)?,
            }
        }
        if let Some((uri, error)) = failed.into_first() {
            reader.fail(&uri, error)?;
        }
        reader.read_listed(&list.uri).await?;
        if let Some(index) = index {
            if let Err(error) = reader.read_offered(&index).await {
                reader.fail(&index, error)?;
            }
            reader.read_listed(&index).await?;
        }
        Ok(reader.read)
    }
}

/// Reads the documents of one capability of a set.
struct CapabilityReader<'a> {
    context: &'a AuditContext,
    audit_db: &'a Arc<AuditDb>,
    set: u32,
    capability: Capability,
    walk: DocumentWalk,
    /// For Resource Lists: the time of the newest one that was read before; an older one is outdated. For Change Lists: older
    /// changes are in the Resource List.
    since: Option<SourceTime>,
    /// Whether nothing but a Resource List or plain sitemap states anything of the set.
    is_only_document: bool,
    /// The time of all Resource Lists of an index.
    listed_at: Option<SourceTime>,
    /// What the first page of a list in pages states as its time; `None`: it is not in pages.
    first_page: Option<Option<SourceTime>>,
    read: CapabilityRead,
}

impl CapabilityReader<'_> {
    /// Reads a document that no index has led to. Returns the index that it belongs to, if it is closed.
    async fn read_offered(&mut self, uri: &Url) -> Result<Option<Url>, EngineError> {
        let Some((number, read)) = self.fetch(uri).await? else {
            return Ok(None);
        };
        let md = &read.summary.head.md;
        let is_listed = self.capability == Capability::ResourceList;
        let (is_stated, from) = (md.capability.is_some(), read.summary.begins_at());
        let index = read.index_of_closed(uri).filter(|_| !is_listed).cloned();
        if is_listed && read.summary.is_index {
            self.listed_at = md.at.and(read.stated_time(None));
        }
        self.first_page = read.next_page().map(|_| md.at);
        // What an older list states as its time is an error.
        let at = read.guessed_time(read.summary.newest);
        let is_older = is_listed && self.since.is_some_and(|known| at < known);
        let is_older = is_older && read.stated_time(None).is_none();
        self.enter(uri, None, number, read).await?;
        self.read.absence.is_older |= is_older;
        self.read.absence.is_stated &= is_stated;
        if !is_listed {
            self.read.from = [self.read.from, from].into_iter().flatten().min();
        }
        Ok(index)
    }

    /// Reads what the indexes name. `uri`: the document that has led there.
    async fn read_listed(&mut self, uri: &Url) -> Result<(), EngineError> {
        loop {
            let child = match self.walk.next().await {
                Ok(Some(child)) => child,
                Ok(None) => return Ok(()),
                Err(error) => return self.fail(uri, error),
            };
            if let Err(error) = self.read_child(&child).await {
                self.fail(&child.uri, error)?;
            }
        }
    }

    async fn read_child(&mut self, child: &Child) -> Result<(), EngineError> {
        child.expect_new()?;
        let is_listed = self.capability == Capability::ResourceList;
        let is_old = |until| self.since.is_some_and(|since| until < since);
        if !is_listed && child.until.is_some_and(is_old) {
            return Ok(());
        }
        let Some((number, read)) = self.fetch(&child.uri).await? else {
            return Ok(());
        };
        let absence = &mut self.read.absence;
        absence.bad_entries += u64::from(read.summary.may_be_cut());
        let at = read.summary.head.md.at;
        let first_page = self.first_page.filter(|_| child.is_page);
        absence.has_moving_pages |= first_page.is_some_and(|first| at.is_none() || at != first);
        // The index states the capability of its lists, and a list that of its pages.
        let listed = self.listed_at.or(child.from);
        self.enter(&child.uri, listed, number, read).await
    }

    /// Fetches a document, unless it was read before.
    async fn fetch(&self, uri: &Url) -> Result<Option<(i64, SummarizedDocument)>, EngineError> {
        let number = self.audit_db.begin_list(self.set, &self.capability, uri)?;
        let Some(number) = number else {
            return Ok(None);
        };
        let context = self.context;
        let (client, limit) = (&context.client, context.limits.document);
        let fetched = fetch_document(client, uri, None, limit).await?;
        // A document that is fetched unconditionally is never unchanged.
        let fetched = fetched.ok_or(EngineError::Interrupted)?;
        let read = SummarizedDocument::read_from(client, uri, fetched, limit).await?;
        Ok(Some((number, read)))
    }

    /// Enters an index, or records the entries of a list. `listed`: the time that its index states.
    async fn enter(
        &mut self,
        uri: &Url,
        listed: Option<SourceTime>,
        number: i64,
        read: SummarizedDocument,
    ) -> Result<(), EngineError> {
        let is_listed = self.capability == Capability::ResourceList;
        let stated = read.stated_time(listed).filter(|_| is_listed);
        if stated.is_some_and(|at| self.since.is_some_and(|known| at < known)) {
            return Err(EngineError::OlderResourceList(uri.to_string()));
        }
        let bad_entries = read.summary.bad_entries();
        self.read.absence.is_of_draft |= read.summary.is_of_draft();
        // What happened before the Resource List is in it.
        let reaches_back = self
            .since
            .is_some_and(|since| read.summary.oldest.is_some_and(|oldest| oldest <= since));
        let before = read.summary.head.previous_change_set();
        let before = before.filter(|_| !is_listed && !reaches_back).cloned();
        if !is_listed && read.summary.packages_of_changes > 0 {
            let document = read.document.url().to_string();
            self.fail(uri, EngineError::MixedPackages(document))?;
        }
        if let Some(list) = self.walk.enter(read)? {
            let kind = if is_listed {
                let at = stated.unwrap_or_else(|| list.guessed_time(list.summary.newest));
                self.read.at = [self.read.at, Some(at)].into_iter().flatten().min();
                // As for the daemon, what it states is never older than what is known.
                let is_newest = self.is_only_document && stated.is_none();
                let is_newest = is_newest && !self.read.absence.is_of_draft;
                StatementKind::ResourceList {
                    at: if is_newest { SourceTime::MAX } else { at },
                }
            } else {
                StatementKind::ChangeList {
                    newest_first: list.summary.newest_first,
                    since: self.since,
                }
            };
            let (source, audit_db) = (self.context.source.clone(), Arc::clone(self.audit_db));
            let list_no = (self.set, number);
            let recording = list
                .with_entries(move |next| record_entries(&source, &audit_db, list_no, kind, next));
            recording.await?;
            if let Some(before) = before {
                self.walk.follow(uri, &before)?;
            }
        }
        self.context.progress.count_document();
        self.read.any = true;
        if bad_entries > 0 {
            self.fail(uri, EngineError::BadEntries(bad_entries))?;
        }
        Ok(())
    }

    /// Records that a document, or a part of it, was not read.
    fn fail(&mut self, uri: &Url, error: EngineError) -> Result<(), EngineError> {
        if error.is_fatal() {
            return Err(error);
        }
        self.read.is_complete = false;
        unread(self.audit_db, Some(self.set), uri, &error)
    }
}

/// Whether all entries of a document that names others were read. Records it as a finding if not.
fn expect_readable(
    audit_db: &AuditDb,
    set: Option<u32>,
    uri: &Url,
    oddities: &Oddities,
) -> Result<bool, EngineError> {
    let count = oddities.damaged_entries() + oddities.count(Oddity::TooManyOffers);
    if count > 0 {
        unread(audit_db, set, uri, &EngineError::BadEntries(count))?;
    }
    Ok(count == 0)
}

/// Records a document that can't be read as a finding.
fn unread(
    audit_db: &AuditDb,
    set: Option<u32>,
    uri: &Url,
    error: &EngineError,
) -> Result<(), EngineError> {
    let finding = Finding {
        set,
        uri: Some(uri.to_string()),
        code: Some(error.code().to_owned()),
        message: Some(error.to_string()),
        ..Finding::new(FindingKind::Unreachable)
    };
    Ok(audit_db.add_findings(&[finding])?)
}
