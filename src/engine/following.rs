//! What every worker of one Source shares.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::board::Board;
use super::progress::Progress;
use crate::config;
use crate::fetch::Client;
use crate::mirror::{made_path, plain_path};
use crate::protocol::{ChangeKind, Entry, ResourceUri, SourceTime};
use crate::store::{Change, DeletionRules, Store};

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
    /// Whether channels are subscribed to, kept and ended at all.
    pub(super) subscribes: bool,
    /// How far the work has come.
    pub(super) progress: Progress,
    /// Whether the mirror's disk refused the last file.
    pub(super) disk_refuses: AtomicBool,
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

    /// As the free [`change_of`].
    pub(super) fn change_of(
        &self,
        entry: Entry,
        kind: ChangeKind,
        changed_at: Option<SourceTime>,
    ) -> Option<Change> {
        change_of(&self.source, entry, kind, changed_at)
    }
}

/// What an entry tells of a resource; `None` if it is not wanted, or not something that can be fetched.
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
    Some(Change {
        plain_path: plain_path(&uri).map(|path| path.to_string()),
        made_path: made_path(&uri).to_string(),
        uri,
        kind: entry.md.change.unwrap_or(kind),
        changed_at,
        lastmod: entry.lastmod,
        length: entry.md.length,
        media_type: entry.md.media_type,
        hashes: entry.md.hashes,
        late: false,
    })
}
