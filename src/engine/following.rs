//! What every worker of one Source shares.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::board::Board;
use crate::config;
use crate::fetch::Client;
use crate::mirror::{made_path, plain_path};
use crate::protocol::{ChangeKind, Entry, Link, ResourceUri, SourceTime};
use crate::store::{Change, DeletionRules, Paths, Store};
use crate::sync::{Expected, Reliance, cut_links};

/// One Source that is followed.
pub(super) struct Following {
    pub(super) source: config::Source,
    pub(super) limits: config::Limits,
    pub(super) connections_per_host: usize,
    pub(super) store: Arc<Store>,
    pub(super) client: Client,
    pub(super) board: Arc<Board>,
    /// What callbacks begin with; `None`: no channel can be subscribed to.
    pub(super) public_url: Option<Url>,
    /// Whether the mirror's disk refused the last file.
    pub(super) disk_refuses: AtomicBool,
    /// Whether it was told that a resource has more links than are kept.
    pub(super) links_cut: AtomicBool,
    /// Which hosts of duplicates are relied on.
    pub(super) reliance: Mutex<Reliance>,
    /// Asks the Source's worker to look for sets anew.
    pub(super) rediscover: Notify,
    /// Ends the workers.
    pub(super) stop: CancellationToken,
    /// Ended once the subscriptions are being ended for good: no channel is subscribed to any more.
    pub(super) retired: CancellationToken,
}

impl Following {
    pub(super) fn name(&self) -> &str {
        &self.source.name
    }

    pub(super) fn deletion_rules(&self) -> DeletionRules {
        DeletionRules {
            max_share: self.source.max_delete,
        }
    }

    /// What an entry tells of a resource; `None` if it is not wanted, or not something that can be fetched.
    ///
    /// `kind` is what an entry counts as that does not say; nothing is lost by looking at a resource once too often.
    pub(super) fn change_of(
        &self,
        entry: Entry,
        kind: ChangeKind,
        changed_at: Option<SourceTime>,
    ) -> Option<Change> {
        let uri = ResourceUri::try_from(entry.loc).ok()?;
        if !self.source.filter.wants(&uri) {
            return None;
        }
        let links = self.kept(&uri, entry.links);
        let expected = Expected {
            length: entry.md.length,
            hashes: entry.md.hashes,
            modified: None,
        };
        let kind = entry.md.change.unwrap_or(kind);
        let first = if links.is_empty() || kind == ChangeKind::Deleted {
            None
        } else {
            self.candidates(&uri, &expected, &links).into_iter().next()
        };
        Some(Change {
            paths: paths_of,
            authority: first.map_or_else(|| uri.authority(), |first| first.uri.authority()),
            uri,
            kind,
            changed_at,
            lastmod: entry.lastmod,
            length: entry.md.length,
            media_type: entry.md.media_type,
            hashes: expected.hashes,
            links,
            late: false,
        })
    }

    /// Those links of a resource that are kept; tells once if there are more.
    fn kept(&self, uri: &ResourceUri, mut links: Vec<Link>) -> Vec<Link> {
        if cut_links(&mut links) && !self.links_cut.swap(true, Ordering::Relaxed) {
            tracing::warn!(code = "links-cut", source = self.name(), %uri, kept = links.len(),
                "a resource has more links than are kept; others may, too");
        }
        links
    }
}

/// Where a resource's file may be.
fn paths_of(uri: &ResourceUri) -> Paths {
    Paths {
        plain: plain_path(uri).map(|path| path.to_string()),
        made: made_path(uri).to_string(),
    }
}
