//! Generators of random documents with every oddity that the reader tolerates.

use proptest::prelude::*;

/// One of several spellings.
fn one(spellings: &[&'static str]) -> impl Strategy<Value = &'static str> + use<> {
    prop::sample::select(spellings.to_vec())
}

fn times() -> impl Strategy<Value = &'static str> {
    one(&[
        "2026",
        "2026-03",
        "2026-03-04",
        "20260304",
        "2026-03-04T05:06Z",
        "2026-03-04T05:06:07",
        "2026-03-04 05:06:07",
        "2026-03-04T05:06:07+09:00",
        "2026-03-04T05:06:07.123456789Z",
        "2026-03-04T24:00:00Z",
        " 2026-03-04t05:06:07,5z\n",
        "yesterday",
        "0000-00-00 00:00:00",
        "-0001-11-30T00:00:00Z",
        "",
    ])
}

fn attributes() -> impl Strategy<Value = String> {
    let time = |name: &'static str| times().prop_map(move |time| format!("{name}=\"{time}\""));
    let others = one(&[
        "length=\" 12 \"",
        "length='twelve'",
        "type=\" text/plain \"",
        "encoding=''",
        "path='/a \"b\"/c '",
        "change=\"Updated\"",
        "change='moved'",
        "capability=\"resourceList\"",
        "capability='changelistindex'",
        "hash=\"md5:kAFQmDzST7DWlj99KOF/cg==\n\tsha-1:a9993e364706816aba3e25717850c26c9cd0d89d\"",
        "hash='MD5:kAFQmDzST7DWlj99KOF_cg'",
        "hash='crc32:00 md5:900150983cd24fb0d6963f7d28e17f72'",
        "hash=''",
        "length=\"\"",
        "path='/R&D'",
        "type=\"a/b\"\u{a0}",
        "unknown=\"&lt;&#38;]]&gt; &nbsp;&\"",
        "xmlns:y='http://example.com/y' y:length='9'",
    ]);
    prop_oneof![
        time("at"),
        time("completed"),
        time("from"),
        time("until"),
        time("datetime"),
        others.prop_map(str::to_owned),
    ]
}

/// A link, metadata, or markup that the reader ignores.
fn markup() -> impl Strategy<Value = String> {
    let md =
        prop::collection::btree_map(one(&["a", "b", "c"]), attributes(), 0..3).prop_map(|all| {
            let mut names = std::collections::HashSet::new();
            let distinct = all.into_values().filter(|attribute| {
                let name = attribute.split('=').next().unwrap_or_default().to_owned();
                names.insert(name)
            });
            format!("<rs:md {}/>", distinct.collect::<Vec<_>>().join(" "))
        });
    let ln = (
        one(&["up", " describedBy ", "INDEX", "hub", ""]),
        one(&[
            "/above.xml",
            "https://hub.example/?a=1&amp;b=2",
            "https://hub.example/?a=1&b=2",
            "http://",
            "\n  x y.xml\n  ",
        ]),
    )
        .prop_map(|(rel, href)| {
            format!("<rs:ln rel=\"{rel}\" href='{href}' pri='2' modified='2026'/>")
        });
    let others = one(&[
        "<!-- not > this -->",
        "<?xml-stylesheet href='a.xsl'?>",
        "<i:image xmlns:i='http://example.com/i'><i:loc>http://example.com/i</i:loc></i:image>",
        "<changefreq>daily</changefreq>",
        "\n  ignored text & more&nbsp;\u{ffff}\n",
    ]);
    prop_oneof![3 => md, 2 => ln, 2 => others.prop_map(str::to_owned)]
}

fn entries() -> impl Strategy<Value = String> {
    let loc = one(&[
        "<loc>http://example.com/a</loc>",
        "<loc>\n   http://example.com/a b\n   /c?d=&#101;&amp;f\n  </loc>",
        "<loc><![CDATA[http://example.com/é?x=1&y=2]]></loc>",
        "<loc>../relative.txt</loc>",
        "<loc>urn:isbn:1234567890</loc>",
        "<loc>urn:isbn:1</loc><rs:ln rel='duplicate' href='/isbn/1' type='text/plain'/>",
        "<loc>http://example.com/?a=1&b=2</loc>",
        "<loc/>",
        "",
    ]);
    let lastmod = times().prop_map(|time| format!("<lastmod>{time}</lastmod>"));
    let pieces = (
        one(&["url", "sitemap"]),
        prop::collection::vec(markup(), 0..2),
        loc,
        prop::option::of(lastmod),
        prop::collection::vec(markup(), 0..3),
    );
    pieces.prop_map(|(name, before, loc, lastmod, after)| {
        let (before, after) = (before.concat(), after.concat());
        let lastmod = lastmod.unwrap_or_default();
        format!("<{name}>{before}{loc}{lastmod}{after}</{name}>\n")
    })
}

/// Valid documents with any combination of oddities.
pub(crate) fn odd_documents() -> impl Strategy<Value = String> {
    let begin = (
        one(&["urlset", "sitemapindex"]),
        one(&[
            "http://www.sitemaps.org/schemas/sitemap/0.9",
            "https://www.sitemaps.org/schemas/sitemap/0.9/",
            "http://sitemaps.org/schemas/sitemap/0.9",
            "http://www.google.com/schemas/sitemap/0.84",
            "",
        ]),
        one(&[
            "http://www.openarchives.org/rs/terms/",
            "http://www.openarchives.org/rs/terms",
        ]),
        one(&[
            "",
            "\u{feff}",
            "<?xml version='1.0' encoding='utf-8'?>",
            "<?xml version='1.0' encoding='utf-16'?>",
            "<!-- c -->\n",
        ]),
    );
    let inside = (
        prop::collection::vec(markup(), 0..3),
        prop::collection::vec(entries(), 0..4),
        prop::collection::vec(markup(), 0..2),
    );
    (begin, inside).prop_map(|((root, sitemap, rs, prolog), (head, entries, late))| {
        let (head, entries, late) = (head.concat(), entries.concat(), late.concat());
        format!("{prolog}<{root} xmlns='{sitemap}' xmlns:rs='{rs}'>{head}{entries}{late}</{root}>")
    })
}
