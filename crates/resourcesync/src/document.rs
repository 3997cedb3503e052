//! Documents as values. Every ResourceSync document is a `urlset` or a `sitemapindex` with a head and entries (section 7);
//! they differ in the capability that the head states.

use std::fmt;

use chrono::TimeDelta;
use url::Url;

use super::named::named;
use super::{ContentInfo, Oddities, Oddity, SourceTime};

/// The namespace of the Sitemap protocol.
pub(super) const SITEMAP_NAMESPACE: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
/// The namespace of ResourceSync.
pub(super) const RS_NAMESPACE: &str = "http://www.openarchives.org/rs/terms/";
/// The namespace of XHTML, of which the draft of version 0.1 has elements.
pub(super) const XHTML_NAMESPACE: &str = "http://www.w3.org/1999/xhtml";

/// What a document is for (sections 8 to 13; the notification specifications, section 3).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// A Source Description, section 8.
    Description,
    /// A Capability List, section 9.
    CapabilityList,
    /// A Resource List or its index, section 10.
    ResourceList,
    /// A Resource Dump or its index, section 11.
    ResourceDump,
    /// The manifest in a package of a Resource Dump, section 11.2.
    ResourceDumpManifest,
    /// A Change List or its index, section 12.
    ChangeList,
    /// A Change Dump or its index, section 13.
    ChangeDump,
    /// The manifest in a package of a Change Dump, section 13.2.
    ChangeDumpManifest,
    /// A change notification, or the channel that carries them.
    ChangeNotification,
    /// A framework notification, or the channel that carries them.
    FrameworkNotification,
    /// A capability that this Destination does not use.
    Other(String),
}

impl Capability {
    /// The value of the `capability` attribute.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Description => "description",
            Self::CapabilityList => "capabilitylist",
            Self::ResourceList => "resourcelist",
            Self::ResourceDump => "resourcedump",
            Self::ResourceDumpManifest => "resourcedump-manifest",
            Self::ChangeList => "changelist",
            Self::ChangeDump => "changedump",
            Self::ChangeDumpManifest => "changedump-manifest",
            Self::ChangeNotification => "change-notification",
            Self::FrameworkNotification => "framework-notification",
            Self::Other(name) => name,
        }
    }

    /// The capability that a `capability` attribute states; `None` if it is empty.
    ///
    /// Any case, dashes in other places, a plural, the suffix `index` (an index has the capability of what it lists) and
    /// misspellings seen at real Sources are read too, and counted as [`Oddity::CapabilitySpelling`].
    #[must_use]
    pub fn parse(text: &str, oddities: &mut Oddities) -> Option<Self> {
        let written = text.trim();
        if written.is_empty() {
            return None;
        }
        let name = written.to_ascii_lowercase();
        let plain = name.replace(['-', '_', ' '], "");
        let plain = plain.strip_suffix("index").unwrap_or(&plain);
        let plain = plain.strip_suffix('s').unwrap_or(plain);
        let capability = match plain {
            "description" | "sourcedescription" => Self::Description,
            "capabilitylist" => Self::CapabilityList,
            // The specification itself has resourcecelist once, and resourceindex for a Resource List Index.
            "resourcelist" | "resourcecelist" | "resource" => Self::ResourceList,
            "resourcedump" => Self::ResourceDump,
            "resourcedumpmanifest" => Self::ResourceDumpManifest,
            "changelist" | "change" => Self::ChangeList,
            "changedump" => Self::ChangeDump,
            "changedumpmanifest" => Self::ChangeDumpManifest,
            "changenotification" => Self::ChangeNotification,
            "frameworknotification" => Self::FrameworkNotification,
            _ => return Some(Self::Other(name)),
        };
        if capability.as_str() != written {
            oddities.add(Oddity::CapabilitySpelling);
        }
        Some(capability)
    }

    /// Whether what has this capability is a channel, and no document to fetch.
    #[must_use]
    pub fn is_channel(&self) -> bool {
        matches!(self, Self::ChangeNotification | Self::FrameworkNotification)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The two root elements (section 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Root {
    /// `urlset`: the document itself.
    #[default]
    Urlset,
    /// `sitemapindex`: an index of such documents.
    Sitemapindex,
}

named! {
    fn as_str;
    /// The kind of a change (section 7, the `change` attribute).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ChangeKind {
        /// The resource is new.
        Created = "created",
        /// The content of the resource changed.
        Updated = "updated",
        /// The resource no longer exists.
        Deleted = "deleted",
    }
}

impl ChangeKind {
    /// The kind that a `change` attribute states, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|kind| kind.as_str().eq_ignore_ascii_case(text.trim()))
    }
}

