//! Polls the documents of a set: fetched conditionally, summarized completely before anything is done with them.

use resyncd_fetch::{CapabilityList, FetchedDocument};
use url::Url;

use super::fetch_ahead::EarlyDocument;
use super::notices::note_document;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::{SummarizedDocument, fetch_document, fetch_if_changed};
use crate::store::{DocumentRecord, SetId};

/// A document that has changed since it was read last.
pub(super) struct ChangedDocument {
    pub(super) read: SummarizedDocument,
    pub(super) record: DocumentRecord,
}

/// Fetches and reads a document.
pub(super) async fn read_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
) -> Result<ChangedDocument, EngineError> {
    read_early_document(context, set, uri, None).await
}

/// The same as [`read_document`], of a document that may have been requested before its turn.
pub(super) async fn read_early_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    early: Option<EarlyDocument>,
) -> Result<ChangedDocument, EngineError> {
    let early = match early {
        Some(early) => early.anew().await,
        None => None,
    };
    let fetched = match early {
        Some(fetched) => fetched,
        None => fetch_document(&context.client, uri, context.limits.document).await,
    };
    summarize(context, set, uri, fetched?).await
}

/// Polls a document; `None` if it has not changed since it was read last.
pub(super) async fn poll_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
) -> Result<Option<ChangedDocument>, EngineError> {
    poll_early_document(context, set, uri, None).await
}

/// The same as [`poll_document`], of a document that may have been requested before its turn.
pub(super) async fn poll_early_document(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    early: Option<EarlyDocument>,
) -> Result<Option<ChangedDocument>, EngineError> {
    let Some(before) = context.store.document(set, uri).await? else {
        let read = read_early_document(context, set, uri, early).await;
        return read.map(Some);
    };
    let mut read_last = before.clone();
    let early = match early {
        Some(early) => early.if_changed(&before.validators).await,
        None => None,
    };
    let changed = match early {
        Some(fetched) => changed_since(context, set, uri, fetched?, &mut read_last).await?,
        None => poll_document_since(context, set, uri, &mut read_last).await?,
    };
    if changed.is_none() && before != read_last {
        context.store.remember_document(set, read_last).await?;
    }
    Ok(changed)
}

/// The same, where the caller remembers what was read last. The record may change although the document has not: its
/// `Last-Modified` may distinguish versions by now that it did not distinguish when the document was read.
pub(super) async fn poll_document_since(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    read_last: &mut DocumentRecord,
) -> Result<Option<ChangedDocument>, EngineError> {
    let (known, limit) = (&read_last.validators, context.limits.document);
    let fetched = fetch_if_changed(&context.client, uri, known, limit).await?;
    changed_since(context, set, uri, fetched, read_last).await
}

/// Summarizes a document that was fetched, unless it is the one that was read last. `fetched`: `None` if the server states so.
async fn changed_since(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    fetched: Option<Box<FetchedDocument>>,
    read_last: &mut DocumentRecord,
) -> Result<Option<ChangedDocument>, EngineError> {
    let Some(document) = fetched else {
        return Ok(None);
    };
    if read_last.digest == *document.digest() {
        *read_last = record_of(uri, &document);
        return Ok(None);
    }
    summarize(context, set, uri, document).await.map(Some)
}

async fn summarize(
    context: &SourceContext,
    set: SetId,
    uri: &Url,
    document: Box<FetchedDocument>,
) -> Result<ChangedDocument, EngineError> {
    let (record, limit) = (record_of(uri, &document), context.limits.document);
    let read = SummarizedDocument::read_from(&context.client, uri, document, limit).await?;
    let summary = &read.summary;
    note_document(context, set, uri, Some(&summary.head), &summary.oddities);
    if let count @ 1.. = summary.bad_entries() {
        let error = EngineError::BadEntries(count).status_error();
        context.read_facts.note_unread(Some(set), uri, error);
    }
    context.progress.count_document();
    Ok(ChangedDocument { read, record })
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
