//! Document type declarations are rejected wherever a document is read, and no URI in them is requested. Without them there are no
//! entities but the predefined ones.

use std::io::BufReader;

use resourcesync::DocumentReader;
use url::Url;

use crate::hostile::PROCESSOR;
use crate::hostile::entry_points::{EntryPoint, GuardedSet};

/// The path of the external entities; it must never be requested.
const CANARY: &str = "/canary";

/// A document with a doctype, and the codes with which it may be rejected.
struct Variant {
    name: &'static str,
    bytes: Vec<u8>,
    codes: &'static [&'static str],
}

const DOCTYPE: &[&str] = &["doctype"];
const NOT_XML: &[&str] = &["not-xml"];

/// The document with every known kind of doctype. `canary` is a URI that must never be requested.
fn variants(document: &str, canary: &str) -> Vec<Variant> {
    let root_at = document.find("?>").unwrap() + 2;
    let (declaration, root) = document.split_at(root_at);
    let root = root.trim_start();
    // `before` is placed before the root, `reference` in the first `loc`.
    let with = |before: &str, reference: &str| {
        let with_reference = root.replacen("<loc>", &format!("<loc>{reference}"), 1);
        format!("{declaration}{before}{with_reference}").into_bytes()
    };
    let laughs: String = (1..10)
        .map(|n| {
            let before = format!("&l{};", n - 1).repeat(10);
            format!("<!ENTITY l{n} \"{before}\">")
        })
        .collect();
    let laughs = format!("<!DOCTYPE lolz [<!ENTITY l0 \"lol\">{laughs}]>");
    let quadratic = format!("<!DOCTYPE q [<!ENTITY q \"{}\">]>", "q".repeat(30_000));
    let external = |uri: &str| format!("<!DOCTYPE x [<!ENTITY x SYSTEM \"{uri}\">]>");
    let parameter = format!("<!DOCTYPE x [<!ENTITY % x SYSTEM \"{canary}\"> %x;]>");
    let nested = format!(
        "<!DOCTYPE x [<!ENTITY % f SYSTEM \"file:///etc/hostname\"><!ENTITY % e \"<!ENTITY &#37; s SYSTEM '{canary}?%f;'>\">%e;%s;]>"
    );
    let system = format!("<!DOCTYPE urlset SYSTEM \"{canary}\">");
    let public = format!("<!DOCTYPE urlset PUBLIC \"-//S//DTD S//EN\" \"{canary}\">");
    let defaults =
        "<!DOCTYPE urlset [<!ATTLIST rs:md change CDATA \"deleted\" capability CDATA \"x\">]>";
    let empty = "<!DOCTYPE urlset>";
    let utf16 = |bytes: fn(u16) -> [u8; 2], mark: &[u8]| {
        let text = format!("{empty}{root}");
        let text = text.encode_utf16().flat_map(bytes);
        mark.iter().copied().chain(text).collect::<Vec<u8>>()
    };
    let inside = root.find('>').unwrap() + 1;
    let (opened, rest) = root.split_at(inside);
    let variant = |name, bytes: Vec<u8>, codes| Variant { name, bytes, codes };
    let text = String::into_bytes;
    vec![
        variant("a billion laughs", with(&laughs, "&l9;"), DOCTYPE),
        variant(
            "quadratic blow-up",
            with(&quadratic, &"&q;".repeat(1000)),
            DOCTYPE,
        ),
        variant(
            "a file",
            with(&external("file:///etc/hostname"), "&x;"),
            DOCTYPE,
        ),
        variant(
            "a file, without a reference",
            with(&external("file:///etc/hostname"), ""),
            DOCTYPE,
        ),
        variant("a URI", with(&external(canary), "&x;"), DOCTYPE),
        variant("a parameter entity", with(&parameter, ""), DOCTYPE),
        variant(
            "parameter entities that exfiltrate a file",
            with(&nested, ""),
            DOCTYPE,
        ),
        variant("an external subset", with(&system, ""), DOCTYPE),
        variant("a public external subset", with(&public, ""), DOCTYPE),
        variant("default attributes", with(defaults, ""), DOCTYPE),
        variant("an empty declaration", with(empty, ""), DOCTYPE),
        variant(
            "after a comment",
            with(&format!("<!-- c -->{system}"), ""),
            DOCTYPE,
        ),
        variant(
            "after an instruction",
            with(&format!("<?p i?>\n{system}"), ""),
            DOCTYPE,
        ),
        variant("twice", with(&format!("{empty}{system}"), ""), DOCTYPE),
        variant(
            "without an XML declaration",
            text(format!("{system}{root}")),
            DOCTYPE,
        ),
        variant(
            "after a byte order mark",
            text(format!("\u{feff}{system}{root}")),
            DOCTYPE,
        ),
        variant("in lower case", with(&system.to_lowercase(), ""), DOCTYPE),
        variant(
            "within the root",
            text(format!("{declaration}{opened}{system}{rest}")),
            DOCTYPE,
        ),
        variant(
            "after the root",
            text(format!("{document}{system}")),
            DOCTYPE,
        ),
        variant(
            "not closed",
            with("<!DOCTYPE urlset [", ""),
            &["cut-short", "not-xml", "doctype"],
        ),
        variant("in UTF-16", utf16(u16::to_le_bytes, &[0xff, 0xfe]), DOCTYPE),
        variant(
            "in big-endian UTF-16",
            utf16(u16::to_be_bytes, &[0xfe, 0xff]),
            DOCTYPE,
        ),
        variant(
            "in UTF-16 without a mark",
            utf16(u16::to_be_bytes, &[]),
            DOCTYPE,
        ),
        variant(
            "in UTF-7",
            text(format!(
                "<?xml version=\"1.0\" encoding=\"UTF-7\"?>+ADwAIQ-DOCTYPE x+AD4-{root}"
            )),
            NOT_XML,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn doctypes_are_rejected_everywhere() {
    let _permit = PROCESSOR.read().await;
    for entry_point in EntryPoint::ALL {
        let set = GuardedSet::start(entry_point).await;
        let canary = set.rig.source.base().join(CANARY).unwrap();
        let variants = variants(&set.document, canary.as_str());
        assert!(variants.len() >= 20);
        for Variant { name, bytes, codes } in variants {
            set.rejects(name, bytes, codes).await;
        }
        assert_eq!(set.rig.source.hits(CANARY), 0, "{entry_point:?}");
        set.recovers().await;
    }
}

#[test]
fn doctypes_are_rejected_at_any_buffer_size() {
    let document = r#"<?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://example.com/a</loc></url></urlset>"#;
    let base = Url::parse("http://example.com/").unwrap();
    for Variant { name, bytes, codes } in variants(document, "http://example.com/canary") {
        for piece in (1..24).chain([4096]) {
            let read = || {
                let input = BufReader::with_capacity(piece, bytes.as_slice());
                let mut reader = DocumentReader::open(input, &base)?;
                while reader.next_entry()?.is_some() {}
                Ok::<(), resourcesync::ReadError>(())
            };
            let error = read().expect_err(name);
            assert!(
                codes.contains(&error.code()),
                "{name}, buffer of {piece}: {error}"
            );
        }
    }
}