/// The attributes of an `rs:md` element (section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Metadata {
    /// The time at which a snapshot began.
    pub at: Option<SourceTime>,
    /// The time at which a snapshot was finished.
    pub completed: Option<SourceTime>,
    /// When the document was modified last (version 0.1).
    pub modified: Option<SourceTime>,
    /// The begin of the interval of changes.
    pub from: Option<SourceTime>,
    /// The end of the interval of changes.
    pub until: Option<SourceTime>,
    /// The capability of the document, or of the document that the entry refers to.
    pub capability: Option<Capability>,
    /// The kind of the change.
    pub change: Option<ChangeKind>,
    /// The time of the change (version 1.1, and notifications).
    pub datetime: Option<SourceTime>,
    /// The representation.
    pub content: ContentInfo,
    /// The content codings of the representation.
    pub encoding: Option<String>,
    /// The path of the bytes in a package.
    pub path: Option<String>,
}

/// An `rs:ln` element (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Link {
    /// The relation type as written, without surrounding white space.
    pub rel: String,
    /// The target, resolved against the document.
    pub href: Url,
    /// The priority among links of one relation, 1 first; absent means last.
    pub pri: Option<u32>,
    /// The time of the last modification of the target.
    pub modified: Option<SourceTime>,
    /// The target's representation.
    pub content: ContentInfo,
    /// The content codings of the target.
    pub encoding: Option<String>,
    /// The path of the target in a package.
    pub path: Option<String>,
}

impl Link {
    /// Whether it has that relation, in any case. One attribute may name several.
    #[must_use]
    pub fn is(&self, rel: &str) -> bool {
        let mut stated = self.rel.split_ascii_whitespace();
        stated.any(|stated| stated.eq_ignore_ascii_case(rel))
    }

    /// A link with only a relation and a target.
    #[must_use]
    pub fn new(rel: impl Into<String>, href: Url) -> Self {
        Self {
            rel: rel.into(),
            href,
            pri: None,
            modified: None,
            content: ContentInfo::default(),
            encoding: None,
            path: None,
        }
    }
}

/// Where a Source pushes its changes, or takes requests for that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PushInterface {
    /// The URI of the protocol.
    pub protocol: String,
    /// Where it is, in any scheme.
    pub href: Url,
    /// The node of a service that has several.
    pub node: Option<String>,
}

/// The head of a document: what precedes its entries (section 7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Head {
    /// The root element.
    pub root: Root,
    /// The document's own `rs:md`.
    pub md: Metadata,
    /// The document's own `rs:ln`s, the first ones within [`LinkLimit`](crate::entries::LinkLimit).
    pub links: Vec<Link>,
    /// Where its changes are pushed from (version 0.1).
    pub interfaces: Vec<PushInterface>,
    /// Whether the root element states that it is a Change Set (version 0.1).
    pub is_change_set: bool,
}

impl Head {
    /// An empty head for a document of a capability.
    #[must_use]
    pub fn new(root: Root, capability: Capability) -> Self {
        Self {
            root,
            md: Metadata {
                capability: Some(capability),
                ..Metadata::default()
            },
            ..Self::default()
        }
    }

    /// The first link of a relation, in any case.
    pub fn link(&self, rel: &str) -> Option<&Url> {
        let mut links = self.links.iter();
        let link = links.find(|link| link.rel.eq_ignore_ascii_case(rel));
        link.map(|link| &link.href)
    }
}

