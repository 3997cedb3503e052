//! Documents that are accepted, and the oddities that are counted.

mod damage;
mod rejections;

use std::io::{self, BufReader, Read};

use proptest::prelude::*;
use url::Url;

use super::*;
use crate::{ChangeKind, Metadata, Root, SourceTime};

const NAMESPACES: &str = r#"xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/""#;

/// A document with every kind of markup, to be cut at any byte.
const WHOLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="style.xsl"?>
<!-- a list -->
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
  xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:x="http://example.com/x">
  <rs:ln rel="up" href="http://example.com/capabilitylist.xml"/>
  <rs:md capability="changelist" from='2013-01-03T00:00:00Z' until="2013-01-04T00:00:00Z"/>
  <x:unknown a="b &lt; c"><x:url/>text &amp; more é</x:unknown>
  <url>
    <loc>http://example.com/res1?a=1&amp;b=&#x32;</loc>
    <lastmod>2013-01-03T01:00:00Z</lastmod>
    <changefreq>daily</changefreq>
    <rs:md change="updated" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6
      sha-256:854f61290e2e197a11bc91063afce22e43f8ccc655237050ace766adc68dc784" length="8876" type="text/html"/>
    <rs:ln rel="duplicate" pri="2" href="http://mirror.example.com/res1" modified="2013-01-02"/>
  </url><!-- between > the entries -->
  <url><loc><![CDATA[http://example.com/é?x=1&y=2]]></loc><rs:md change="deleted" datetime="2013-01-03T02:00:00Z"/></url>
</urlset>"#;

fn base() -> Url {
    Url::parse("http://example.com/sets/1/list.xml").unwrap()
}

fn read(text: &str) -> Result<Document, ReadError> {
    read_document(text.as_bytes(), &base())
}

/// A document of that capability with this content and a complete head.
fn urlset(capability: &str, inside: &str) -> String {
    let times = match capability {
        "changelist" | "changedump" | "changedump-manifest" => r#"from="2013-01-01""#,
        "change-notification" => r#"from="2013-01-01" until="2013-01-02""#,
        "resourcelist" | "resourcedump" | "resourcedump-manifest" => r#"at="2013-01-01""#,
        _ => "",
    };
    let up = match capability {
        "description" => "",
        _ => r#"<rs:ln rel="up" href="http://example.com/up"/>"#,
    };
    format!(
        r#"<urlset {NAMESPACES}>{up}<rs:md capability="{capability}" {times}/>{inside}</urlset>"#
    )
}

fn time(text: &str) -> Option<SourceTime> {
    Some(text.parse().unwrap())
}

/// Reads a document with exactly these oddities.
fn read_odd(text: &str, counted: &[Oddity]) -> Document {
    let document = read(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let mut wanted = Oddities::default();
    counted.iter().for_each(|oddity| wanted.add(*oddity));
    assert_eq!(document.oddities, wanted, "{text}");
    document
}

/// The only entry of a Resource List with this entry and exactly these oddities.
fn only_entry(inside: &str, counted: &[Oddity]) -> Entry {
    let text = urlset("resourcelist", &format!("<url>{inside}</url>"));
    let mut entries = read_odd(&text, counted).entries;
    assert_eq!(entries.len(), 1, "{text}");
    entries.remove(0)
}

#[test]
fn entry_whose_links_were_cut_states_so() {
    let link = "<rs:ln rel=\"alternate\" href=\"/b\"/>";
    let entry = |links: usize| {
        let inside = format!(
            "<url><loc>http://example.com/a</loc>{}</url>",
            link.repeat(links)
        );
        // The next one begins anew.
        let text = urlset(
            "resourcelist",
            &(inside + "<url><loc>http://example.com/c</loc></url>"),
        );
        let entries = read(&text).unwrap().entries;
        let cut: Vec<bool> = entries.iter().map(|entry| entry.has_cut_links).collect();
        cut
    };
    assert_eq!(entry(64), [false, false]);
    assert_eq!(entry(65), [true, false]);
    assert_eq!(entry(70), [true, false]);
}

#[test]
fn all_parts_of_a_document_are_read() {
    let document = read_odd(WHOLE, &[]);
    let head = &document.head;
    assert_eq!(head.root, Root::Urlset);
    assert_eq!(head.md.capability, Some(Capability::ChangeList));
    assert_eq!(head.md.from, time("2013-01-03"));
    assert_eq!(head.md.until, time("2013-01-04"));
    let up = head.link("UP").unwrap();
    assert_eq!(up.as_str(), "http://example.com/capabilitylist.xml");

    let [first, second] = document.entries.as_slice() else {
        panic!("{document:?}");
    };
    assert_eq!(first.loc.as_str(), "http://example.com/res1?a=1&b=2");
    assert_eq!(first.lastmod, time("2013-01-03T01:00Z"));
    assert_eq!(first.md.change, Some(ChangeKind::Updated));
    assert_eq!(first.md.content.hashes.len(), 2);
    assert_eq!(first.md.content.length, Some(8876));
    assert_eq!(first.md.content.media_type.as_deref(), Some("text/html"));
    let duplicate = first.links("Duplicate").next().unwrap();
    assert_eq!(duplicate.href.as_str(), "http://mirror.example.com/res1");
    assert_eq!(
        (duplicate.pri, duplicate.modified),
        (Some(2), time("2013-01-02"))
    );

    assert_eq!(second.loc.as_str(), "http://example.com/%C3%A9?x=1&y=2");
    assert_eq!(second.md.change, Some(ChangeKind::Deleted));
    assert_eq!(second.changed_at(), time("2013-01-03T02:00:00Z"));
}

#[test]
fn input_may_arrive_byte_by_byte() {
    let with_mark = format!("\u{feff}{WHOLE}");
    let mut reader =
        DocumentReader::open(BufReader::with_capacity(1, with_mark.as_bytes()), &base()).unwrap();
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        entries.push(entry);
    }
    let document = read(WHOLE).unwrap();
    assert_eq!(entries, document.entries);
    assert_eq!(reader.head(), &document.head);
    assert_eq!(reader.oddities(), &document.oddities);
    assert_eq!(reader.next_entry().unwrap(), None);
}

#[test]
fn a_list_longer_than_the_sitemap_protocol_allows_is_streamed() {
    /// Generates the pieces of a document when they are read.
    struct Pieces<I: Iterator<Item = String>>(I, Vec<u8>);
    impl<I: Iterator<Item = String>> Read for Pieces<I> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.1.is_empty() {
                self.1 = self.0.next().unwrap_or_default().into_bytes();
            }
            let count = self.1.as_slice().read(buffer)?;
            self.1.drain(..count);
            Ok(count)
        }
    }
    let (begin, end) = (urlset("resourcelist", ""), "</urlset>".to_owned());
    let begin = begin.replace(&end, "");
    let entry = |n| format!("<url><loc>http://example.com/{n}</loc><rs:md length='{n}'/></url>");
    let pieces = std::iter::once(begin).chain((0..50_001).map(entry));
    let pieces = Pieces(pieces.chain([end]), Vec::new());
    let mut reader = DocumentReader::open(BufReader::new(pieces), &base()).unwrap();
    let mut entries = 0;
    while let Some(entry) = reader.next_entry().unwrap() {
        assert_eq!(entry.md.content.length, Some(entries));
        entries += 1;
    }
    assert_eq!(entries, 50_001);
}

