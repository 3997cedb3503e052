//! What a document is and what it spans: one scan from its first entry to its end.
//!
//! The scan is also the proof that the document is complete and well formed: nothing is done with the entries of a document
//! that has no summary. Memory does not depend on the length of the document.
//!
//! Sections 7 (documents and their heads), 10 to 13 (lists, dumps and their indexes) and appendix A (times).

use std::io::BufRead;

use url::Url;

use super::declared_list::{is_list, is_package};
use super::entries::EntryOrder;
use super::reader::needs_change;
use super::{
    Capability, ChangeKind, DocumentReader, Entry, Head, Metadata, Oddities, Oddity, ReadError,
    Root, SourceTime,
};

/// What a document is and what it spans.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DocumentSummary {
    /// The head.
    pub head: Head,
    /// Whether its entries are documents of its own capability: a `sitemapindex`, or a `urlset` whose first entry is a list.
    pub is_index: bool,
    /// Whether its first entry is declared as an archive, or is a package of changes.
    pub holds_packages: bool,
    /// How many of its entries are packages of changes.
    pub packages_of_changes: u64,
    /// Whether its entries state so little that they may be parts of an index.
    pub unstated_parts: Option<UnstatedParts>,
    /// The URIs of its first entries.
    pub first_entries: Vec<Url>,
    /// The number of readable entries: resources, changes, packages, or the lists of an index.
    pub entries: u64,
    /// The end that its head states; `None` if there is none or it lies in the future.
    pub until: Option<SourceTime>,
    /// The latest change time of its entries; times in the future are ignored.
    pub newest: Option<SourceTime>,
    /// The earliest change time of its entries.
    pub oldest: Option<SourceTime>,
    /// The earliest time at which the content of an entry is known: the time of a snapshot, or else of a modification.
    pub oldest_content: Option<SourceTime>,
    /// Whether the newest entry comes first.
    pub newest_first: bool,
    /// The number of lists of an index; 0 if it is none.
    pub lists: u64,
    /// Where the earliest list of an index begins.
    pub lists_from: Option<SourceTime>,
    /// Where the latest list of an index ends; times in the future are ignored.
    pub lists_until: Option<SourceTime>,
    /// The number of changes of each kind.
    pub changes: ChangeCounts,
    /// The sum of the lengths that the entries state, in bytes.
    pub bytes: u64,
    /// The deviations from the specification.
    pub oddities: Oddities,
}

/// The entries of a `urlset` that states no more than that it is a Resource List, and that state nothing themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnstatedParts {
    /// Each has the time of a snapshot, as lists do and resources do not.
    Timed,
    /// Each has the name of an XML document.
    Named,
}

/// How many entries are remembered by their URIs.
const FIRST_ENTRIES: usize = 3;

/// Changes counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// Entries with `change="created"`.
    pub created: u64,
    /// Entries with `change="updated"`.
    pub updated: u64,
    /// Entries with `change="deleted"`.
    pub deleted: u64,
}

impl DocumentSummary {
    /// Reads a document to its end. `latest`: the latest plausible time of the Source; later times count as
    /// [`Oddity::FutureTime`], and neither as the newest change nor as an end.
    pub fn read<R: BufRead>(
        mut reader: DocumentReader<R>,
        latest: SourceTime,
    ) -> Result<Self, ReadError> {
        let head = reader.head().clone();
        let mut summary = Self {
            is_index: head.root == Root::Sitemapindex,
            head,
            ..Self::default()
        };
        let mut order = EntryOrder::default();
        let (mut future_times, mut bad_changes) = (0, 0);
        let mut oldest_expiry = None;
        let (mut all_timed, mut all_named) = (true, true);
        while let Some(entry) = reader.next_entry()? {
            let changed_at = entry.changed_at();
            let expired = entry.expired_at(latest);
            order.note(expired.or(changed_at));
            future_times += u64::from(changed_at.is_some_and(|time| time > latest));
            // It is announced to expire, or has changed since: neither is the change that it should state.
            let is_no_change = entry.expires.is_some() && expired.is_none();
            let is_unstated = entry.md.change.is_none() && needs_change(reader.head(), &entry.md);
            bad_changes += u64::from(is_no_change && is_unstated);
            oldest_expiry = earliest(oldest_expiry, expired);
            summary.count_expiry(expired, reader.head().md.modified, latest);
            let is_bare = (all_timed || all_named) && entry.is_bare();
            all_timed &= is_bare && entry.md.at.is_some();
            all_named &= is_bare && entry.is_named_xml();
            summary.count(&entry, latest);
        }
        // The head may have come late.
        summary.head = reader.head().clone();
        let written = summary.head.md.modified.max(summary.newest);
        summary.oldest = earliest(
            summary.oldest,
            oldest_expiry.filter(|_| oldest_expiry <= written),
        );
        summary.until = summary.head.md.closed_at(latest);
        let may_be_index = !summary.is_index
            && summary.entries > 0
            && matches!(
                summary.head.md.capability,
                None | Some(Capability::ResourceList)
            );
        summary.unstated_parts = match (all_timed, all_named) {
            _ if !may_be_index => None,
            (true, _) => Some(UnstatedParts::Timed),
            (false, true) => Some(UnstatedParts::Named),
            (false, false) => None,
        };
        summary.newest_first = order.is_newest_first();
        summary.oddities = reader.oddities().clone();
        summary
            .oddities
            .add_several(Oddity::FutureTime, future_times);
        summary.oddities.add_several(Oddity::BadChange, bad_changes);
        Ok(summary)
    }

