//! Compares the recorded file of a resource with what a document announces, and with bytes that were received.
//!
//! The file itself is not read here: what is recorded was computed when the file was published. There are four questions, each with
//! criteria of its own:
//!
//! | question | who asks | a file in doubt | length | digests |
//! |---|---|---|---|---|
//! | [`compare`](RecordedFile::compare): is it what is announced? | the plan, for each entry | differs | differs if both are known and not equal | the same if one is equal and none differs |
//! | [`is_proven`](RecordedFile::is_proven): must nothing be fetched? | the executor | no | as announced, if it is | the same as for `compare` |
//! | [`may_be_unmodified`](RecordedFile::may_be_unmodified): would a 304 prove that? | the executor | no | as announced, if it is | none is announced |
//! | [`has_bytes`](RecordedFile::has_bytes): do readers of the feed have these bytes? | who publishes or adopts a file | not asked | equal | one is equal |
//!
//! Times are not compared here. Where nothing of the content can be compared ([`ContentMatch::Unknown`]), the plan compares the times of
//! the changes. Where a file is read, because it has no record or for an audit, a [`Verifier`](resourcesync::Verifier) compares its
//! bytes.
//!
//! Invariant: only an equal digest proves that the file is what is announced; an equal length does not.

use resourcesync::{ChangeKind, ContentInfo, Digest, SourceTime};

/// What is recorded of the file that the mirror has of a resource.
#[derive(Clone, Copy, Debug)]
pub struct RecordedFile<'a> {
    /// Its length, in bytes.
    pub length: Option<u64>,
    /// Its digests: all were computed of its bytes.
    pub hashes: &'a [Digest],
    /// Whether the file may be another than the recorded one.
    pub is_doubted: bool,
}

/// What is known of a resource in the mirror.
#[derive(Clone, Debug, Default)]
pub struct LocalState {
    /// The change that was applied last; `None`: it was an entry of a Resource List, which states no change.
    pub kind: Option<ChangeKind>,
    /// When that change happened.
    pub changed_at: Option<SourceTime>,
    /// The last modification that was stated with it.
    pub lastmod: Option<SourceTime>,
    /// The length of the file, in bytes.
    pub length: Option<u64>,
    /// The digests of the file.
    pub hashes: Vec<Digest>,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Whether the file may be another than the recorded one: then it matches no description.
    pub is_doubted: bool,
}

impl LocalState {
    /// What is recorded of the file.
    #[must_use]
    pub fn file(&self) -> RecordedFile<'_> {
        RecordedFile {
            length: self.length,
            hashes: &self.hashes,
            is_doubted: self.is_doubted,
        }
    }
}

/// How a recorded file compares with what is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentMatch {
    /// It is proven to be the same.
    Same,
    /// It is not.
    Different,
    /// Nothing can be compared.
    Unknown,
}

impl RecordedFile<'_> {
    /// Whether it is what is announced. One in doubt never is.
    #[must_use]
    pub fn compare(&self, announced: &ContentInfo) -> ContentMatch {
        if self.is_doubted {
            return ContentMatch::Different;
        }
        let lengths_differ = matches!((announced.length, self.length), (Some(announced), Some(own)) if announced != own);
        let pairs = announced.hashes.iter().flat_map(|hash| {
            let own = self.hashes.iter();
            own.filter(|own| own.algorithm() == hash.algorithm())
                .map(move |own| own == hash)
        });
        // A pair that differs counts more than those that are equal.
        match pairs.min() {
            _ if lengths_differ => ContentMatch::Different,
            Some(false) => ContentMatch::Different,
            Some(true) => ContentMatch::Same,
            None => ContentMatch::Unknown,
        }
    }

    /// Whether it is proven to be what is announced, so that no request is necessary. Where an announced digest is equal and another one
    /// differs, the Source contradicts itself, and nothing is proven.
    #[must_use]
    pub fn is_proven(&self, announced: &ContentInfo) -> bool {
        self.has_announced_length(announced) && self.compare(announced) == ContentMatch::Same
    }

    /// Whether the answer to a conditional request, that it is not modified, would prove that it is what is announced. Not where the
    /// announced length or digest differs, or can't be compared: a cache that lags behind would answer that.
    #[must_use]
    pub fn may_be_unmodified(&self, announced: &ContentInfo) -> bool {
        !self.is_doubted && self.has_announced_length(announced) && announced.hashes.is_empty()
    }

    /// Whether these are its bytes, by their length and computed digests. Also of a file in doubt: the readers of the feed know only what
    /// was recorded.
    #[must_use]
    pub fn has_bytes(&self, length: u64, hashes: &[Digest]) -> bool {
        self.length == Some(length) && share_digest(self.hashes, hashes)
    }

    fn has_announced_length(&self, announced: &ContentInfo) -> bool {
        announced
            .length
            .is_none_or(|length| self.length == Some(length))
    }
}

