//! Polls the documents of a set: fetched conditionally, summarized completely before anything is done with them.

use resyncd_fetch::{CapabilityList, FetchedDocument};
use url::Url;

use super::fetch_ahead::EarlyDocument;
use super::notices::note_document;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::{SummarizedDocument, fetch_document};
use crate::store::{DocumentRecord, SetId};

/// A document that has changed since it was read last.
pub(super) struct ChangedDocument {
    pub(super) read: SummarizedDocument,
    pub(super) record: DocumentRecord,
}

/// Polls a document; `None` if it has not changed since it was read last. `unconditional`: fetch and read it in any case.
pub(super) async fn poll_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    unconditional: bool,
) -> Result<Option<ChangedDocument>, EngineError> {
    poll_early_document(context, set, uri, unconditional, None).await
}

/// Fetches and reads a document in any case.
pub(super) async fn read_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
) -> Result<ChangedDocument, EngineError> {
    let changed = poll_document(context, set, uri, true).await?;
    // A document that is fetched anew is never unchanged.
    changed.ok_or(EngineError::Interrupted)
}

/// The same as [`poll_document`], of a document that may have been requested before its turn.
pub(super) async fn poll_early_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    unconditional: bool,
    early: Option<EarlyDocument>,
) -> Result<Option<ChangedDocument>, EngineError> {
    let before = if unconditional {
        None
    } else {
        context.store.document(set, uri).await?
    };
    let mut read_last = before.clone();
    let known = before.as_ref().map(|read| &read.validators);
    let early = match early {
        Some(early) => early.fetched(known).await,
        None => None,
    };
    let fetched = match early {
        Some(fetched) => fetched,
        None => fetch_document(&context.client, uri, known, context.limits.document).await,
    };
    let changed = changed_since(context, set, uri, fetched?, read_last.as_mut()).await?;
    match read_last {
        Some(now) if changed.is_none() && before.as_ref() != Some(&now) => {
            context.store.remember_document(set, now).await?;
        }
        _ => {}
    }
    Ok(changed)
}

/// The same, where the caller remembers what was read last. The record may change although the document has not: its
/// `Last-Modified` may distinguish versions by now that it did not distinguish when the document was read.
pub(super) async fn poll_document_since(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    read_last: Option<&mut DocumentRecord>,
) -> Result<Option<ChangedDocument>, EngineError> {
    let validators = read_last.as_deref().map(|read| &read.validators);
    let limit = context.limits.document;
    let fetched = fetch_document(&context.client, uri, validators, limit).await?;
    changed_since(context, set, uri, fetched, read_last).await
}

/// Summarizes a document that was fetched, unless it is the one that was read last. `fetched`: `None` if the server states so.
async fn changed_since(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    fetched: Option<Box<FetchedDocument>>,
    read_last: Option<&mut DocumentRecord>,
) -> Result<Option<ChangedDocument>, EngineError> {
    let Some(document) = fetched else {
        return Ok(None);
    };
    let record = record_of(uri, &document);
    if let Some(read) = read_last.filter(|read| read.digest == record.digest) {
        *read = record;
        return Ok(None);
    }
    let limit = context.limits.document;
    let read = SummarizedDocument::read_from(&context.client, uri, document, limit).await?;
    let summary = &read.summary;
    note_document(context, set, uri, Some(&summary.head), &summary.oddities);
    if let count @ 1.. = summary.bad_entries() {
        let error = EngineError::BadEntries(count).status_error();
        context.read_facts.note_unread(Some(set), uri, error);
    }
    context.progress.count_document();
    Ok(Some(ChangedDocument { read, record }))
}

fn record_of(uri: &Url, document: &FetchedDocument) -> DocumentRecord {
    DocumentRecord {
        uri: uri.to_string(),
        validators: document.validators().clone(),
        digest: *document.digest(),
    }
}

/// `None` where the list is one of resources: it is remembered once its entries are ingested.
pub(crate) fn record_of_list(list: &CapabilityList) -> Option<DocumentRecord> {
    (!list.is_implied()).then(|| DocumentRecord {
        uri: list.uri.to_string(),
        validators: list.validators.clone(),
        digest: list.digest,
    })
}
