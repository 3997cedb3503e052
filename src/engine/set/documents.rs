//! Polls the documents of a set: fetched conditionally, summarized completely before anything is done with them.

use url::Url;

use super::fetch_ahead::EarlyDocument;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::{SummarizedDocument, fetch_document};
use crate::fetch::{CapabilityList, FetchedDocument};
use crate::protocol::{Head, Oddities, Oddity};
use crate::status::StatusError;
use crate::store::{DocumentRecord, SetId};

/// The code of the notice that a channel can't be used.
const UNSUPPORTED_TRANSPORT: &str = "unsupported-transport";
/// The code of the notice that links are left out, as of the error that documents are.
const TOO_MANY_RESOURCES: &str = "too-many-resources";

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

/// The same, of a document that may have been requested before its turn.
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
    context.progress.count_document();
    Ok(Some(ChangedDocument { read, record }))
}

/// Records the oddities of a document as it was read now, none where it is no longer one of the set's; with its head also
/// those of its place among the documents.
pub(in crate::engine) fn note_document(
    context: &SourceContext,
    set: SetId,
    document: &Url,
    head: Option<&Head>,
    oddities: &Oddities,
) {
    let mut oddities = oddities.clone();
    let is_news = context.runtime_status.note_oddities(set, |documents| {
        let has_wrong_up = head.is_some_and(|head| documents.has_wrong_up(head));
        if has_wrong_up && oddities.count(Oddity::WrongUp) == 0 {
            oddities.add(Oddity::WrongUp);
        }
        documents.replace(document, oddities.clone())
    });
    log_oddities(context, is_news, document, &oddities);
}

/// Records what a Capability List states beside the offers: its oddities, what describes the set, and channels that can't be used.
pub(in crate::engine) fn note_capability_list(
    context: &SourceContext,
    set: SetId,
    list: &CapabilityList,
) {
    note_document(context, set, &list.uri, None, &list.oddities);
    let notice = unsupported_transport(list);
    let mut is_news = false;
    context.runtime_status.note_set(set, |facts| {
        facts.has_read_list = true;
        facts.described_by[1].clone_from(&list.described_by);
        match &notice {
            Some((notice, count)) => is_news = facts.notices.replace(notice.clone(), *count),
            None => facts.notices.clear(UNSUPPORTED_TRANSPORT),
        }
    });
    if let Some((notice, _)) = notice.filter(|_| is_news) {
        tracing::warn!(code = notice.code, source = context.name(), set = %list.uri, error = notice.message, "channel can't be used");
    }
}

fn unsupported_transport(list: &CapabilityList) -> Option<(StatusError, u64)> {
    let first = list.unsupported_channels.first()?;
    let (capability, uri) = (&first.capability, &first.uri);
    let message =
        format!("the {capability} channel {uri} has a transport that is not supported yet");
    let notice = StatusError::new(UNSUPPORTED_TRANSPORT, message, clock::now().wall);
    Some((notice, list.unsupported_channels.len() as u64))
}

/// Records the oddities of a document that is above all of these sets.
pub(in crate::engine) fn note_description<'a>(
    context: &SourceContext,
    sets: impl Iterator<Item = &'a SetId>,
    document: &Url,
    oddities: &Oddities,
) {
    let mut sets = sets.peekable();
    let mut is_news = sets.peek().is_some();
    for &set in sets {
        // A set that was found later does not make it news.
        is_news &= context.runtime_status.note_oddities(set, |documents| {
            documents.replace(document, oddities.clone())
        });
    }
    log_oddities(context, is_news, document, oddities);
}

/// Records that an index names itself, or an index above it.
pub(super) fn note_repeated_index(context: &SourceContext, set: SetId, index: &Url) {
    let mut oddities = Oddities::default();
    oddities.add(Oddity::IndexRing);
    let is_news = context
        .runtime_status
        .note_oddities(set, |documents| documents.include(index, Oddity::IndexRing));
    log_oddities(context, is_news, index, &oddities);
}

/// Records that linked resources were not followed, because the Source has as many resources as it may have.
pub(super) fn note_unfollowed(context: &SourceContext, set: SetId, count: u64) {
    if count == 0 {
        return;
    }
    let message =
        "linked resources are not followed: the Source has as many resources as it may have";
    let notice = StatusError::new(TOO_MANY_RESOURCES, message, clock::now().wall);
    tracing::warn!(
        code = notice.code,
        source = context.name(),
        count,
        error = notice.message,
        "links left out"
    );
    context
        .runtime_status
        .note_set(set, |facts| facts.notices.add(notice, count));
}

/// Records that resources are left to polls because they are at hosts or ports that the configuration does not state.
pub(super) fn note_foreign(context: &SourceContext, set: SetId, count: u64) {
    if count == 0 {
        return;
    }
    let message = "what was delivered to the callback names resources at other hosts or ports than those of `url`, `sets` and `hosts`: \
        they are left to polls";
    let notice = StatusError::new("foreign-resources", message, clock::now().wall);
    context
        .runtime_status
        .note_set(set, |facts| facts.notices.add(notice, count));
}

/// Forgets how many links were left out, before a list is read that states all of them.
pub(super) fn clear_unfollowed(context: &SourceContext, set: SetId) {
    context
        .runtime_status
        .note_set(set, |facts| facts.notices.clear(TOO_MANY_RESOURCES));
}

/// Records the oddities of a notification.
pub(super) fn note_notification(
    context: &SourceContext,
    set: SetId,
    topic: &Url,
    oddities: &Oddities,
) {
    let is_news = context
        .runtime_status
        .note_oddities(set, |documents| documents.add(topic, oddities));
    log_oddities(context, is_news, topic, oddities);
}

fn log_oddities(context: &SourceContext, is_news: bool, document: &Url, oddities: &Oddities) {
    if is_news {
        tracing::info!(code = "odd-document", source = context.name(), %document, %oddities, "document deviates from the specification");
    }
}

fn record_of(uri: &Url, document: &FetchedDocument) -> DocumentRecord {
    DocumentRecord {
        uri: uri.to_string(),
        validators: document.validators().clone(),
        digest: *document.digest(),
    }
}

/// `None` where the list is one of resources: it is remembered once its entries are ingested.
pub(in crate::engine) fn record_of_list(list: &CapabilityList) -> Option<DocumentRecord> {
    (!list.is_implied()).then(|| DocumentRecord {
        uri: list.uri.to_string(),
        validators: list.validators.clone(),
        digest: list.digest,
    })
}
