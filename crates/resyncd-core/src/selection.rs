//! Selects resources by what their entries state: the media type, the collections that they are members of (section 14.7), and the
//! kinds of metadata (section 14.5). A resource that lacks one of the last two may get it from the metadata that describes it.

use resourcesync::media_type::{may_be_package, media_type_essence};
use resourcesync::{Algorithm, Digest, Link};

/// Collections and kinds of metadata, as far as they are selected by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Criteria(u8);

impl Criteria {
    /// Neither of them.
    pub const NONE: Self = Self(0);
    /// Membership in a wanted collection.
    pub const COLLECTION: Self = Self(1);
    /// A wanted kind of metadata.
    pub const PROFILE: Self = Self(2);

    /// Those that a number stands for, as [`bits`](Self::bits) states it.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The number that stands for them.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether it is neither of them.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Those of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that the other does not have.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A media type that is wanted, or all of one type, as `text/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaRange(String);

impl MediaRange {
    /// `None` if the text is neither a media type nor such a range. Parameters are ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let range = media_type_essence(text);
        let (main, sub) = range.split_once('/')?;
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|it| it.is_ascii_alphanumeric() || "!#$&-^_.+".contains(it))
        };
        let is_range = (is_name(main) && (sub == "*" || is_name(sub))) || range == "*/*";
        is_range.then_some(Self(range))
    }

    /// Whether a media type is in the range.
    #[must_use]
    pub fn includes(&self, media_type: &str) -> bool {
        let essence = media_type_essence(media_type);
        match self.0.strip_suffix('*') {
            Some("*/") => true,
            Some(main) => essence.starts_with(main),
            None => essence == self.0,
        }
    }

    /// The range in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What is wanted. Of an empty list everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    types: Vec<MediaRange>,
    collections: Vec<String>,
    profiles: Vec<String>,
    number: i64,
}

/// What a selection states of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether its type is wanted, or not stated.
    pub has_type: bool,
    /// What it lacks itself.
    pub lacks: Criteria,
    /// What it gives to the resources that it describes, if it is metadata.
    pub gives: Criteria,
    /// The [number](Selection::number) of the selection.
    pub selection: i64,
}

impl Standing {
    /// Whether the entry itself states all that is asked for.
    #[must_use]
    pub fn is_wanted(self) -> bool {
        self.has_type && self.lacks.is_empty()
    }

    /// Whether the entry decides nothing: neither about its own resource nor about one that it describes.
    #[must_use]
    pub fn is_irrelevant(self) -> bool {
        !self.has_type && self.gives.is_empty()
    }
}

/// A media type, unless it is empty: some state that where they know none.
fn known_type(stated: Option<&str>) -> Option<&str> {
    stated.filter(|stated| !stated.trim().is_empty())
}

/// Whether a media type may be that of a document, compressed or not, or of a package. Stated of a part of an index it says nothing
/// about the resources that the part names.
fn is_of_documents(media_type: &str) -> bool {
    let essence = media_type_essence(media_type);
    essence.ends_with("/xml")
        || essence.ends_with("+xml")
        || matches!(
            essence.as_str(),
            "text/plain" | "text/html" | "application/octet-stream"
        )
        || may_be_package(media_type)
}

impl Selection {
    /// Of media types, and of URIs of collections and of kinds of metadata, as they are after parsing.
    #[must_use]
    pub fn new(types: Vec<MediaRange>, collections: Vec<String>, profiles: Vec<String>) -> Self {
        let mut selection = Self {
            types,
            collections,
            profiles,
            number: 0,
        };
        let digest = Digest::of(Algorithm::Sha256, selection.text().as_bytes());
        let first: Vec<u8> = digest.bytes().iter().copied().take(8).collect();
        selection.number = first.try_into().map_or(0, i64::from_be_bytes);
        selection
    }

    /// What it consists of: different for different selections, and empty if everything is wanted.
    #[must_use]
    pub fn text(&self) -> String {
        let types = self.types.iter().map(|range| ('t', range.as_str()));
        let collections = self.collections.iter().map(|uri| ('c', uri.as_str()));
        let profiles = self.profiles.iter().map(|uri| ('p', uri.as_str()));
        let all = types.chain(collections).chain(profiles);
        all.map(|(sign, wanted)| format!("{sign}{} {wanted}", wanted.len()))
            .collect()
    }