#[test]
fn elements_are_recognized_with_any_prefix() {
    let text = r#"<s:sitemapindex xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">
        <ln xmlns="http://www.openarchives.org/rs/terms/" rel="up" href="/up"/>
        <md xmlns="http://www.openarchives.org/rs/terms/" capability="resourcelist" at="2013-01-03"/>
        <s:sitemap><s:loc>http://example.com/1.xml</s:loc>
        <r:md xmlns:r="http://www.openarchives.org/rs/terms/" x:at="2012" at="2013" xmlns:x="http://example.com/x"/>
        </s:sitemap></s:sitemapindex>"#;
    let document = read_odd(text, &[Oddity::RelativeUri]);
    assert_eq!(document.head.root, Root::Sitemapindex);
    assert_eq!(document.head.md.at, time("2013-01-03"));
    assert_eq!(document.entries[0].md.at, time("2013-01-01"));
}

#[test]
fn misspelt_namespaces_are_accepted_and_counted_once_each() {
    for (sitemap, rs, odd) in [
        (
            "http://www.sitemaps.org/schemas/sitemap/0.9",
            "http://www.openarchives.org/rs/terms",
            1,
        ),
        (
            "http://www.sitemaps.org/schemas/sitemap/0.9",
            "https://www.openarchives.org/rs/terms/",
            1,
        ),
        (
            "https://www.sitemaps.org/schemas/sitemap/0.9",
            "http://www.openarchives.org/rs/terms/",
            1,
        ),
        (
            " http://www.sitemaps.org/schemas/sitemap/0.9/",
            "https://www.openarchives.org/rs/terms",
            2,
        ),
        (
            "http://sitemaps.org/schemas/sitemap/0.9",
            "http://openarchives.org/rs/terms/",
            2,
        ),
        (
            "http://www.google.com/schemas/sitemap/0.84",
            "http://www.openarchives.org/rs/terms/",
            1,
        ),
        ("", "http://www.openarchives.org/rs/terms/", 1),
    ] {
        let text = format!(
            r#"<urlset xmlns="{sitemap}" xmlns:rs="{rs}"><rs:md capability="description"/>
            <url><loc>http://example.com/1</loc><rs:md length="5"/></url>
            <url><loc>http://example.com/2</loc><rs:md length="6"/></url></urlset>"#
        );
        let document = read_odd(&text, &vec![Oddity::Namespace; odd]);
        assert_eq!(document.entries[1].md.content.length, Some(6));
    }
}