    /// Counts the deletion of a resource that has expired. When it did may have been announced before: of the document itself that is
    /// a time only if it was written later. `modified`: when it was.
    fn count_expiry(
        &mut self,
        expired: Option<SourceTime>,
        modified: Option<SourceTime>,
        latest: SourceTime,
    ) {
        let written = modified.filter(|&modified| modified <= latest);
        if expired <= written {
            self.newest = self.newest.max(expired);
        }
    }

    fn count(&mut self, entry: &Entry, latest: SourceTime) {
        let (md, changed_at) = (&entry.md, entry.changed_at());
        let is_package_of_changes = entry.is_package_of_changes();
        self.packages_of_changes += u64::from(is_package_of_changes);
        if self.first_entries.len() < FIRST_ENTRIES {
            self.first_entries.push(entry.loc.clone());
        }
        if self.entries == 0 {
            self.holds_packages = is_package(entry) || is_package_of_changes;
            self.is_index |= is_list(entry, &self.head);
        }
        self.entries += 1;
        self.newest = self.newest.max(changed_at.filter(|&time| time <= latest));
        self.oldest = earliest(self.oldest, changed_at);
        self.oldest_content = earliest(self.oldest_content, md.at.or(entry.lastmod));
        if self.is_index {
            self.lists += 1;
            let from = md.from.or(md.at);
            let until = md.closed_at(latest).or(from.filter(|&from| from <= latest));
            self.lists_from = earliest(self.lists_from, from);
            self.lists_until = self.lists_until.max(until);
        }
        let expired = entry.expired_at(latest).map(|_| ChangeKind::Deleted);
        match expired.or(md.change) {
            Some(ChangeKind::Created) => self.changes.created += 1,
            Some(ChangeKind::Updated) => self.changes.updated += 1,
            Some(ChangeKind::Deleted) => self.changes.deleted += 1,
            None => {}
        }
        self.bytes = self
            .bytes
            .saturating_add(md.content.length.unwrap_or_default());
    }

    /// Where a document that states changes begins: its `from`, or else its `at`, unless an entry is older than that. Some Sources
    /// state as `at` when they wrote the document.
    pub fn begins_at(&self) -> Option<SourceTime> {
        let oldest = self.oldest.map(SourceTime::latest_possible);
        let at = self.head.md.at;
        let is_begin = |at: &SourceTime| oldest.is_none_or(|oldest| *at <= oldest);
        self.head.md.from.or(at.filter(is_begin))
    }

    /// Makes it the summary of an index: its entries have turned out to be documents.
    pub fn reveal_index(&mut self) {
        self.is_index = true;
        self.lists = self.entries;
        self.lists_from = self.oldest_content;
        self.oddities.add(Oddity::IndexAsUrlset);
    }

    /// Whether it is a sitemap as plain text.
    pub fn is_uri_list(&self) -> bool {
        self.oddities.count(Oddity::UriList) > 0
    }

    /// Whether nothing shows that it is complete: a list of URIs as plain text has no end mark, and that of a sitemap may be damaged.
    pub fn may_be_cut(&self) -> bool {
        self.is_uri_list() || self.oddities.count(Oddity::DamagedEnd) > 0
    }

