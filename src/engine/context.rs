//! What every worker of one Source shares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::dumps::members::Members;
use super::dumps::refusals::Refusals;
use super::progress::Progress;
use super::runtime_status::RuntimeStatus;
use crate::clock;
use crate::config;
use crate::fetch::Client;
use crate::mirror::{Mirror, made_path, plain_path};
use crate::protocol::{ChangeKind, Entry, Head, Oddities, Oddity, ResourceUri, SourceTime};
use crate::store::{Change, DeletionRules, Paths, SetId, Store};
use crate::sync::{Expected, HostCircuitBreaker, cut_links, is_plausible};

/// One Source that is followed.
pub(super) struct SourceContext {
    pub(super) source: config::Source,
    pub(super) limits: config::Limits,
    pub(super) connections_per_host: usize,
    pub(super) store: Arc<Store>,
    pub(super) client: Client,
    pub(super) runtime_status: Arc<RuntimeStatus>,
    /// What callbacks begin with; `None`: no channel can be subscribed to.
    pub(super) public_url: Option<Url>,
    /// The mirror, once it is open and for as long as the applier has it.
    pub(super) mirror: OnceLock<Weak<Mirror>>,
    /// What need not be fetched, because a package has it.
    pub(super) members: Members,
    /// Whose turn it is to say which files of packages are of use.
    pub(super) package_files: tokio::sync::Mutex<()>,
    /// Packages that are of no use.
    pub(super) refusals: Refusals,
    /// Whether channels are subscribed to, kept and ended at all.
    pub(super) subscribes: bool,
    /// How far the work has come.
    pub(super) progress: Progress,
    /// Whether it was told that a resource has more links than are kept.
    pub(super) links_cut: AtomicBool,
    /// Which hosts of duplicates are relied on.
    pub(super) reliance: Mutex<HostCircuitBreaker>,
    /// Asks the Source's worker to look for sets anew.
    pub(super) rediscover: Notify,
    /// Ends the workers.
    pub(super) stop: CancellationToken,
    /// Ended once the subscriptions are being ended for good: no channel is subscribed to any more.
    pub(super) retired: CancellationToken,
}

impl SourceContext {
    pub(super) fn name(&self) -> &str {
        &self.source.name
    }

    /// Notes what is odd about a document of a set as it was read now; with its head also what is odd about its place.
    pub(super) fn note_document(
        &self,
        set: SetId,
        document: &Url,
        head: Option<&Head>,
        oddities: &Oddities,
    ) {
        let mut oddities = oddities.clone();
        let is_news = self.runtime_status.note_oddities(set, |documents| {
            let is_astray = head.is_some_and(|head| documents.is_astray(head));
            if is_astray && oddities.count(Oddity::WrongUp) == 0 {
                oddities.add(Oddity::WrongUp);
            }
            documents.replace(document, oddities.clone())
        });
        self.tell_odd(is_news, document, &oddities);
    }

    /// Notes what is odd about a document that is above all of these sets.
    pub(super) fn note_description<'a>(
        &self,
        sets: impl Iterator<Item = &'a SetId>,
        document: &Url,
        oddities: &Oddities,
    ) {
        let mut sets = sets.peekable();
        let mut is_news = sets.peek().is_some();
        for &set in sets {
            // A set that came later does not make it news.
            is_news &= self.runtime_status.note_oddities(set, |documents| {
                documents.replace(document, oddities.clone())
            });
        }
        self.tell_odd(is_news, document, oddities);
    }

    /// Notes what is odd about a notification.
    pub(super) fn note_notification(&self, set: SetId, topic: &Url, oddities: &Oddities) {
        let is_news = self
            .runtime_status
            .note_oddities(set, |documents| documents.add(topic, oddities));
        self.tell_odd(is_news, topic, oddities);
    }

    /// A document is no longer one of the set's: what is odd about it is of no interest any more.
    pub(super) fn forget_document(&self, set: SetId, document: &Url) {
        self.runtime_status.note_oddities(set, |documents| {
            documents.replace(document, Oddities::default())
        });
    }

    fn tell_odd(&self, is_news: bool, document: &Url, oddities: &Oddities) {
        if is_news {
            tracing::info!(code = "odd-document", source = self.name(), %document, %oddities, "a document is odd");
        }
    }

    pub(super) fn deletion_rules(&self) -> DeletionRules {
        DeletionRules {
            max_share: self.source.max_delete,
            holds_all: false,
        }
    }

    /// As the free [`change_of`].
    pub(super) fn change_of(
        &self,
        entry: Entry,
        kind: ChangeKind,
        changed_at: Option<SourceTime>,
    ) -> Option<Change> {
        let mut change = change_of(&self.source, entry, kind, changed_at)?;
        if cut_links(&mut change.links) && !self.links_cut.swap(true, Ordering::Relaxed) {
            tracing::warn!(code = "links-cut", source = self.name(), uri = %change.uri, kept = change.links.len(),
                "a resource has more links than are kept; others may, too");
        }
        if !change.links.is_empty() && change.kind != ChangeKind::Deleted {
            let expected = Expected {
                length: change.length,
                hashes: change.hashes.clone(),
                modified: None,
            };
            let first = self.candidates(&change.uri, &expected, &change.links);
            if let Some(first) = first.into_iter().next() {
                change.authority = first.uri.authority();
            }
        }
        Some(change)
    }
}

/// Where a resource's file may be.
pub(super) fn paths_of(uri: &ResourceUri) -> Paths {
    Paths {
        plain: plain_path(uri).map(|path| path.to_string()),
        made: made_path(uri).to_string(),
    }
}

/// What an entry tells of a resource; `None` if it is not wanted, or not something that can be fetched.
///
/// A change of a time that can't be is of unknown time: it would outdo every later one, or be outdone by every earlier one.
///
/// `kind` is what an entry counts as that does not say; nothing is lost by looking at a resource once too often.
pub(super) fn change_of(
    source: &config::Source,
    entry: Entry,
    kind: ChangeKind,
    changed_at: Option<SourceTime>,
) -> Option<Change> {
    let uri = ResourceUri::try_from(entry.loc).ok()?;
    if !source.filter.wants(&uri) {
        return None;
    }
    let now = clock::now().wall;
    Some(Change {
        paths: paths_of,
        authority: uri.authority(),
        uri,
        kind: entry.md.change.unwrap_or(kind),
        changed_at: changed_at.filter(|&time| is_plausible(time, now)),
        lastmod: entry.lastmod,
        length: entry.md.length,
        media_type: entry.md.media_type,
        hashes: entry.md.hashes,
        links: entry.links,
        late: false,
    })
}
