//! TimeMaps: which versions of a resource a server has (RFC 7089, section 5), in the format of links (RFC 6690, section 2).
//!
//! A TimeMap may be one of several pages, or an index of them: those are its links of the relation `timemap`.
//!
//! Invariant: what is read of a page is bounded by the caller.
//!
//! Specification: core, section 14.6 (prior versions of resources).

use std::collections::BTreeSet;

use resourcesync::SourceTime;
use resourcesync::uri::{BaseUri, resolve_reference, without_userinfo};
use resyncd_core::{Memento, ResourceUri};
use url::Url;

use super::http_date::parse_http_date;
use super::link_header::{next_target, parse_parameters};

/// How many other pages of one page are read.
const MAX_PAGES: usize = 1000;

/// One page of a TimeMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeMap {
    /// Its versions, in its order; of one time the first one.
    pub mementos: Vec<Memento>,
    /// The other pages that it names.
    pub pages: Vec<Url>,
    /// Whether there are more of either than are read.
    pub is_cut: bool,
}

/// Parses a page of a TimeMap, and up to `most` of its versions. Links that are invalid, that have another anchor, or that are neither
/// http nor https are ignored.
#[must_use]
pub fn parse_time_map(text: &str, base: BaseUri<'_>, most: usize) -> TimeMap {
    let mut map = TimeMap::default();
    let (mut times, mut pages) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = text;
    while let Some((target, behind)) = next_target(rest) {
        let (parameters, behind) = parse_parameters(behind);
        rest = behind;
        let Some(rel) = parameters.rel else { continue };
        let is = |wanted: &str| {
            let mut rels = rel.split_ascii_whitespace();
            rels.any(|rel| rel.eq_ignore_ascii_case(wanted))
        };
        let (is_memento, is_page) = (is("memento"), is("timemap") && !is("self"));
        if !is_memento && !is_page {
            continue;
        }
        let Ok(href) = resolve_reference(base, target.trim()) else {
            continue;
        };
        let mut href = without_userinfo(href);
        href.set_fragment(None);
        if is_page {
            if href == *base.uri || pages.contains(&href) {
                continue;
            }
            if pages.len() == MAX_PAGES {
                map.is_cut = true;
                continue;
            }
            pages.insert(href.clone());
            map.pages.push(href);
            continue;
        }
        let at = parameters.datetime.as_deref().and_then(parse_http_date);
        let (Some(at), Ok(uri)) = (at, ResourceUri::try_from(href)) else {
            continue;
        };
        let at = SourceTime::from(at);
        if times.contains(&at) {
            continue;
        }
        if times.len() == most {
            map.is_cut = true;
            continue;
        }
        times.insert(at);
        map.mementos.push(Memento { uri, at });
    }
    map
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str, most: usize) -> TimeMap {
        let uri = Url::parse("http://a.example/timemap/1").unwrap();
        let base = BaseUri {
            uri: &uri,
            max_bytes: 100,
        };
        parse_time_map(text, base, most)
    }

    fn mementos(text: &str) -> Vec<(String, String)> {
        let found = parse(text, 10).mementos.into_iter();
        found
            .map(|memento| (memento.uri.to_string(), memento.at.to_string()))
            .collect()
    }

    /// As RFC 7089 (section 5) and pywb write them.
    const PAGE: &str = r#"<http://a.example/res>; rel="original",
 <http://a.example/timemap/1>; rel="self"; type="application/link-format"; from="Tue, 20 Jun 2000 18:02:59 GMT"; until="Sun, 09 Apr 2006 20:30:51 GMT",
 <http://a.example/timegate/res>; rel="timegate",
 <http://a.example/timemap/2>; rel="timemap"; type="application/link-format"; from="Sun, 16 Apr 2006 08:51:05 GMT",
 <http://a.example/2000/res>; rel="first memento"; datetime="Tue, 20 Jun 2000 18:02:59 GMT",
 </2001/res,v;2>; rel=memento; datetime="Fri, 20 Jun 2001 18:02:59 GMT",
 <http://a.example/2006/res>; rel="last memento"; datetime="Sun, 09 Apr 2006 20:30:51 GMT"; collection="mem"
"#;

    #[test]
    fn versions_and_pages_are_read() {
        let found = mementos(PAGE);
        let expected = [
            ("http://a.example/2000/res", "2000-06-20T18:02:59Z"),
            ("http://a.example/2001/res,v;2", "2001-06-20T18:02:59Z"),
            ("http://a.example/2006/res", "2006-04-09T20:30:51Z"),
        ];
        let expected = expected.map(|(uri, at)| (uri.to_owned(), at.to_owned()));
        assert_eq!(found, expected);
        let page = parse(PAGE, 10);
        let pages = [Url::parse("http://a.example/timemap/2").unwrap()];
        assert_eq!((page.pages, page.is_cut), (pages.to_vec(), false));
    }

    #[test]
    fn invalid_versions_are_ignored() {
        for text in [
            "",
            "<html><body>no such page</body></html>",
            "<http://a.example/1>; rel=memento",
            "<http://a.example/1>; rel=memento; datetime=\"2001-06-20\"",
            "<http://a.example/1>; rel=original; datetime=\"Fri, 20 Jun 2001 18:02:59 GMT\"",
            "<ftp://a.example/1>; rel=memento; datetime=\"Fri, 20 Jun 2001 18:02:59 GMT\"",
            "<http://a.example/1; rel=memento; datetime=\"Fri, 20 Jun 2001 18:02:59 GMT\"",
        ] {
            assert_eq!(parse(text, 10), TimeMap::default(), "{text}");
        }
        let long = format!(
            "</{}>; rel=memento; datetime=\"Fri, 20 Jun 2001 18:02:59 GMT\"",
            "n".repeat(200)
        );
        assert_eq!(parse(&long, 10), TimeMap::default());
        // Its own page again, with a fragment.
        assert_eq!(
            parse("<#2>;rel=timemap,<1>;rel=timemap", 10),
            TimeMap::default()
        );
    }

    #[test]
    fn number_of_versions_and_pages_is_bounded() {
        let mut text = String::new();
        for number in 0..2000 {
            text += &format!(
                "</{number}>;rel=memento;datetime=\"Fri, 20 Jun {} 18:02:59 GMT\",",
                1000 + number
            );
        }
        let found = parse(&text, 50);
        assert_eq!((found.mementos.len(), found.is_cut), (50, true));
        let mut text = String::new();
        for number in 0..2000 {
            text += &format!("</t{number}>;rel=timemap,");
        }
        let found = parse(&text, 50);
        assert_eq!((found.pages.len(), found.is_cut), (MAX_PAGES, true));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in r#"(<[a-z:/#]{0,9}>|;|,|=|"|rel|memento|timemap|datetime| |\\|é){0,60}"#) {
            let _ = parse(&text, 3);
        }
    }
}