#[test]
fn white_space_in_a_loc_is_ignored() {
    for (loc, expected, counted) in [
        (
            "\n      http://example.com/a\n    ",
            "http://example.com/a",
            None,
        ),
        (
            "http://example.com/a\n      /b",
            "http://example.com/a/b",
            None,
        ),
        ("http://exam\r\n\tple.com/a", "http://example.com/a", None),
        ("http://example.com/a b", "http://example.com/a%20b", None),
        (
            "http://example.com/<!-- x -->a<?p?>b",
            "http://example.com/ab",
            None,
        ),
        (
            "2.xml",
            "http://example.com/sets/1/2.xml",
            Some(Oddity::RelativeUri),
        ),
        (
            "/res?x",
            "http://example.com/res?x",
            Some(Oddity::RelativeUri),
        ),
        (
            "//other.example/a",
            "http://other.example/a",
            Some(Oddity::RelativeUri),
        ),
    ] {
        let counted: Vec<Oddity> = counted.into_iter().collect();
        let entry = only_entry(&format!("<loc>{loc}</loc>"), &counted);
        assert_eq!(entry.loc.as_str(), expected);
    }
}

#[test]
fn an_entry_without_a_valid_loc_does_not_affect_others() {
    for bad in [
        "",
        "<loc/>",
        "<loc> \n </loc>",
        "<loc>http://</loc>",
        "<x:loc xmlns:x='x'>http://example.com/</x:loc>",
    ] {
        let inside = format!(
            "<url><loc>http://example.com/1</loc></url><url>{bad}</url><url><loc>http://example.com/2</loc></url>"
        );
        let document = read_odd(&urlset("resourcelist", &inside), &[Oddity::BadLoc]);
        assert_eq!(document.entries.len(), 2, "{bad}");
    }
}

