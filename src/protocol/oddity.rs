//! What documents do otherwise than the specification says.

use std::collections::BTreeMap;
use std::fmt;

/// Something that a document does otherwise than the specification says, and that was understood nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Oddity {
    /// The namespace of `rs` is not spelt as the specification spells it.
    Namespace,
    /// The capability is misspelt, or in another case.
    CapabilitySpelling,
    /// The document names no capability.
    NoCapability,
    /// A datetime without a time zone, with a space for the `T`, or otherwise not as W3C Datetime has it.
    DatetimeForm,
    /// A datetime that could not be read at all, and was left out.
    BadDatetime,
    /// A digest that could not be read, is of an unknown algorithm, or contradicts another, and was left out.
    UnknownDigest,
    /// A digest in base64 instead of hexadecimal.
    DigestEncoding,
    /// A number that could not be read, and was left out.
    BadNumber,
    /// Several `rs:md` in one entry or head.
    SeveralMetadata,
    /// An entry without a usable `loc`, which was passed over.
    BadLoc,
    /// A link without a relation or a usable `href`, which was passed over.
    BadLink,
    /// A `loc` or `href` that is relative.
    RelativeUri,
    /// A `loc` or `href` with a user name or a password, which were left out.
    UserInfo,
    /// An entry whose `change` is missing or unknown, where one is needed.
    BadChange,
    /// The head's metadata stand behind the first entry.
    LateHead,
    /// An entry that is named otherwise than the root element asks for.
    MixedEntries,
    /// A Resource List, a Resource Dump or a manifest of one that does not say of what time it is: no `at`.
    NoAt,
    /// A Change List, a Change Dump, a manifest of one or a change notification that does not say from when on: no `from`.
    NoFrom,
    /// A change notification that does not say up to when: no `until`.
    NoUntil,
    /// `at` and `completed` where `from` and `until` belong, or the other way round.
    WrongInterval,
    /// A change that is not dated: neither `lastmod` nor `datetime`.
    NoChangeTime,
    /// Changes, or lists of them, of which the newest comes first.
    NewestFirst,
    /// Changes, or lists of them, in no order of time.
    Unordered,
    /// An index that is served as a `urlset`.
    IndexAsUrlset,
    /// More than 50,000 entries.
    TooManyEntries,
    /// A Capability List that names a capability more than once.
    CapabilityTwice,
    /// No link `up`.
    NoUp,
    /// A link `up` that leads down, nowhere, or past the Capability List.
    WrongUp,
    /// A datetime that lies ahead of our clock, as local time that is marked as UTC does east of Greenwich. West of it, nothing
    /// tells such a time from a true one.
    FutureTime,
    /// The Source Description is at a misspelt well-known URI.
    WellKnownSpelling,
    /// A web page or robots.txt links to the Source Description where a Capability List or a Resource List belongs.
    LinkToDescription,
}

impl Oddity {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Namespace => "namespace-spelling",
            Self::CapabilitySpelling => "capability-spelling",
            Self::NoCapability => "no-capability",
            Self::DatetimeForm => "datetime-form",
            Self::BadDatetime => "bad-datetime",
            Self::UnknownDigest => "unknown-digest",
            Self::DigestEncoding => "digest-encoding",
            Self::BadNumber => "bad-number",
            Self::SeveralMetadata => "several-metadata",
            Self::BadLoc => "bad-loc",
            Self::BadLink => "bad-link",
            Self::RelativeUri => "relative-uri",
            Self::UserInfo => "userinfo",
            Self::BadChange => "bad-change",
            Self::LateHead => "late-head",
            Self::MixedEntries => "mixed-entries",
            Self::NoAt => "no-at",
            Self::NoFrom => "no-from",
            Self::NoUntil => "no-until",
            Self::WrongInterval => "wrong-interval",
            Self::NoChangeTime => "no-change-time",
            Self::NewestFirst => "newest-first",
            Self::Unordered => "unordered",
            Self::IndexAsUrlset => "index-as-urlset",
            Self::TooManyEntries => "too-many-entries",
            Self::CapabilityTwice => "capability-twice",
            Self::NoUp => "no-up",
            Self::WrongUp => "wrong-up",
            Self::FutureTime => "future-time",
            Self::WellKnownSpelling => "well-known-spelling",
            Self::LinkToDescription => "link-to-description",
        }
    }
}

/// How often each oddity was met in one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Oddities(BTreeMap<Oddity, u64>);

impl Oddities {
    /// Counts one more.
    pub fn add(&mut self, oddity: Oddity) {
        self.add_several(oddity, 1);
    }

    /// Counts so many more.
    pub fn add_several(&mut self, oddity: Oddity, more: u64) {
        if more > 0 {
            *self.0.entry(oddity).or_default() += more;
        }
    }

    /// How often it was met.
    #[must_use]
    pub fn count(&self, oddity: Oddity) -> u64 {
        self.0.get(&oddity).copied().unwrap_or_default()
    }

    /// What was met, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Oddity, u64)> {
        self.0.iter().map(|(&oddity, &count)| (oddity, count))
    }

    /// Adds what another document counted.
    pub fn extend(&mut self, others: &Self) {
        for (oddity, count) in others.iter() {
            self.add_several(oddity, count);
        }
    }

    /// Whether nothing was odd.
    #[must_use]
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
