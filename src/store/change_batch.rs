//! What is told of resources, in the form in which the store takes it: changes, and what ends their document.

use chrono::{DateTime, Utc};

use super::feed::Origin;
use super::inbox::DeliveryOutcome;
use super::sets::DocumentRecord;
use super::{ChannelId, SetId};
use crate::protocol::{ChangeKind, Digest, Link, ResourceUri, SourceTime};
use crate::sync::{Announced, Coverage, Gap};

/// A change as a document tells it, or an entry of a Resource List.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource.
    pub uri: ResourceUri,
    /// Where its file belongs; asked only the first time that the resource is told of.
    pub paths: fn(&ResourceUri) -> Paths,
    /// What happened.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When the representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The length of the representation, in bytes.
    pub length: Option<u64>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Its digests.
    pub hashes: Vec<Digest>,
    /// What it is related to.
    pub links: Vec<Link>,
    /// The host that it is fetched from first.
    pub authority: String,
    /// Whether a later document has told of the same time already.
    pub late: bool,
}

/// Where a resource's file may be, relative to the mirror.
#[derive(Clone, Debug)]
pub struct Paths {
    /// By its plain name; `None` where that can't be had.
    pub plain: Option<String>,
    /// Where it is if the plain name can't be had, or belongs to another resource.
    pub made: String,
}

impl Paths {
    /// Those of a resource that has its path.
    pub(super) fn given(_: &ResourceUri) -> Self {
        Self {
            plain: None,
            made: String::new(),
        }
    }
}

impl Change {
    /// That a resource is gone.
    #[must_use]
    pub fn deletion(
        uri: ResourceUri,
        paths: fn(&ResourceUri) -> Paths,
        changed_at: Option<SourceTime>,
    ) -> Self {
        Self {
            authority: uri.authority(),
            uri,
            paths,
            kind: ChangeKind::Deleted,
            changed_at,
            lastmod: None,
            length: None,
            media_type: None,
            hashes: Vec::new(),
            links: Vec::new(),
            late: false,
        }
    }

    pub(super) fn told(&self) -> Announced<'_> {
        Announced {
            kind: self.kind,
            changed_at: self.changed_at,
            lastmod: self.lastmod,
            length: self.length,
            hashes: &self.hashes,
            late: self.late,
        }
    }
}

/// When deletions wait for a person.
#[derive(Clone, Copy, Debug)]
pub struct DeletionRules {
    /// The share of a set, 0 to 1, of which more than that (and more than 100) at once is held back.
    pub max_share: f64,
    /// Whether all of them are held back, however few: the list that they come from names nothing at all.
    pub holds_all: bool,
}

/// What goes into one transaction: the changes of a document, or a part of them, and what they move.
#[derive(Debug)]
pub struct ChangeBatch {
    /// The set.
    pub set: SetId,
    /// The label of its Source.
    pub source: String,
    /// What kind of document tells it.
    pub origin: Origin,
    /// The time on our clock.
    pub now: DateTime<Utc>,
    /// The changes, in the order of the document.
    pub changes: Vec<Change>,
    /// What ends the document; `None` while parts of it are still to come.
    pub end: Option<BatchCommit>,
}

/// What becomes true when all of a document's changes have become tasks.
#[derive(Debug)]
pub struct BatchCommit {
    /// Decides whether the document's deletions go on.
    pub rules: DeletionRules,
    /// What is known of the set's time; `None`: the document proves nothing.
    pub progress: Option<(Coverage, Vec<Gap>)>,
    /// The notification that was worked on.
    pub delivery: Option<(i64, ChannelId, DeliveryOutcome)>,
    /// Documents that need not be read again while they stay the same.
    pub documents: Vec<DocumentRecord>,
    /// The time of the Resource List that was read whole.
    pub listed: Option<SourceTime>,
    /// Up to where the Source's documents have been read; `None`: as before.
    pub read_until: Option<SourceTime>,
    /// The channels that have missed something: a gap of theirs has opened.
    pub missed_by: Vec<ChannelId>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchResult {
    /// Changes that became tasks.
    pub tasks: u64,
    /// Changes that were known, or older than what is known.
    pub known: u64,
    /// Deletions that are held back by now.
    pub held: u64,
}

impl BatchResult {
    /// Adds what came of another part of the same document.
    pub fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.known += other.known;
        self.held += other.held;
    }
}