#[test]
fn several_metadata_are_merged_and_the_first_value_is_used() {
    let entry = only_entry(
        "<rs:md length='1' hash='md5:1584abdf8ebdc9802ac0c6a7402c03b6'/><loc>http://example.com/1</loc>
         <rs:md length='2' type='text/plain' hash='md5:00000000000000000000000000000000
         sha-1:a9993e364706816aba3e25717850c26c9cd0d89d'/>",
        &[Oddity::SeveralMetadata],
    );
    assert_eq!(entry.md.content.length, Some(1));
    assert_eq!(entry.md.content.media_type.as_deref(), Some("text/plain"));
    let hashes: Vec<String> = entry
        .md
        .content
        .hashes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(hashes[0], "md5:1584abdf8ebdc9802ac0c6a7402c03b6");
    assert_eq!(hashes[1], "sha-1:a9993e364706816aba3e25717850c26c9cd0d89d");
    assert_eq!(hashes.len(), 2);

    let text = urlset(
        "changelist",
        "<rs:md capability='resourcelist' from='2013'/>",
    );
    let head = read_odd(&text, &[Oddity::SeveralMetadata]).head;
    assert_eq!(head.md.capability, Some(Capability::ChangeList));
    assert_eq!(head.md.from, time("2013"));
}

#[test]
fn a_late_head_is_read_and_counted() {
    let text = format!(
        "<urlset {NAMESPACES}><url><loc>http://example.com/1</loc></url>
        <rs:md capability='resourcelist' at='2013'/>
        <url><loc>http://example.com/2</loc></url><rs:ln rel='UP' href='http://example.com/up'/></urlset>"
    );
    let document = read_odd(&text, &[Oddity::LateHead, Oddity::LateHead]);
    assert_eq!(document.head.md.capability, Some(Capability::ResourceList));
    assert!(document.head.link("up").is_some());
    assert_eq!(document.entries.len(), 2);
}

#[test]
fn a_plain_sitemap_is_a_document_without_a_capability() {
    let text = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'><url>
        <loc>http://example.com/1</loc><lastmod>2013-01-03</lastmod><priority>0.5</priority></url></urlset>";
    let document = read_odd(text, &[Oddity::NoCapability]);
    assert_eq!(document.entries[0].lastmod, time("2013-01-03"));
}

#[test]
fn the_first_entry_decides_what_a_list_is_and_the_others_are_not_taken_for_it() {
    let entry = |name: &str, n: u32| format!("<{name}><loc>http://example.com/{n}</loc></{name}>");
    let check = |text: &str, names: [&str; 3], root: Root, read: usize, counted: &[Oddity]| {
        let inside: String = (0..).zip(names).map(|(n, name)| entry(name, n)).collect();
        let document = read_odd(&text.replace("INSIDE", &inside), counted);
        assert_eq!(document.head.root, root, "{names:?}");
        assert_eq!(document.entries.len(), read, "{names:?}");
    };
    use Oddity::{BadEntry, MixedEntries, NoCapability};
    for capability in ["resourcelist", "changelist", "resourcedump"] {
        let list = urlset(capability, "INSIDE");
        let change =
            (capability == "changelist").then_some([Oddity::BadChange, Oddity::NoChangeTime]);
        let with = |counted: &[Oddity], changes: usize| {
            let change = change.iter().flatten().copied();
            [counted.to_vec(), change.cycle().take(2 * changes).collect()].concat()
        };
        let url = ["url", "sitemap", "url"];
        check(
            &list,
            url,
            Root::Urlset,
            2,
            &with(&[MixedEntries, BadEntry], 2),
        );
        let index = list.replace("urlset", "sitemapindex");
        let sitemaps = [MixedEntries; 3];
        check(&list, ["sitemap"; 3], Root::Sitemapindex, 3, &sitemaps[..1]);
        check(
            &index,
            ["url"; 3],
            Root::Urlset,
            3,
            &with(&sitemaps[..1], 3),
        );
        check(
            &index,
            ["sitemap", "url", "url"],
            Root::Sitemapindex,
            1,
            &[MixedEntries, MixedEntries, BadEntry, BadEntry],
        );
    }
    let plain = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>INSIDE</urlset>";
    check(
        plain,
        ["sitemap"; 3],
        Root::Sitemapindex,
        3,
        &[MixedEntries, NoCapability],
    );
    // Where every entry is a document, its name means nothing.
    let names = ["sitemap", "url", "url"];
    let list = urlset("capabilitylist", "INSIDE");
    check(&list, names, Root::Urlset, 3, &[MixedEntries]);
}