    /// Whether its head names what only a Source of version 0.1 has: such a document need not name everything. Single elements of that
    /// version do not say so: they also stand in lists that state their capability.
    pub fn is_of_draft(&self) -> bool {
        self.head.names_offers()
    }

    /// The number of entries that can't be read: what they name is unknown.
    pub fn bad_entries(&self) -> u64 {
        self.oddities.bad_entries()
    }
}

impl Metadata {
    /// Where what it describes ends: `until`, or `completed`. `None` if it states no end, or one before its begin, or one in the
    /// future: to believe such an end would be to believe that nothing more will happen before it.
    pub fn closed_at(&self, latest: SourceTime) -> Option<SourceTime> {
        let until = self.until.filter(|_| !self.ends_before_from());
        let completed = self.completed.filter(|_| !self.is_completed_before_at());
        until.or(completed).filter(|&until| until <= latest)
    }

    /// Whether its `until` precedes its `from`.
    pub(super) fn ends_before_from(&self) -> bool {
        self.until.is_some() && self.until < self.from
    }

    /// Whether its `completed` precedes its `at`.
    pub(super) fn is_completed_before_at(&self) -> bool {
        self.completed.is_some() && self.completed < self.at
    }
}

fn earliest(known: Option<SourceTime>, time: Option<SourceTime>) -> Option<SourceTime> {
    known.into_iter().chain(time).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

    /// What a test expects of a summary; what is not named is not there.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct ExpectedSummary {
        is_index: bool,
        holds_packages: bool,
        entries: u64,
        bad_entries: u64,
        until: Option<&'static str>,
        oldest: Option<&'static str>,
        oldest_content: Option<&'static str>,
        newest: Option<&'static str>,
        newest_first: bool,
        lists: u64,
        lists_from: Option<&'static str>,
        lists_until: Option<&'static str>,
        changes: (u64, u64, u64),
        bytes: u64,
        future_times: u64,
    }

    fn read(text: &str) -> Result<DocumentSummary, ReadError> {
        let base = Url::parse("http://example.com/list.xml").unwrap();
        let latest = "2026-01-31T00:00:00Z".parse().unwrap();
        DocumentSummary::read(DocumentReader::open(text.as_bytes(), &base)?, latest)
    }

    /// Reads a document with that root, that `rs:md` in its head and these entries: `loc`, `lastmod`, attributes of `rs:md`.
    fn check(root: &str, head: &str, entries: &[(&str, &str, &str)], expected: &ExpectedSummary) {
        let element = if root == "urlset" { "url" } else { "sitemap" };
        let entries: String = entries
            .iter()
            .map(|(loc, lastmod, md)| {
                let loc = if loc.is_empty() {
                    String::new()
                } else {
                    format!("<loc>{loc}</loc>")
                };
                let lastmod = if lastmod.is_empty() {
                    String::new()
                } else {
                    format!("<lastmod>{lastmod}</lastmod>")
                };
                format!("<{element}>{loc}{lastmod}<rs:md {md}/></{element}>")
            })
            .collect();
        let text = format!("<{root} {NAMESPACES}><rs:md {head}/>{entries}</{root}>");
        let summary = read(&text).unwrap();
        let same = |found: Option<SourceTime>, wanted: Option<&'static str>| {
            let parsed = wanted.map(|text| text.parse::<SourceTime>().unwrap());
            assert_eq!(found, parsed, "{text}");
            wanted
        };
        let found = ExpectedSummary {
            is_index: summary.is_index,
            holds_packages: summary.holds_packages,
            entries: summary.entries,
            bad_entries: summary.bad_entries(),
            until: same(summary.until, expected.until),
            oldest: same(summary.oldest, expected.oldest),
            oldest_content: same(summary.oldest_content, expected.oldest_content),
            newest: same(summary.newest, expected.newest),
            newest_first: summary.newest_first,
            lists: summary.lists,
            lists_from: same(summary.lists_from, expected.lists_from),
            lists_until: same(summary.lists_until, expected.lists_until),
            changes: (
                summary.changes.created,
                summary.changes.updated,
                summary.changes.deleted,
            ),
            bytes: summary.bytes,
            future_times: summary.oddities.count(Oddity::FutureTime),
        };
        assert_eq!(found, *expected, "{text}");
    }

    const ONE: Option<&str> = Some("2026-01-01T00:00:00Z");
    const TWO: Option<&str> = Some("2026-01-02T00:00:00Z");
    const THREE: Option<&str> = Some("2026-01-03T00:00:00Z");

    #[test]
    fn lists_are_summarized_by_their_entries() {
        check(
            "urlset",
            r#"capability="resourcelist""#,
            &[],
            &ExpectedSummary::default(),
        );
        check(
            "urlset",
            r#"capability="changelist" from="2026-01-01T00:00:00Z" until="2026-01-03T00:00:00Z""#,
            &[
                (
                    "/a",
                    "2026-01-01T00:00:00Z",
                    r#"change="created" length="5""#,
                ),
                ("/b", "2026-01-02T00:00:00Z", r#"change="deleted""#),
                ("/a", "", r#"change="updated" length="7""#),
                ("", "2026-01-03T00:00:00Z", r#"change="updated""#),
            ],
            &ExpectedSummary {
                entries: 3,
                bad_entries: 1,
                until: THREE,
                oldest: ONE,
                oldest_content: ONE,
                newest: TWO,
                changes: (1, 1, 1),
                bytes: 12,
                ..ExpectedSummary::default()
            },
        );
        check(
            "urlset",
            r#"capability="changelist""#,
            &[
                (
                    "/b",
                    "2026-01-01T00:00:00Z",
                    r#"change="updated" datetime="2026-01-03T00:00:00Z""#,
                ),
                ("/a", "2026-01-02T00:00:00Z", r#"change="updated""#),
            ],
            &ExpectedSummary {
                entries: 2,
                oldest: TWO,
                oldest_content: ONE,
                newest: THREE,
                newest_first: true,
                changes: (0, 2, 0),
                ..ExpectedSummary::default()
            },
        );
    }

    /// The oldest and the newest time of a document with these entries, and how many of them state no change that they should.
    #[cfg(feature = "draft")]
    fn times_of(
        root: &str,
        head: &str,
        entries: &[&str],
    ) -> (Option<SourceTime>, Option<SourceTime>, u64) {
        let entries: String = entries
            .iter()
            .map(|inside| format!("<url><loc>/a</loc>{inside}</url>"))
            .collect();
        let xhtml = r#"xmlns:xhtml="http://www.w3.org/1999/xhtml""#;
        let summary = read(&format!(
            "<urlset {root} {NAMESPACES} {xhtml}>{head}{entries}</urlset>"
        ));
        let summary = summary.unwrap();
        let bad = summary.oddities.count(Oddity::BadChange);
        (summary.oldest, summary.newest, bad)
    }

    #[cfg(feature = "draft")]
    #[test]
    fn expiry_is_a_time_of_a_document_that_was_written_later() {
        let time = |text: Option<&str>| text.map(|text| text.parse::<SourceTime>().unwrap());
        let expires = "<expires>2026-01-02T00:00:00Z</expires>";
        let changed = |time: Option<&str>| {
            format!(
                "<lastmod rs:type=\"updated\">{}</lastmod>",
                time.unwrap_or_default()
            )
        };
        let modified = |time: Option<&str>| {
            format!(
                "<xhtml:meta name=\"DCTERMS.modified\" content=\"{}\"/>",
                time.unwrap_or_default()
            )
        };
        let future = "<expires>2999-01-01T00:00:00Z</expires>";
        let (one, three) = (changed(ONE), changed(THREE));
        let set = r#"rs:type="changeset""#;
        for (root, head, entries, oldest, newest, bad) in [
            // It may have been announced.
            (set, String::new(), vec![expires], None, None, 0),
            (set, String::new(), vec![&*one, expires], ONE, ONE, 0),
            (set, modified(ONE), vec![expires], None, None, 0),
            ("", String::new(), vec![expires], None, None, 0),
            (set, modified(TWO), vec![expires], TWO, TWO, 0),
            (set, modified(THREE), vec![&*one, expires], ONE, TWO, 0),
            (set, String::new(), vec![expires, &*three], TWO, THREE, 0),
            (set, modified(THREE), vec![future], None, None, 1),
            ("", modified(THREE), vec![future], None, None, 0),
            (set, modified(THREE), vec!["<expires/>"], None, None, 1),
        ] {
            let expected = (time(oldest), time(newest), bad);
            assert_eq!(times_of(root, &head, &entries), expected, "{entries:?}");
        }
    }

    #[test]
    fn times_in_the_future_are_counted_and_ignored() {
        check(
            "urlset",
            r#"capability="changelist" until="2026-02-01T00:00:00Z""#,
            &[
                ("/a", "2026-01-01T00:00:00Z", r#"change="updated""#),
                ("/b", "2026-02-01T00:00:00Z", r#"change="updated""#),
            ],
            &ExpectedSummary {
                entries: 2,
                oldest: ONE,
                oldest_content: ONE,
                newest: ONE,
                changes: (0, 2, 0),
                future_times: 1,
                ..ExpectedSummary::default()
            },
        );
        check(
            "sitemapindex",
            r#"capability="changelist""#,
            &[
                (
                    "/1",
                    "",
                    r#"from="2026-01-01T00:00:00Z" until="2026-02-01T00:00:00Z""#,
                ),
                ("/2", "", r#"from="2026-02-01T00:00:00Z""#),
            ],
            &ExpectedSummary {
                is_index: true,
                entries: 2,
                lists: 2,
                lists_from: ONE,
                lists_until: ONE,
                ..ExpectedSummary::default()
            },
        );
    }

    #[test]
    fn an_index_is_recognized_by_its_root_or_its_first_entry() {
        const SPAN: &str = r#"from="2026-01-01T00:00:00Z" until="2026-01-03T00:00:00Z""#;
        let index = |entries| ExpectedSummary {
            is_index: true,
            entries,
            lists: entries,
            lists_from: ONE,
            lists_until: THREE,
            ..ExpectedSummary::default()
        };
        let no_index = ExpectedSummary {
            entries: 1,
            ..ExpectedSummary::default()
        };
        let check = |root: &str, head: &str, first: &str, expected: &ExpectedSummary| {
            let head = format!(r#"capability="{head}""#);
            let first = format!("{SPAN} {first}");
            let entries = [("/1", "", first.as_str()), ("/2", "", SPAN)];
            let count = usize::try_from(expected.entries).unwrap();
            self::check(root, &head, &entries[..count], expected);
        };
        check("sitemapindex", "changelist", "", &index(2));
        check("sitemapindex", "changedump", "", &index(1));
        check("urlset", "changelist", "", &no_index);
        for list in ["resourcelist", "changelist"] {
            for head in ["resourcelist", "changelist", "changedump", ""] {
                check(
                    "urlset",
                    head,
                    &format!(r#"capability="{list}""#),
                    &index(2),
                );
            }
        }
        // A dump is a part only of a dump of the same capability.
        for dump in ["resourcedump", "changedump"] {
            let entry = format!(r#"capability="{dump}""#);
            check("urlset", dump, &entry, &index(2));
            check("urlset", "resourcelist", &entry, &no_index);
            check("urlset", "", &entry, &no_index);
        }
        // A package is not a list, whatever else it is called.
        let packages = ExpectedSummary {
            holds_packages: true,
            ..no_index
        };
        let entry = r#"capability="changedump" type="application/zip""#;
        check("urlset", "changedump", entry, &packages);
        self::check(
            "sitemapindex",
            r#"capability="resourcelist""#,
            &[],
            &ExpectedSummary {
                is_index: true,
                ..ExpectedSummary::default()
            },
        );
        // Only the first entry decides.
        let second = [("/1", "", ""), ("/2", "", r#"capability="resourcelist""#)];
        let two = ExpectedSummary {
            entries: 2,
            ..ExpectedSummary::default()
        };
        self::check("urlset", r#"capability="resourcelist""#, &second, &two);
    }

    #[test]
    fn a_late_head_counts_and_a_truncated_document_has_no_summary() {
        let text = format!(
            r#"<urlset {NAMESPACES}><url><loc>/a</loc></url><rs:md capability="changelist" until="2026-01-03T00:00:00Z"/></urlset>"#
        );
        let summary = read(&text).unwrap();
        assert_eq!(summary.head.md.capability, Some(Capability::ChangeList));
        assert_eq!(summary.until, THREE.map(|time| time.parse().unwrap()));
        let cut = text.replace("</urlset>", "");
        assert_eq!(read(&cut).unwrap_err().code(), "cut-short");
    }
}
