//! Reads what the Source states now: each set's Resource List, or all lists of its index, and the Change Lists after it.

use std::collections::HashSet;
use std::sync::Arc;

use url::Url;

use super::context::{AuditContext, blocking};
use super::document::{DocumentRead, PendingDocument};
use crate::engine::EngineError;
use crate::engine::source::discovery::{DiscoveredSet, KnownSets, find_sets, had_resourcesync};
use crate::fetch::{CapabilityList, DiscoveryCache, Fetched};
use crate::protocol::{Capability, SourceTime};
use crate::store::{AuditDb, Finding, FindingKind, KnownFiles, PendingList};

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
    /// Whether each document states its capability.
    stated: bool,
    /// The time of the oldest document.
    at: Option<SourceTime>,
    /// Where the documents begin, as they state.
    from: Option<SourceTime>,
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
        let limit = self.limits.document;
        let had_resourcesync = match &self.repair {
            Some(repair) => had_resourcesync(&repair.context).await?,
            None => false,
        };
        let known = KnownSets {
            followed: &HashSet::new(),
            had_resourcesync,
        };
        let mut cache = DiscoveryCache::default();
        match find_sets(&self.client, &self.source, limit, known, &mut cache).await {
            Ok(found) => {
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
            let (listed, changes) = self.read_set(audit_db, number, &set.uri, &list).await?;
            set.list = Some(list);
            documents.is_complete &= listed.any && listed.is_complete && changes.is_complete;
            documents.proves_absence &= listed.stated;
            documents.since = match (documents.since, listed.at) {
                (Some(since), Some(at)) => Some(since.min(at)),
                (since, at) => since.or(at),
            };
        }
        Ok(documents)
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
        let known = match offered(list, &Capability::ChangeList).next() {
            // It states whatever has happened since.
            Some(_) => None,
            None => self.listed_at(uri).await?,
        };
        let listed = self
            .read_capability(audit_db, set, list, Capability::ResourceList, known)
            .await?;
        if !listed.any && offered(list, &Capability::ResourceList).next().is_none() {
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
        let mut read = CapabilityRead {
            any: false,
            is_complete: true,
            stated: true,
            at: None,
            from: None,
        };
        let mut after = 0;
        let mut failed = None;
        for uri in offered(list, &capability) {
            note(audit_db, set, &capability, uri.clone(), 0)?;
            let Some((number, top)) = audit_db.next_list(set, &capability, after)? else {
                continue;
            };
            after = number;
            match self
                .read_list(audit_db, set, number, top, &capability, since)
                .await
            {
                Ok(document) => {
                    read.add(audit_db, set, uri, &document)?;
                    if let Some(index) = document.index {
                        note(audit_db, set, &capability, index, 0)?;
                    }
                    failed = None;
                    break;
                }
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => failed = failed.or(Some((uri.clone(), error))),
            }
        }
        if let Some((uri, error)) = failed {
            read.is_complete = false;
            unread(audit_db, Some(set), &uri, &error)?;
        }
        while let Some((number, list)) = audit_db.next_list(set, &capability, after)? {
            after = number;
            let uri = list.uri.clone();
            match self
                .read_list(audit_db, set, number, list, &capability, since)
                .await
            {
                Ok(document) => read.add(audit_db, set, &uri, &document)?,
                Err(EngineError::Store(error)) => return Err(error.into()),
                Err(error) => {
                    read.is_complete = false;
                    unread(audit_db, Some(set), &uri, &error)?;
                }
            }
        }
        Ok(read)
    }

    async fn read_list(
        &self,
        audit_db: &Arc<AuditDb>,
        set: u32,
        number: i64,
        list: PendingList,
        capability: &Capability,
        since: Option<SourceTime>,
    ) -> Result<DocumentRead, EngineError> {
        let limit = self.limits.document;
        let fetched = self.client.get_document(&list.uri, None, limit).await;
        let fetched = match fetched.map_err(|error| EngineError::Fetch {
            uri: list.uri.to_string(),
            error,
        })? {
            Fetched::Document(fetched) => fetched,
            Fetched::NotModified => return Err(EngineError::Interrupted),
        };
        let document = PendingDocument {
            set,
            number,
            list,
            capability: capability.clone(),
            since,
            fetched,
        };
        let (source, audit_db) = (self.source.clone(), Arc::clone(audit_db));
        let read = blocking(move || document.ingest(&source, &audit_db)).await??;
        self.progress.count_document();
        Ok(read)
    }
}

impl CapabilityRead {
    fn add(
        &mut self,
        audit_db: &AuditDb,
        set: u32,
        uri: &Url,
        document: &DocumentRead,
    ) -> Result<(), EngineError> {
        self.any = true;
        self.stated &= document.stated;
        self.at = [self.at, document.at].into_iter().flatten().min();
        self.from = [self.from, document.from].into_iter().flatten().min();
        if document.bad_entries > 0 {
            self.is_complete = false;
            unread(
                audit_db,
                Some(set),
                uri,
                &EngineError::BadEntries(document.bad_entries),
            )?;
        }
        Ok(())
    }
}

fn offered<'a>(
    list: &'a CapabilityList,
    capability: &'a Capability,
) -> impl Iterator<Item = &'a Url> {
    let advertised = list.capabilities.iter();
    advertised
        .filter(move |advertised| advertised.capability == *capability)
        .map(|advertised| &advertised.uri)
}

fn note(
    audit_db: &AuditDb,
    set: u32,
    capability: &Capability,
    uri: Url,
    depth: u32,
) -> Result<(), EngineError> {
    let list = PendingList {
        uri,
        depth,
        from: None,
        until: None,
    };
    Ok(audit_db.note_lists(set, capability, &[list])?)
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