    /// A number that hardly another selection has.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Whether everything is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.collections.is_empty() && self.profiles.is_empty()
    }

    /// Whether a URI names a kind of metadata that is selected by.
    #[must_use]
    pub fn is_profile(&self, uri: &str) -> bool {
        self.profiles.iter().any(|profile| profile == uri)
    }

    /// Whether the type decides, and is not known until the resource is served.
    #[must_use]
    pub fn needs_served_type(&self, stated: Option<&str>) -> bool {
        !self.types.is_empty() && known_type(stated).is_none()
    }

    /// Whether a media type is wanted. One that is not known is.
    #[must_use]
    pub fn wants_type(&self, media_type: Option<&str>) -> bool {
        let stated = known_type(media_type);
        self.types.is_empty()
            || stated.is_none_or(|stated| self.types.iter().any(|range| range.includes(stated)))
    }

    /// Whether nothing is selected of what a part of an index names, as the index states of the part: it names members of other collections,
    /// metadata of other kinds, or resources of other types. `media_type`, `links`: of its entry in the index.
    #[must_use]
    pub fn rules_out_part(&self, media_type: Option<&str>, links: &[Link]) -> bool {
        let names_others = |rel: &str, wanted: &[String]| {
            let mut stated = links.iter().filter(|link| link.is(rel)).peekable();
            stated.peek().is_some()
                && stated.all(|link| wanted.iter().all(|it| it != link.href.as_str()))
        };
        if self.collections.is_empty() && self.profiles.is_empty() {
            let contained = known_type(media_type).filter(|it| !is_of_documents(it));
            return contained.is_some() && !self.wants_type(contained);
        }
        // What lacks one of them may give the other to what it describes.
        (self.collections.is_empty() || names_others("collection", &self.collections))
            && (self.profiles.is_empty() || names_others("profile", &self.profiles))
    }

    /// What the selection states of an entry; `None`: everything is wanted.
    #[must_use]
    pub fn standing(&self, media_type: Option<&str>, links: &[Link]) -> Option<Standing> {
        if self.is_empty() {
            return None;
        }
        let mut asked = Criteria::NONE;
        if !self.collections.is_empty() {
            asked = asked.with(Criteria::COLLECTION);
        }
        if !self.profiles.is_empty() {
            asked = asked.with(Criteria::PROFILE);
        }
        let mut gives = Criteria::NONE;
        for link in links {
            let is_one_of = |wanted: &[String]| wanted.iter().any(|it| it == link.href.as_str());
            if link.is("collection") && is_one_of(&self.collections) {
                gives = gives.with(Criteria::COLLECTION);
            }
            // Some name the kind of a metadata record as what describes it.
            if (link.is("profile") || link.is("describedby")) && is_one_of(&self.profiles) {
                gives = gives.with(Criteria::PROFILE);
            }
        }
        Some(Standing {
            has_type: self.wants_type(media_type),
            lacks: asked.without(gives),
            gives,
            selection: self.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;

    fn link(rel: &str, href: &str) -> Link {
        Link::new(rel, Url::parse(href).unwrap())
    }

    fn selection(types: &[&str], collections: &[&str], profiles: &[&str]) -> Selection {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let types = types.iter().filter_map(|it| MediaRange::parse(it));
        Selection::new(types.collect(), texts(collections), texts(profiles))
    }

    #[test]
    fn part_is_ruled_out_by_what_its_index_states_of_its_contents() {
        let of = |rels: &[(&str, &str)]| -> Vec<Link> {
            rels.iter().map(|(rel, href)| link(rel, href)).collect()
        };
        let (c1, c2) = (
            ("collection", "http://e.org/1"),
            ("collection", "http://e.org/2"),
        );
        let (p1, p2) = (("profile", "http://e.org/1"), ("profile", "http://e.org/2"));
        let (pdf, one) = (&["application/pdf"][..], &["http://e.org/1"][..]);
        for (selection, media_type, links, is_ruled_out) in [
            (
                selection(&[], &[], &[]),
                Some("text/csv"),
                &[c2, p2][..],
                false,
            ),
            (
                selection(pdf, &[], &[]),
                Some("application/pdf;a=b"),
                &[],
                false,
            ),
            (selection(pdf, &[], &[]), Some("text/csv"), &[c2], true),
            (selection(pdf, &[], &[]), None, &[c2], false),
            (selection(pdf, &[], &[]), Some(" "), &[], false),
            // These may be types of the part.
            (
                selection(pdf, &[], &[]),
                Some("application/xml"),
                &[],
                false,
            ),
            (
                selection(pdf, &[], &[]),
                Some("application/rss+xml"),
                &[],
                false,
            ),
            (
                selection(pdf, &[], &[]),
                Some("application/gzip"),
                &[],
                false,
            ),
            (selection(&[], one, &[]), None, &[], false),
            (selection(&[], one, &[]), None, &[c2], true),
            (selection(&[], one, &[]), None, &[c2, c1], false),
            (selection(&[], one, &[]), None, &[p2], false),
            (selection(&[], &[], one), None, &[p2], true),
            (selection(&[], &[], one), None, &[p1], false),
            (selection(&[], one, one), None, &[c2], false),
            (selection(&[], one, one), None, &[c2, p1], false),
            (selection(&[], one, one), None, &[c2, p2], true),
            // Records of another type may select what they describe.
            (selection(pdf, one, &[]), Some("text/csv"), &[c1], false),
        ] {
            let found = selection.rules_out_part(media_type, &of(links));
            assert_eq!(
                found, is_ruled_out,
                "{selection:?} {media_type:?} {links:?}"
            );
        }
    }

    #[test]
    fn part_whose_type_may_be_that_of_a_package_is_not_ruled_out() {
        let selection = selection(&["application/pdf"], &[], &[]);
        for (media_type, is_ruled_out) in [
            ("application/zip", false),
            ("application/x-zip-compressed", false),
            ("application/warc", false),
            ("application/x-tar", false),
            ("application/x-gtar; a=b", false),
            ("Application/Zstd", false),
            ("application/warc+gzip", false),
            ("image/tiff", true),
            ("application/x-tarantella", true),
        ] {
            let found = selection.rules_out_part(Some(media_type), &[]);
            assert_eq!(found, is_ruled_out, "{media_type}");
        }
    }

    #[test]
    fn parameters_and_case_of_media_types_are_ignored() {
        for (range, media_type, is_included) in [
            ("application/pdf", "Application/PDF; version=1.7", true),
            ("TEXT/*", "text/html;charset=utf-8", true),
            ("text/*", "textual/html", false),
            ("text/html; level=1", "text/html", true),
            ("application/pdf", "application/pdfx", false),
            ("*/*", "a/b", true),
        ] {
            let range = MediaRange::parse(range).unwrap();
            assert_eq!(range.includes(media_type), is_included, "{media_type}");
        }
        for text in [
            "",
            "pdf",
            "*.pdf",
            "text/",
            "/html",
            "*/html",
            "te*t/html",
            "a/b/c",
        ] {
            assert_eq!(MediaRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn type_that_is_not_stated_is_wanted_until_it_is_known() {
        let selection = selection(&["application/pdf"], &[], &[]);
        for (stated, is_wanted) in [
            (None, true),
            (Some(" "), true),
            (Some("application/pdf"), true),
            (Some("text/html"), false),
        ] {
            assert_eq!(selection.wants_type(stated), is_wanted, "{stated:?}");
            let standing = selection.standing(stated, &[]).unwrap();
            assert_eq!(standing.is_wanted(), is_wanted);
            assert_eq!(standing.is_irrelevant(), !is_wanted);
        }
        assert_eq!(Selection::default().standing(Some("a/b"), &[]), None);
    }

    #[test]
    fn entry_gives_what_it_states_and_lacks_the_rest() {
        let both = selection(&[], &["http://e.org/c"], &["http://purl.org/dc/terms/"]);
        let of = |links: &[Link]| both.standing(None, links).unwrap();
        let all = Criteria::COLLECTION.with(Criteria::PROFILE);
        assert_eq!(of(&[]).lacks, all);
        let other = [link("collection", "http://e.org/other")];
        assert_eq!(of(&other).lacks, all);
        let member = [link("Collection", "http://e.org/c")];
        assert_eq!(of(&member).lacks, Criteria::PROFILE);
        assert_eq!(of(&member).gives, Criteria::COLLECTION);
        for rel in ["profile", "describedBy"] {
            let record = [member[0].clone(), link(rel, "http://purl.org/dc/terms/")];
            assert!(of(&record).is_wanted(), "{rel}");
        }
    }
}
