//! Changes of resources, as documents state them and transactions apply them.

use chrono::{DateTime, Utc};
use resourcesync::entries::ChangeFrequency;
use resourcesync::{ChangeKind, ContentInfo, Link, SourceTime};
use resyncd_core::{LinkedResource, ResourceUri, Standing, is_plausible};

/// The kind of document that stated a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A change notification.
    Notification,
    /// A Change List.
    ChangeList,
    /// A Change Dump.
    ChangeDump,
    /// A Resource List.
    ResourceList,
    /// A Resource Dump.
    ResourceDump,
    /// An audit that repairs.
    Audit,
    /// No document: a person has a Source, or its former sets, forgotten.
    Forget,
    /// No document: a folder of this machine.
    Folder,
}

impl Origin {
    /// Its stable name.
    pub fn code(self) -> &'static str {
        match self {
            Self::Notification => "notification",
            Self::ChangeList => "change-list",
            Self::ChangeDump => "change-dump",
            Self::ResourceList => "resource-list",
            Self::ResourceDump => "resource-dump",
            Self::Audit => "audit",
            Self::Forget => "forget",
            Self::Folder => "folder",
        }
    }

    pub(super) fn from_code(code: &str) -> Option<Self> {
        let all = [
            Self::Notification,
            Self::ChangeList,
            Self::ChangeDump,
            Self::ResourceList,
            Self::ResourceDump,
            Self::Audit,
            Self::Forget,
            Self::Folder,
        ];
        all.into_iter().find(|origin| origin.code() == code)
    }

    /// Whether a person has asked for the change: it needs no approval, and a deletion removes the file whatever `delete` is.
    pub fn is_of_person(self) -> bool {
        matches!(self, Self::Audit | Self::Forget)
    }

    /// Whether it states what exists, and not what happened.
    pub(crate) fn is_listing(self) -> bool {
        matches!(self, Self::ResourceList | Self::ResourceDump)
    }
}

/// A change as a document states it, or an entry of a Resource List.
#[derive(Clone, Debug)]
pub struct Change {
    /// The resource.
    pub uri: ResourceUri,
    /// What happened.
    pub kind: ChangeKind,
    /// When it happened.
    pub changed_at: Option<SourceTime>,
    /// When the representation was last modified.
    pub lastmod: Option<SourceTime>,
    /// The representation.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
    /// Its related resources.
    pub links: Vec<Link>,
    /// The host of its first candidate.
    pub authority: String,
    /// Whether a later document has been read that covers the same time.
    pub overtaken: bool,
    /// How often the resource changes, as the entry states.
    pub frequency: Option<ChangeFrequency>,
    /// Whether only a hub states it that is not the Source.
    pub unconfirmed: bool,
    /// What the configuration selects of it; `None`: everything.
    pub standing: Option<Standing>,
    /// Whether its entry has more links than are read: what they name is not known.
    pub has_cut_links: bool,
    /// Those of its related resources that are to be fetched.
    pub linked: Vec<LinkedResource>,
    /// Whether the version that it announces is to be stored.
    pub version: VersionRule,
}

/// What a change means for the stored versions of its resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionRule {
    /// Nothing: versions of the Source are not stored.
    #[default]
    Ignored,
    /// Its version is stored, beside what becomes of the mirror.
    Stored,
    /// It states nothing new of what the mirror is to have. Its version is stored if it can be fetched at a place of its own.
    OnlyStored,
}

impl Change {
    /// The deletion of a resource.
    #[must_use]
    pub fn deletion(uri: ResourceUri, changed_at: Option<SourceTime>) -> Self {
        Self {
            authority: uri.authority(),
            uri,
            kind: ChangeKind::Deleted,
            changed_at,
            lastmod: None,
            content: ContentInfo::default(),
            links: Vec::new(),
            overtaken: false,
            frequency: None,
            encoding: None,
            unconfirmed: false,
            standing: None,
            has_cut_links: false,
            linked: Vec::new(),
            version: VersionRule::Ignored,
        }
    }

    /// Whether the change itself states all that the configuration selects by, or deletes the resource.
    pub fn is_selected(&self) -> bool {
        self.kind == ChangeKind::Deleted || self.standing.is_none_or(Standing::is_wanted)
    }

    /// The time of the version that it announces: of the last modification, or else of the change; `None`: it has none, or it is not
    /// plausible.
    pub(super) fn version_time(&self, now: DateTime<Utc>) -> Option<SourceTime> {
        let stated = [self.lastmod, self.changed_at].into_iter().flatten();
        stated.into_iter().find(|&at| is_plausible(at, now))
    }
}