/// Whether a digest is in both.
#[must_use]
pub fn share_digest(some: &[Digest], others: &[Digest]) -> bool {
    some.iter().any(|digest| others.contains(digest))
}

#[cfg(test)]
mod tests {
    use resourcesync::Algorithm::{self, Md5, Sha256};

    use super::*;

    /// A length, and digests as the algorithm and the bytes that are hashed.
    type Content<'a> = (Option<u64>, &'a [(Algorithm, &'a str)]);

    fn digests(of: &[(Algorithm, &str)]) -> Vec<Digest> {
        let digests = of.iter();
        digests
            .map(|&(algorithm, bytes)| Digest::of(algorithm, bytes.as_bytes()))
            .collect()
    }

    /// The answers of `compare`, `is_proven` and `may_be_unmodified`.
    fn answers(file: RecordedFile<'_>, announced: Content<'_>) -> (ContentMatch, bool, bool) {
        let announced = ContentInfo {
            length: announced.0,
            media_type: None,
            hashes: digests(announced.1),
        };
        (
            file.compare(&announced),
            file.is_proven(&announced),
            file.may_be_unmodified(&announced),
        )
    }

    #[test]
    fn recorded_file_is_compared_with_what_is_announced() {
        use ContentMatch::{Different, Same, Unknown};
        let both: Content<'_> = (Some(5), &[(Md5, "a"), (Sha256, "a")]);
        let sha256: Content<'_> = (Some(5), &[(Sha256, "a")]);
        let unmeasured: Content<'_> = (None, &[(Sha256, "a")]);
        let bare: Content<'_> = (Some(5), &[]);
        #[rustfmt::skip]
        let cases: &[(Content<'_>, Content<'_>, (ContentMatch, bool, bool))] = &[
            (both, (None, &[]), (Unknown, false, true)),
            (both, (Some(5), &[]), (Unknown, false, true)),
            (both, (Some(6), &[]), (Different, false, false)),
            (both, (None, &[(Sha256, "a")]), (Same, true, false)),
            (both, (Some(5), &[(Sha256, "a")]), (Same, true, false)),
            (both, (Some(6), &[(Sha256, "a")]), (Different, false, false)),
            (both, (None, &[(Sha256, "b")]), (Different, false, false)),
            (both, (None, &[(Md5, "a"), (Sha256, "a")]), (Same, true, false)),
            (both, (None, &[(Md5, "b"), (Sha256, "b")]), (Different, false, false)),
            // The Source contradicts itself.
            (both, (None, &[(Md5, "a"), (Sha256, "b")]), (Different, false, false)),
            (both, (None, &[(Sha256, "a"), (Sha256, "b")]), (Different, false, false)),
            // Only one of two can be compared, or none.
            (sha256, (None, &[(Md5, "b"), (Sha256, "a")]), (Same, true, false)),
            (sha256, (Some(5), &[(Md5, "a")]), (Unknown, false, false)),
            (bare, (Some(5), &[(Sha256, "a")]), (Unknown, false, false)),
            (unmeasured, (Some(5), &[]), (Unknown, false, false)),
            (unmeasured, (Some(5), &[(Sha256, "a")]), (Same, false, false)),
        ];
        for &(recorded, announced, expected) in cases {
            let hashes = digests(recorded.1);
            let file = RecordedFile {
                length: recorded.0,
                hashes: &hashes,
                is_doubted: false,
            };
            let case = format!("{recorded:?}, {announced:?}");
            assert_eq!(answers(file, announced), expected, "{case}");
            let doubted = RecordedFile {
                is_doubted: true,
                ..file
            };
            let none = (Different, false, false);
            assert_eq!(answers(doubted, announced), none, "in doubt: {case}");
        }
    }

    #[test]
    fn recorded_file_has_the_bytes_of_its_length_and_a_digest() {
        let recorded = digests(&[(Md5, "a"), (Sha256, "a")]);
        for (length, found, expected) in [
            (5, digests(&[(Sha256, "a")]), true),
            (5, digests(&[(Md5, "a")]), true),
            (5, digests(&[(Sha256, "b")]), false),
            (6, digests(&[(Sha256, "a")]), false),
            (5, Vec::new(), false),
        ] {
            for is_doubted in [false, true] {
                let file = RecordedFile {
                    length: Some(5),
                    hashes: &recorded,
                    is_doubted,
                };
                assert_eq!(
                    file.has_bytes(length, &found),
                    expected,
                    "{length}, {found:?}"
                );
            }
        }
    }
}