/// A `url` or `sitemap` element: a resource, a change, or another document (sections 7 and 10 to 13).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// The URI of the resource or document, resolved against this document. Any scheme.
    pub loc: Url,
    /// The time of its last modification.
    pub lastmod: Option<SourceTime>,
    /// When it is deleted, or was (version 0.1): see [`expired_at`](Self::expired_at).
    pub expires: Option<SourceTime>,
    /// Its `rs:md`; several are merged, and the first value of each attribute is used.
    pub md: Metadata,
    /// Its `rs:ln`s, the first ones within [`LinkLimit`](crate::entries::LinkLimit).
    pub links: Vec<Link>,
    /// Whether it has more links than fit: those that are not here may name anything.
    pub has_cut_links: bool,
    /// How often it changes (`changefreq`, sitemaps.org).
    pub frequency: Option<ChangeFrequency>,
}

named! {
    fn as_str;
    /// How often a resource changes, as its Source expects (`changefreq` of the Sitemap protocol).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ChangeFrequency {
        /// At each access.
        Always = "always",
        /// Once an hour.
        Hourly = "hourly",
        /// Once a day.
        Daily = "daily",
        /// Once a week.
        Weekly = "weekly",
        /// Once a month.
        Monthly = "monthly",
        /// Once a year.
        Yearly = "yearly",
        /// An archived resource.
        Never = "never",
    }
}

impl ChangeFrequency {
    /// Parses the value of `changefreq`; `None`: none of those that are defined.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|frequency| frequency.as_str().eq_ignore_ascii_case(text.trim()))
    }

    /// The time between two changes; `None`: it always changes, or never.
    pub fn period(self) -> Option<TimeDelta> {
        Some(match self {
            Self::Always | Self::Never => return None,
            Self::Hourly => TimeDelta::hours(1),
            Self::Daily => TimeDelta::days(1),
            Self::Weekly => TimeDelta::days(7),
            Self::Monthly => TimeDelta::days(30),
            Self::Yearly => TimeDelta::days(365),
        })
    }
}

impl Entry {
    /// An entry with only a URI.
    #[must_use]
    pub fn new(loc: Url) -> Self {
        Self {
            loc,
            lastmod: None,
            expires: None,
            md: Metadata::default(),
            links: Vec::new(),
            has_cut_links: false,
            frequency: None,
        }
    }

    /// The time of the change: `datetime` if there is one (version 1.1), else `lastmod`.
    pub fn changed_at(&self) -> Option<SourceTime> {
        self.md.datetime.or(self.lastmod)
    }

    /// All links of a relation, in any case, by priority and then in the order of the document.
    pub fn links(&self, rel: &str) -> impl Iterator<Item = &Link> {
        let mut found: Vec<&Link> = self
            .links
            .iter()
            .filter(|link| link.rel.eq_ignore_ascii_case(rel))
            .collect();
        found.sort_by_key(|link| link.pri.unwrap_or(999_999));
        found.into_iter()
    }
}

/// A complete document in memory; only for documents that are short by nature: Capability Lists, notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The head.
    pub head: Head,
    /// The entries, in the order of the document.
    pub entries: Vec<Entry>,
    /// Its deviations from the specification.
    pub oddities: Oddities,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_recognized_in_other_spellings() {
        for (text, expected, odd) in [
            ("resourcelist", "resourcelist", false),
            (" changelist\n", "changelist", false),
            ("changedump-manifest", "changedump-manifest", false),
            ("resourceList", "resourcelist", true),
            ("resource-list", "resourcelist", true),
            ("resourcecelist", "resourcelist", true),
            ("resourcelistindex", "resourcelist", true),
            ("resourcelist-index", "resourcelist", true),
            ("resourceindex", "resourcelist", true),
            ("changelistindex", "changelist", true),
            ("changelists", "changelist", true),
            ("resourcedumpmanifest", "resourcedump-manifest", true),
            ("ChangeNotification", "change-notification", true),
            ("source-description", "description", true),
            ("resourcelist-archive", "resourcelist-archive", false),
            ("OAI-PMH", "oai-pmh", false),
        ] {
            let mut oddities = Oddities::default();
            let capability = Capability::parse(text, &mut oddities).unwrap();
            assert_eq!(capability.as_str(), expected, "{text}");
            let counted = oddities.count(Oddity::CapabilitySpelling);
            assert_eq!(counted, u64::from(odd), "{text}");
        }
        assert_eq!(Capability::parse(" ", &mut Oddities::default()), None);
    }
}
