//! How a set's documents are fetched, surveyed whole before anything is done with them, and turned into tasks.

pub(super) mod index;
pub(super) mod ingest;
pub(super) mod oddities;
pub(super) mod summary;

use url::Url;

use super::EngineError;
use super::context::SourceContext;
use crate::fetch::{CapabilityList, Fetched, FetchedDocument};
use crate::protocol::{Capability, DocumentSummary};
use crate::store::{DocumentRecord, SetId};
use summary::summarize;

/// A document that has changed since it was read last.
pub(super) struct ChangedDocument {
    pub(super) document: Box<FetchedDocument>,
    pub(super) survey: DocumentSummary,
    pub(super) record: DocumentRecord,
}

impl ChangedDocument {
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

    /// Refuses to take a document for all that it should name, where entries of it can't be read.
    pub(super) fn expect_all(&self) -> Result<(), EngineError> {
        match self.survey.bad_entries() {
            0 => Ok(()),
            count => Err(EngineError::UnreadEntries {
                document: self.document.url().to_string(),
                count,
            }),
        }
    }

    /// As [`expect`](Self::expect), for a dump. Some mark theirs as the list that it stands for: then its packages tell.
    pub(super) fn expect_dump(&self, capability: &Capability) -> Result<(), EngineError> {
        match (&self.survey.head.md.capability, capability) {
            (Some(Capability::ResourceList), Capability::ResourceDump)
            | (Some(Capability::ChangeList), Capability::ChangeDump)
                if self.survey.holds_packages =>
            {
                Ok(())
            }
            _ => self.expect(capability),
        }
    }

    /// Refuses a document that names nothing and does not say what it is, as a Source serves that has lost what it had. It
    /// would be of the moment at which it was read, and would prove that there is nothing.
    pub(super) fn expect_something(&self) -> Result<(), EngineError> {
        let is_stated = self.survey.head.md.capability.is_some();
        if self.survey.entries == 0 && !is_stated {
            return Err(EngineError::EmptyDocument(self.document.url().to_string()));
        }
        Ok(())
    }
}

impl SourceContext {
    /// Fetches and surveys a document; `None` if it is the one that was read last. `anew`: read it in any case.
    pub(super) async fn fresh(
        &self,
        set: SetId,
        uri: &Url,
        anew: bool,
    ) -> Result<Option<ChangedDocument>, EngineError> {
        let before = if anew {
            None
        } else {
            self.store.document(set, uri).await?
        };
        let mut read_last = before.clone();
        let fresh = self.fresh_since(set, uri, read_last.as_mut()).await?;
        match read_last {
            Some(now) if fresh.is_none() && before.as_ref() != Some(&now) => {
                self.store.remember_document(set, now).await?;
            }
            _ => {}
        }
        Ok(fresh)
    }

    /// The same, where the caller remembers what was read last. That may change although the document has not: a date may
    /// tell versions apart by now that it did not when the document was read.
    pub(super) async fn fresh_since(
        &self,
        set: SetId,
        uri: &Url,
        read_last: Option<&mut DocumentRecord>,
    ) -> Result<Option<ChangedDocument>, EngineError> {
        let known = read_last.as_deref().map(|read| &read.validators);
        let fetched = self
            .client
            .get_document(uri, known, self.limits.document)
            .await;
        let document = match fetched.map_err(|error| EngineError::Fetch {
            uri: uri.to_string(),
            error,
        })? {
            Fetched::NotModified => return Ok(None),
            Fetched::Document(document) => document,
        };
        let record = record_of(uri, &document);
        if let Some(read) = read_last.filter(|read| read.digest == record.digest) {
            *read = record;
            return Ok(None);
        }
        let (document, survey) = summarize(document).await.map_err(|error| match error {
            EngineError::Read(error) => EngineError::BadDocument {
                uri: uri.to_string(),
                error,
            },
            other => other,
        })?;
        self.note_document(set, uri, Some(&survey.head), &survey.oddities);
        self.progress.count_document();
        Ok(Some(ChangedDocument {
            document,
            survey,
            record,
        }))
    }
}

pub(super) fn record_of(uri: &Url, document: &FetchedDocument) -> DocumentRecord {
    DocumentRecord {
        uri: uri.to_string(),
        validators: document.validators().clone(),
        digest: *document.digest(),
    }
}

/// `None` where the list is one of resources: it is remembered when its entries have been taken.
pub(super) fn record_of_list(list: &CapabilityList) -> Option<DocumentRecord> {
    (!list.is_implied()).then(|| DocumentRecord {
        uri: list.uri.to_string(),
        validators: list.validators.clone(),
        digest: list.digest,
    })
}