#[test]
fn invalid_values_are_ignored_and_counted() {
    let loc = "<loc>http://example.com/1</loc>";
    for (inside, oddity) in [
        ("<lastmod>yesterday</lastmod>", Oddity::BadDatetime),
        ("<lastmod/>", Oddity::BadDatetime),
        ("<rs:md at=''/>", Oddity::BadDatetime),
        ("<rs:md length='12 bytes'/>", Oddity::BadNumber),
        ("<rs:md length='-1'/>", Oddity::BadNumber),
        ("<rs:md length=' '/>", Oddity::EmptyLength),
        ("<rs:md hash=''/>", Oddity::EmptyHash),
        ("<lastmod>0000-00-00 00:00:00</lastmod>", Oddity::ZeroDate),
        (
            "<lastmod>-0001-11-30T00:00:00+00:00</lastmod>",
            Oddity::ZeroDate,
        ),
        ("<rs:md change='moved'/>", Oddity::BadChange),
        ("<rs:md hash='crc32:00'/>", Oddity::UnknownDigest),
        ("<rs:ln rel='up'/>", Oddity::BadLink),
        ("<rs:ln href='http://example.com/'/>", Oddity::BadLink),
        ("<rs:ln rel='up' href='http://'/>", Oddity::BadLink),
    ] {
        let entry = only_entry(&format!("{loc}{inside}"), &[oddity]);
        assert_eq!(
            entry,
            Entry::new(Url::parse("http://example.com/1").unwrap())
        );
    }
    let inside =
        "<rs:md type='' encoding=' ' path='' capability=''/><changefreq>never</changefreq>";
    let entry = only_entry(&format!("{loc}{inside}"), &[]);
    assert_eq!(entry.md, Metadata::default());
}

#[test]
fn misspelt_values_are_read_and_counted() {
    let loc = "<loc>http://example.com/1</loc>";
    let entry = only_entry(
        &format!("{loc}<lastmod> 2013-01-03 10:00:00 </lastmod>"),
        &[Oddity::DatetimeForm],
    );
    assert_eq!(entry.lastmod, time("2013-01-03T10:00Z"));
    let entry = only_entry(
        &format!("{loc}<rs:md hash='md5:kAFQmDzST7DWlj99KOF/cg=='/>"),
        &[Oddity::DigestEncoding],
    );
    assert_eq!(
        entry.md.content.hashes[0].to_string(),
        "md5:900150983cd24fb0d6963f7d28e17f72"
    );
    let entry = only_entry(
        &format!("{loc}<rs:ln rel=' describedBy ' href='../meta.xml'/>"),
        &[Oddity::RelativeUri],
    );
    let link = entry.links("describedby").next().unwrap();
    assert_eq!(link.href.as_str(), "http://example.com/sets/meta.xml");
    assert_eq!(link.rel, "describedBy");
    let entry = only_entry(
        &format!("{loc}<rs:md capability='CapabilityList' change='Created'/>"),
        &[Oddity::CapabilitySpelling],
    );
    assert_eq!(entry.md.change, Some(ChangeKind::Created));
    // The notification specifications place the link to the hub within the loc.
    let entry = only_entry(
        "<loc>http://example.com/1<rs:ln rel='hub' href='http://hub.example.com/'/></loc>",
        &[],
    );
    assert!(entry.links("hub").next().is_some());
}

#[test]
fn elements_of_other_vocabularies_are_ignored() {
    let entry = only_entry(
        "<i:image xmlns:i='http://www.google.com/schemas/sitemap-image/1.1'><i:loc>http://example.com/i.png</i:loc>
         <rs:md length='9'/><loc>http://example.com/no</loc><md length='9'/></i:image>
         <video:title>not declared</video:title>
         <loc>http://example.com/1</loc>",
        &[],
    );
    assert_eq!(
        entry,
        Entry::new(Url::parse("http://example.com/1").unwrap())
    );
}

