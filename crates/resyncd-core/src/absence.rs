//! Whether what a Resource List or a Resource Dump does not name does not exist.

/// What absence from a Resource List, or from a Resource Dump, proves that was read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceProof {
    /// What it does not name does not exist.
    Complete,
    /// Nothing: it does not state that it is one.
    Unstated,
    /// Nothing: it, or what it stands for, is of version 0.1, which does not say that a document names everything.
    OfDraft,
    /// Nothing: it states no time, and its newest entry is older than that of one that was read before.
    Older,
    /// Nothing: so many of its entries can't be read.
    BadEntries(u64),
    /// Nothing: a manifest of its packages does not state that it is one, is of version 0.1, or has entries that can't be read.
    UnprovenManifest,
    /// Nothing: it states no time, and may be older than what is known.
    Untimed,
    /// Nothing: its pages are of different times, and so a resource may have moved to a page that was read before.
    MovingPages,
}

/// What absence from a Resource List, or from a Resource Dump, depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct AbsenceFacts {
    /// Whether it states that it is one.
    pub is_stated: bool,
    /// Whether it or a part of it is of version 0.1, or a Change Set or a dump of that version belongs to it.
    pub is_of_draft: bool,
    /// Whether it seems older than one that was read before.
    pub is_older: bool,
    /// How many of its entries can't be read.
    pub bad_entries: u64,
    /// Whether a manifest of its packages proves nothing by itself.
    pub has_unproven_manifest: bool,
    /// Whether its time is not known, although it must be.
    pub is_untimed: bool,
    /// Whether its pages are of different times, and were read only once.
    pub has_moving_pages: bool,
}

impl AbsenceProof {
    /// What absence proves.
    #[must_use]
    pub fn of(facts: AbsenceFacts) -> Self {
        if !facts.is_stated {
            Self::Unstated
        } else if facts.is_of_draft {
            Self::OfDraft
        } else if facts.is_older {
            Self::Older
        } else if facts.bad_entries > 0 {
            Self::BadEntries(facts.bad_entries)
        } else if facts.has_unproven_manifest {
            Self::UnprovenManifest
        } else if facts.is_untimed {
            Self::Untimed
        } else if facts.has_moving_pages {
            Self::MovingPages
        } else {
            Self::Complete
        }
    }

    /// Whether it proves that what is not named does not exist.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self == Self::Complete
    }

    /// Whether nothing else can be expected where a Sitemap stands for the Capability List.
    #[must_use]
    pub fn is_usual_of_sitemap(self) -> bool {
        matches!(self, Self::Unstated | Self::OfDraft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_proves_a_deletion_only_where_nothing_is_in_doubt() {
        let stated = AbsenceFacts {
            is_stated: true,
            ..AbsenceFacts::default()
        };
        let of_draft = AbsenceFacts {
            is_of_draft: true,
            ..stated
        };
        let older = AbsenceFacts {
            is_older: true,
            ..stated
        };
        let damaged = AbsenceFacts {
            bad_entries: 2,
            ..stated
        };
        let unproven = AbsenceFacts {
            has_unproven_manifest: true,
            ..stated
        };
        let untimed = AbsenceFacts {
            is_untimed: true,
            ..stated
        };
        let moving = AbsenceFacts {
            has_moving_pages: true,
            ..stated
        };
        let unstated = AbsenceFacts {
            is_stated: false,
            ..of_draft
        };
        for (facts, expected) in [
            (stated, AbsenceProof::Complete),
            (of_draft, AbsenceProof::OfDraft),
            (unstated, AbsenceProof::Unstated),
            (older, AbsenceProof::Older),
            (damaged, AbsenceProof::BadEntries(2)),
            (unproven, AbsenceProof::UnprovenManifest),
            (untimed, AbsenceProof::Untimed),
            (moving, AbsenceProof::MovingPages),
        ] {
            let proof = AbsenceProof::of(facts);
            assert_eq!(proof, expected, "{facts:?}");
            assert_eq!(proof.is_complete(), proof == AbsenceProof::Complete);
        }
    }
}
