//! What the status states of the documents of a set: their oddities, and what is left out of them.

use resourcesync::{Capability, Head, Oddities, Oddity};
use resyncd_fetch::CapabilityList;
use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::runtime_status::each_once;
use crate::status::StatusError;
use crate::store::SetId;

/// The code of the notice that a channel can't be used.
const UNSUPPORTED_TRANSPORT: &str = "unsupported-transport";
/// The code of the notice that links are left out, as of the error that documents are.
const TOO_MANY_RESOURCES: &str = "too-many-resources";

/// Records the oddities of a document as it was read now, none where it is no longer one of the set's; with its head also
/// those of its place among the documents.
pub(crate) fn note_document(
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

/// Records what describes a set, as its Source Description or its Capability List states: for the status, and for who publishes the set.
pub(crate) async fn note_described_by(
    context: &SourceContext,
    set: SetId,
    stated_by: Capability,
    documents: &[Url],
) -> Result<(), EngineError> {
    let stated_by = usize::from(stated_by == Capability::CapabilityList);
    let mut all = Vec::new();
    context.runtime_status.note_set(set, |facts| {
        facts.described_by[stated_by] = documents.to_vec();
        all = each_once(&facts.described_by);
    });
    Ok(context.store.save_described_by(set, all).await?)
}

/// Records what a Capability List states beside the offers: its oddities, what describes the set, and channels that can't be used.
/// robots.txt does not count where there is more than a sitemap.
pub(crate) async fn note_capability_list(
    context: &SourceContext,
    set: SetId,
    list: &CapabilityList,
) -> Result<(), EngineError> {
    if !list.is_plain_sitemap {
        context.client.disregard_robots();
    }
    note_document(context, set, &list.uri, None, &list.oddities);
    if !list.is_implied() {
        note_unread_entries(context, Some(set), &list.uri, &list.oddities);
    }
    let notice = unsupported_transport(list);
    let mut is_news = false;
    context.runtime_status.note_set(set, |facts| {
        facts.has_read_list = true;
        match &notice {
            Some((notice, count)) => is_news = facts.notices.replace(notice.clone(), *count),
            None => facts.notices.clear(UNSUPPORTED_TRANSPORT),
        }
    });
    if let Some((notice, _)) = notice.filter(|_| is_news) {
        tracing::warn!(code = notice.code, source = context.name(), set = %list.uri, notice = notice.message, "channel can't be used");
    }
    note_described_by(context, set, Capability::CapabilityList, &list.described_by).await
}

/// Notes, for who runs once, that entries of a document can't be read that names others.
pub(crate) fn note_unread_entries(
    context: &SourceContext,
    set: Option<SetId>,
    document: &Url,
    oddities: &Oddities,
) {
    let count = oddities.damaged_entries() + oddities.count(Oddity::TooManyOffers);
    if count > 0 {
        let error = EngineError::BadEntries(count).status_error();
        context.read_facts.note_unread(set, document, error);
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
pub(crate) fn note_description<'a>(
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
    let message = "linked resources are not followed: the Source has reached `[limits] resources`";
    let notice = StatusError::new(TOO_MANY_RESOURCES, message, clock::now().wall);
    tracing::warn!(
        code = notice.code,
        source = context.name(),
        count,
        notice = notice.message,
        "linked resources not followed"
    );
    context
        .runtime_status
        .note_set(set, |facts| facts.notices.add(notice, count));
}

/// Records that resources are left to polls because a sender has named them that may not speak for the Source, and they are not known to be
/// the Source's.
pub(super) fn note_foreign(context: &SourceContext, set: SetId, count: u64) {
    if count == 0 {
        return;
    }
    let message = "notifications name resources that the Source does not list, at other origins than those of `url`, `sets`, `hosts` and \
        of its listed resources, or without TLS: they are left to polls";
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