#[test]
fn a_missing_change_is_counted_where_required() {
    let plain = "<url><loc>http://example.com/1</loc><lastmod>2013</lastmod></url>";
    let unknown =
        "<url><loc>http://example.com/1</loc><lastmod>2013</lastmod><rs:md change='x'/></url>";
    let list = "<url><loc>http://example.com/1.xml</loc><rs:md capability='changelist'/></url>";
    for (capability, inside, odd) in [
        ("changelist", plain, true),
        ("changelist", unknown, true),
        ("changelist", list, false),
        ("change-notification", plain, true),
        ("changedump-manifest", plain, true),
        ("framework-notification", list, true),
        ("changedump", plain, false),
        ("resourcelist", plain, false),
        ("capabilitylist", list, false),
    ] {
        let is_index = capability == "changelist" && inside == list;
        let mut counted = vec![Oddity::BadChange; usize::from(odd)];
        counted.extend(is_index.then_some(Oddity::IndexAsUrlset));
        read_odd(&urlset(capability, inside), &counted);
    }
    let index = format!(
        "<sitemapindex {NAMESPACES}><rs:ln rel='up' href='http://example.com/up'/>
        <rs:md capability='changelist' from='2013'/><sitemap><loc>http://example.com/1.xml</loc></sitemap></sitemapindex>"
    );
    read_odd(&index, &[]);
}

/// What is read of a document: its parts, or the error and what was counted before it.
fn outcome(input: impl BufRead) -> String {
    let mut reader = match DocumentReader::open(input, &base()) {
        Ok(reader) => reader,
        Err(error) => return error.to_string(),
    };
    let mut entries = Vec::new();
    let end = loop {
        match reader.next_entry() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => break String::new(),
            Err(error) => break error.to_string(),
        }
    };
    format!(
        "{:?} {entries:?} {:?} {end}",
        reader.head(),
        reader.oddities()
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Plain tags and texts are recognized where they were decoded completely: never, if the bytes come one by one.
    #[test]
    fn documents_are_read_alike_whether_their_tags_are_plain_or_not(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "<url>", "</url>", "<url><loc>", "</loc>", "</url >", "<url/>", "http://example.com/a", "\n", " text ", "\u{e9}",
                "<url><loc>http://example.com/b?c</loc></url>", "<sitemap><loc>d</loc></sitemap>",
                "<url><loc>http://example.com/d</loc><lastmod>2013-01-01T00:00:00Z</lastmod><rs:md hash=\"md5:1584abdf8ebdc9802ac0c6a7402c03b6\" length=\"1\"/></url>",
                "<rs:md type=\"a/b\" length='&#49;'/>", "<rs:md path=\"a\" path=\"b\"/>", "<rs:md at=\"2013\u{a0}\" />", "<rs:md\u{a0}length=\"2\"/>",
                "<rs:ln rel=\"duplicate\" href=\"http://example.org/a&amp;b\"/>", "<rs:ln rel=\"up\" href=\"e\"></rs:ln>",
                "<a:md xmlns:a=\"http://www.openarchives.org/rs/terms/\" length=\"3\"/>", "<url xmlns=\"\">", "<rs:md xmlns:rs=\"x\"/>", "<a:ln/>",
                "<lastmod>", "</lastmod>", "2013-01-02", "&amp;", "&", "&#x41;", "&unknown;", "<!-- <url> -->", "<![CDATA[<url>]]>", "<?a b?>",
                "<x><y z=\"<>\"/></x>", "<", ">", "</", "<a", "<a b=\"", "</urlset>", "</x>", "<!DOCTYPE a>",
            ]),
            0..12,
        ),
    ) {
        // What precedes them is longer than what is read at once.
        let before = " ".repeat(17 << 10);
        let text = format!("<!--{before}--><urlset {NAMESPACES}>{}</urlset>", pieces.concat());
        let whole = outcome(text.as_bytes());
        for size in [1, 5, 64] {
            prop_assert_eq!(&whole, &outcome(BufReader::with_capacity(size, text.as_bytes())));
        }
    }
}
