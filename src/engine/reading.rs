//! How a set's documents are fetched and taken in: each is surveyed whole first, then its entries go to the store in
//! batches, the last of them together with what the document proves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use url::Url;

use super::EngineError;
use super::following::Following;
use super::survey::{Survey, survey};
use crate::clock;
use crate::fetch::{Advertised, CapabilityList, Fetched, FetchedDocument, Validators};
use crate::protocol::{Capability, ChangeKind, SourceTime};
use crate::store::{
    Application, Applied, Change, DocumentRecord, End, ListProgress, Offer, Origin, SetId,
};
use crate::sync::Unknown;

/// How many entries go into one transaction.
const BATCH: usize = 1000;
/// How many it may become, so that entries of one time stay together.
const LONGEST_BATCH: usize = 16 * BATCH;

/// A document that has changed since it was read last.
pub(super) struct Fresh {
    pub(super) document: Box<FetchedDocument>,
    pub(super) survey: Survey,
    pub(super) record: DocumentRecord,
}

impl Fresh {
    /// Refuses a document that says that it is something else.
    pub(super) fn expect(&self, capability: &Capability) -> Result<(), EngineError> {
        match &self.survey.head.md.capability {
            Some(stated) if stated != capability => Err(EngineError::WrongCapability {
                document: self.document.url().to_string(),
                wanted: capability.clone(),
                found: stated.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl Following {
    /// Fetches and surveys a document; `None` if it is the one that was read last. `anew`: read it in any case.
    pub(super) async fn fresh(
        &self,
        set: SetId,
        uri: &Url,
        anew: bool,
    ) -> Result<Option<Fresh>, EngineError> {
        let read_last = if anew {
            None
        } else {
            self.store.document(set, uri).await?
        };
        let known = read_last.as_ref().map(|read| Validators {
            etag: read.etag.clone(),
            last_modified: read.last_modified.clone(),
        });
        let fetched = self
            .client
            .get_document(uri, known.as_ref(), self.limits.document)
            .await;
        let document = match fetched.map_err(|error| EngineError::Fetch {
            uri: uri.to_string(),
            error,
        })? {
            Fetched::NotModified => return Ok(None),
            Fetched::Document(document) => document,
        };
        if read_last.is_some_and(|read| read.digest == *document.digest()) {
            return Ok(None);
        }
        let record = record_of(uri, &document);
        let (document, survey) = survey(document).await.map_err(|error| match error {
            EngineError::Read(error) => EngineError::BadDocument {
                uri: uri.to_string(),
                error,
            },
            other => other,
        })?;
        self.progress.count_document();
        Ok(Some(Fresh {
            document,
            survey,
            record,
        }))
    }

    /// Takes the changes of a Change List that are news, and with the last of them what the list proves.
    pub(super) async fn take_changes(
        self: &Arc<Self>,
        set: SetId,
        fresh: Fresh,
        unknown: Unknown,
        end: End,
    ) -> Result<Applied, EngineError> {
        let following = Arc::clone(self);
        let taking = tokio::task::spawn_blocking(move || {
            following.take_changes_now(set, fresh, &unknown, end)
        });
        taking.await.map_err(|_| EngineError::Interrupted)?
    }

    fn take_changes_now(
        &self,
        set: SetId,
        mut fresh: Fresh,
        unknown: &Unknown,
        end: End,
    ) -> Result<Applied, EngineError> {
        let newest_first = fresh.survey.newest_first;
        let mut reader = fresh.document.reader()?;
        // Of what has one time, the later entry counts; where the newest comes first, that is the one that is met first.
        let (mut moment, mut met) = (None, HashSet::new());
        // Of what is told late, only the last word of the document counts.
        let mut last_words = HashMap::new();
        let (mut batch, mut last) = (Vec::new(), None);
        let mut sum = Applied::default();
        while let Some(entry) = reader.next_entry()? {
            let changed_at = entry.changed_at();
            if !unknown.includes(changed_at) {
                continue;
            }
            if newest_first && moment != changed_at {
                met.clear();
                moment = changed_at;
            }
            if newest_first && changed_at.is_some() && !met.insert(entry.loc.clone()) {
                continue;
            }
            if unknown.is_late(changed_at) {
                let loc = entry.loc.clone();
                let change = self.change_of(entry, ChangeKind::Updated, changed_at);
                last_words.extend(change.map(|change| {
                    (
                        loc,
                        Change {
                            late: true,
                            ..change
                        },
                    )
                }));
                continue;
            }
            // What has one time goes into one transaction: of a resource that is deleted and created within one second, the
            // deletion must not be seen alone.
            let goes_on = changed_at.is_some() && changed_at == last;
            last = changed_at;
            if batch.len() >= BATCH && (!goes_on || batch.len() >= LONGEST_BATCH) {
                let changes = std::mem::take(&mut batch);
                sum.add(self.store.apply_blocking(self.application(
                    set,
                    Origin::ChangeList,
                    changes,
                    None,
                ))?);
            }
            batch.extend(self.change_of(entry, ChangeKind::Updated, changed_at));
        }
        batch.extend(last_words.into_values());
        sum.add(self.store.apply_blocking(self.application(
            set,
            Origin::ChangeList,
            batch,
            Some(end),
        ))?);
        Ok(sum)
    }

    pub(super) fn application(
        &self,
        set: SetId,
        origin: Origin,
        changes: Vec<Change>,
        end: Option<End>,
    ) -> Application {
        Application {
            set,
            source: self.name().to_owned(),
            origin,
            now: clock::now().wall,
            changes,
            end,
        }
    }

    /// Takes the entries of a Resource List. `at`: the time that it is of.
    pub(super) async fn take_listed(
        self: &Arc<Self>,
        set: SetId,
        document: Box<FetchedDocument>,
        at: SourceTime,
    ) -> Result<Applied, EngineError> {
        let following = Arc::clone(self);
        let taking =
            tokio::task::spawn_blocking(move || following.take_listed_now(set, document, at));
        taking.await.map_err(|_| EngineError::Interrupted)?
    }

    fn take_listed_now(
        &self,
        set: SetId,
        mut document: Box<FetchedDocument>,
        at: SourceTime,
    ) -> Result<Applied, EngineError> {
        let list = ListProgress {
            set,
            source: self.name().to_owned(),
            at,
        };
        let mut reader = document.reader()?;
        let mut batch = Vec::new();
        let mut sum = Applied::default();
        loop {
            let entry = reader.next_entry()?;
            let is_last = entry.is_none();
            if let Some(mut entry) = entry {
                entry.md.change = None;
                let lastmod = entry.lastmod;
                batch.extend(self.change_of(entry, ChangeKind::Created, lastmod));
            }
            if batch.len() >= BATCH || (is_last && !batch.is_empty()) {
                let entries = std::mem::take(&mut batch);
                sum.add(
                    self.store
                        .list_entries_blocking(&list, clock::now().wall, entries)?,
                );
            }
            if is_last {
                return Ok(sum);
            }
        }
    }
}

pub(super) fn record_of(uri: &Url, document: &FetchedDocument) -> DocumentRecord {
    DocumentRecord {
        uri: uri.to_string(),
        etag: document.validators().etag.clone(),
        last_modified: document.validators().last_modified.clone(),
        digest: *document.digest(),
    }
}

pub(super) fn record_of_list(list: &CapabilityList) -> DocumentRecord {
    DocumentRecord {
        uri: list.uri.to_string(),
        etag: list.validators.etag.clone(),
        last_modified: list.validators.last_modified.clone(),
        digest: list.digest,
    }
}

pub(super) fn offer_of(advertised: &Advertised) -> Offer {
    Offer {
        capability: advertised.capability.clone(),
        uri: advertised.uri.clone(),
        hubs: advertised.hubs.clone(),
    }
}
