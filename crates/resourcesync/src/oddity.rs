//! Deviations of documents from the specification.

use std::collections::BTreeMap;
use std::fmt;

#[cfg(feature = "read")]
use url::Url;

use super::named::named;
#[cfg(feature = "read")]
use super::uri::is_web;

named! {
    fn code;
    /// A deviation from the specification that is tolerated and reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[non_exhaustive]
    pub enum Oddity {
        /// The namespace of `rs` is not spelt as the specification spells it.
        Namespace = "namespace-spelling",
        /// The capability is misspelt, or in another case.
        CapabilitySpelling = "capability-spelling",
        /// The document states no capability.
        NoCapability = "no-capability",
        /// A datetime that is not a W3C Datetime but unambiguous: without a time zone, or with a space instead of the `T`.
        DatetimeForm = "datetime-form",
        /// An invalid datetime; it was ignored.
        BadDatetime = "bad-datetime",
        /// A datetime that stands for none, as `0000-00-00` of a database; it was ignored.
        ZeroDate = "zero-date",
        /// A digest that is invalid, of an unknown algorithm, or contradicts another; it was ignored.
        UnknownDigest = "unknown-digest",
        /// A `hash` without a digest.
        EmptyHash = "empty-hash",
        /// A digest in base64 instead of hexadecimal.
        DigestEncoding = "digest-encoding",
        /// An invalid number; it was ignored.
        BadNumber = "bad-number",
        /// A `length` without a number.
        EmptyLength = "empty-length",
        /// Several `rs:md` in one entry or head.
        SeveralMetadata = "several-metadata",
        /// An entry without a valid `loc`; it was ignored.
        BadLoc = "bad-loc",
        /// An entry that was ignored: it can't be read, or it is no resource of this document. With a link that continues the document
        /// and can't be read, one of unknown content.
        BadEntry = "bad-entry",
        /// A bare `&`, an unknown entity, bytes that are no text, or a no-break space between attributes. What it is in was ignored.
        BadMarkup = "bad-markup",
        /// The document ends with the start tag of its root element in place of the end tag.
        RootReopened = "root-reopened",
        /// The end of a sitemap that states nothing of ResourceSync is damaged: its end tag is missing, its last entry is cut, or something
        /// follows the end tag. What was read before that is used.
        DamagedEnd = "damaged-end",
        /// Another encoding than UTF-8 is declared.
        Encoding = "encoding",
        /// A sitemap as plain text.
        UriList = "uri-list",
        /// A resource whose `loc` is a `file`. It is fetched from a duplicate at http or https, or else ignored.
        SchemeFile = "scheme-file",
        /// The same with `ftp`, `ftps` or `sftp`.
        SchemeFtp = "scheme-ftp",
        /// The same with `mailto`.
        SchemeMailto = "scheme-mailto",
        /// The same with `urn`, `doi`, `info` or `hdl`: names that lead to no server.
        SchemeUrn = "scheme-urn",
        /// The same with any other scheme than http and https.
        SchemeOther = "scheme-other",
        /// A resource whose `loc` is to be used by a protocol of its own; it was ignored.
        OtherProtocol = "other-protocol",
        /// The dialect of the draft of version 0.1.
        Draft01 = "draft-0.1",
        /// A link without a relation or a valid `href`; it was ignored.
        BadLink = "bad-link",
        /// More links of an entry, or of the head, than are read; the further ones were ignored.
        TooManyLinks = "links-cut",
        /// A `loc` or `href` that is longer than accepted, as it is resolved; what it is in was ignored.
        LongUri = "long-uri",
        /// A channel with more than 10 hubs; the further ones were ignored.
        TooManyHubs = "too-many-hubs",
        /// A Capability List or a Source Description that lists more than is read; the rest was ignored.
        TooManyOffers = "too-many-offers",
        /// An entry, or the link to the next page, that a limit has cut.
        BeyondLimit = "beyond-limit",
        /// A `loc` or `href` that is relative.
        RelativeUri = "relative-uri",
        /// A `loc` or `href` with a user name or a password; they were removed.
        UserInfo = "userinfo",
        /// An entry whose `change` is missing or unknown although it is required.
        BadChange = "bad-change",
        /// Metadata or links of the head follow the first entry.
        LateHead = "late-head",
        /// An entry whose element does not fit the root element: a `sitemap` in a `urlset`, or a `url` in a `sitemapindex`. The first
        /// entry decides which of the two the document is.
        MixedEntries = "mixed-entries",
        /// A Resource List, a Resource Dump or a manifest of one without `at`.
        NoAt = "no-at",
        /// A Change List, a Change Dump, a manifest of one or a change notification without `from`.
        NoFrom = "no-from",
        /// A change notification without `until`.
        NoUntil = "no-until",
        /// `at` and `completed` instead of `from` and `until`, or the reverse.
        WrongInterval = "wrong-interval",
        /// An `until` before its `from`: it is no end.
        UntilBeforeFrom = "until-before-from",
        /// A `completed` before its `at`: it is no end.
        CompletedBeforeAt = "completed-before-at",
        /// A change without a time: neither `lastmod` nor `datetime`.
        NoChangeTime = "no-change-time",
        /// Changes, or lists of them, in descending order of time.
        NewestFirst = "newest-first",
        /// Changes, or lists of them, that are not ordered by time.
        Unordered = "unordered",
        /// An index served as a `urlset`.
        IndexAsUrlset = "index-as-urlset",
        /// An index that names itself, or an index above it; that entry was skipped.
        IndexRing = "index-ring",
        /// More than 50,000 entries.
        TooManyEntries = "too-many-entries",
        /// A Capability List that offers a capability more than once.
        CapabilityTwice = "capability-twice",
        /// No link `up`.
        NoUp = "no-up",
        /// A link `up` that leads to an entry, to the document itself, or past the Capability List.
        WrongUp = "wrong-up",
        /// A datetime ahead of our clock, as local time marked as UTC is east of Greenwich. West of it, such a time can't be
        /// distinguished from a correct one.
        FutureTime = "future-time",
        /// The Source Description is at a misspelt well-known URI.
        WellKnownSpelling = "well-known-spelling",
        /// A web page or robots.txt links to the Source Description instead of a Capability List or a Resource List.
        LinkToDescription = "link-to-description",
    }
}

impl Oddity {
    /// That a resource can't be fetched from where it is; `None` at an http or https URI.
    #[cfg(feature = "read")]
    pub(super) fn of_scheme(uri: &Url) -> Option<Self> {
        Some(match uri.scheme() {
            _ if is_web(uri) => return None,
            "file" => Self::SchemeFile,
            "ftp" | "ftps" | "sftp" => Self::SchemeFtp,
            "mailto" => Self::SchemeMailto,
            "urn" | "doi" | "info" | "hdl" => Self::SchemeUrn,
            _ => Self::SchemeOther,
        })
    }
}

/// A deviation from the specification, as a reader found it in a document.
#[cfg(feature = "read")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// What it is.
    pub oddity: Oddity,
    /// The number of times that it was found so far.
    pub count: u64,
    /// Where it was found first: the start tag of an element of the head, or the end tag of an entry; of what only the complete document
    /// shows, its end.
    pub position: crate::diagnostics::TextPosition,
}

#[cfg(feature = "read")]
impl Warning {
    /// The stable name of the deviation.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.oddity.code()
    }
}

/// The number of times that each oddity was found in a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oddities(BTreeMap<Oddity, u64>);

impl Oddities {
    /// Counts an oddity once.
    pub fn add(&mut self, oddity: Oddity) {
        self.add_several(oddity, 1);
    }

    /// Counts an oddity once if it is there.
    #[cfg(feature = "read")]
    pub(super) fn add_if(&mut self, oddity: Oddity, is_there: bool) {
        if is_there {
            self.add(oddity);
        }
    }

    /// Counts an oddity `more` times.
    pub fn add_several(&mut self, oddity: Oddity, more: u64) {
        if more > 0 {
            *self.0.entry(oddity).or_default() += more;
        }
    }

    /// The number of times that it was found.
    pub fn count(&self, oddity: Oddity) -> u64 {
        self.0.get(&oddity).copied().unwrap_or_default()
    }

    /// The number of entries that can't be read: what they name is unknown.
    pub fn bad_entries(&self) -> u64 {
        self.count(Oddity::BadLoc) + self.count(Oddity::BadEntry)
    }

    /// The same in a document whose markup is damaged, or where a limit has cut them: they name something that other readers of
    /// the document know. In others they have no valid `loc`, and name nothing.
    pub fn damaged_entries(&self) -> u64 {
        match self.count(Oddity::BadMarkup) {
            0 => self.count(Oddity::BeyondLimit),
            _ => self.bad_entries(),
        }
    }

    /// How many kinds of them were found.
    #[cfg(feature = "read")]
    pub(super) fn kinds(&self) -> usize {
        self.0.len()
    }

    /// How many links and URIs were cut by a limit.
    #[cfg(feature = "read")]
    pub(super) fn cut_uris(&self) -> u64 {
        self.count(Oddity::LongUri) + self.count(Oddity::TooManyLinks)
    }

    /// All oddities that were found, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Oddity, u64)> {
        self.0.iter().map(|(&oddity, &count)| (oddity, count))
    }

    /// Adds the counts of another document.
    pub fn extend(&mut self, others: &Self) {
        for (oddity, count) in others.iter() {
            self.add_several(oddity, count);
        }
    }

    /// Whether no oddity was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Oddities {
    /// As `bad-loc=2 namespace-spelling=1`, for a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (oddity, count)) in self.0.iter().enumerate() {
            write!(
                f,
                "{}{}={count}",
                if n == 0 { "" } else { " " },
                oddity.code()
            )?;
        }
        Ok(())
    }
}
