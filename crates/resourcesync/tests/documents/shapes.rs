//! Documents like the examples of the specification, sections 8 to 14, and of the notification specifications. They have no
//! oddities, except where the specification contradicts itself.

use crate::read_with_oddities;

/// A document with namespaces, `up` to a Capability List, an `rs:md` with these attributes, and entries.
fn shape(root: &str, md: &str, entries: &[String]) -> String {
    let up = "\n  <rs:ln rel=\"up\"\n         href=\"http://example.com/sets/capabilities.xml\"/>";
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\"
        xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{up}
  <rs:md {md}/>\n{}</{root}>\n",
        entries.concat()
    )
}

fn entry(name: &str, path: &str, inside: &str) -> String {
    format!("  <{name}>\n    <loc>http://example.com/{path}</loc>\n    {inside}\n  </{name}>\n")
}

fn url(path: &str, inside: &str) -> String {
    entry("url", path, inside)
}

fn changed(path: &str, hour: u32, change: &str, more: &str) -> String {
    let lastmod = format!("<lastmod>2026-05-06T{hour:02}:00:00Z</lastmod>");
    url(
        path,
        &format!("{lastmod}\n    <rs:md change=\"{change}\"{more}/>"),
    )
}

const MD5: &str = "md5:900150983cd24fb0d6963f7d28e17f72";
const BOTH: &str = "md5:900150983cd24fb0d6963f7d28e17f72
               sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn source_descriptions_and_capability_lists() {
    let about = "<rs:ln rel=\"describedby\" href=\"http://example.com/about.xml\"/>";
    let sets = [1, 2, 3].map(|n| {
        let md = "<rs:md capability=\"capabilitylist\"/>";
        url(&format!("capabilities{n}.xml"), &format!("{md}{about}"))
    });
    // Example 12, and its index.
    let description = shape("urlset", "capability=\"description\"", &sets);
    let up = description.find("<rs:ln rel=\"up\"").unwrap();
    let end = description[up..].find("/>").unwrap() + up + 2;
    let topmost = format!("{}{about}{}", &description[..up], &description[end..]);
    read_with_oddities(&topmost, "");
    let index = topmost
        .replace("urlset", "sitemapindex")
        .replace("url>", "sitemap>");
    read_with_oddities(&index, "");
    // Example 13, with the channels of the notification specifications.
    let hub = "<rs:ln rel=\"hub\" href=\"http://hub.example.org/websub/\"/>";
    let offers = ["resourcelist", "resourcedump", "changelist", "changedump"]
        .map(|name| url(name, &format!("<rs:md capability=\"{name}\"/>")));
    let channels = ["change-notification", "framework-notification"]
        .map(|name| url(name, &format!("{hub}<rs:md capability=\"{name}\"/>")));
    let entries = [offers.concat(), channels.concat()];
    read_with_oddities(
        &shape("urlset", "capability=\"capabilitylist\"", &entries),
        "",
    );
}

#[test]
fn resource_lists_and_their_index() {
    // Example 14.
    let entries = [
        url(
            "a",
            &format!(
                "<lastmod>2026-05-05T13:00:00Z</lastmod><rs:md hash=\"{MD5}\" length=\"3\" type=\"text/html\"/>"
            ),
        ),
        url(
            "b",
            &format!(
                "<lastmod>2026-05-05T12:00:00Z</lastmod><rs:md hash=\"{BOTH}\" length=\"3\" type=\"application/pdf\"/>"
            ),
        ),
    ];
    let md = "capability=\"resourcelist\" at=\"2026-05-06T09:00:00Z\" completed=\"2026-05-06T09:01:00Z\"";
    let list = shape("urlset", md, &entries);
    read_with_oddities(&list, "");
    // Example 15. Here the specification omits the last slash of its own namespace.
    let parts = [0, 3, 7].map(|minute| {
        let md = format!("<rs:md at=\"2026-05-06T09:0{minute}:00Z\"/>");
        entry("sitemap", &format!("list{minute}.xml"), &md)
    });
    let index = shape("sitemapindex", md, &parts);
    read_with_oddities(&index, "");
    read_with_oddities(
        &index.replace("/rs/terms/", "/rs/terms"),
        "namespace-spelling=1",
    );
    // Example 16: a part of an index, with the capability of the text and with that of the example.
    let linked = list.replace(
        "  <rs:md cap",
        "  <rs:ln rel=\"index\" href=\"http://example.com/index.xml\"/>\n  <rs:md cap",
    );
    read_with_oddities(&linked, "");
    read_with_oddities(
        &linked.replace("resourcelist", "resourceindex"),
        "capability-spelling=1",
    );
}

#[test]
fn resource_dumps_and_their_manifests() {
    let contents = "<rs:ln rel=\"contents\" href=\"http://example.com/manifest.xml\" type=\"application/xml\"/>";
    let times = "at=\"2026-05-06T09:00:00Z\" completed=\"2026-05-06T09:04:00Z\"";
    // Example 17; the packages may be listed in any order.
    let packages = [3, 0, 1].map(|n| {
        let md = format!("<rs:md type=\"application/zip\" length=\"4765\" at=\"2026-05-06T09:0{n}:00Z\" completed=\"2026-05-06T09:04:00Z\"/>");
        url(&format!("part{n}.zip"), &format!("{md}{contents}"))
    });
    let md = format!("capability=\"resourcedump\" {times}");
    read_with_oddities(&shape("urlset", &md, &packages), "");
    // Example 18.
    let bitstreams = ["a", "b"].map(|name| {
        let md = format!(
            "<rs:md hash=\"{BOTH}\" length=\"3\" type=\"text/html\" path=\"/resources/{name}\"/>"
        );
        url(
            name,
            &format!("<lastmod>2026-05-05T13:00:00Z</lastmod>{md}"),
        )
    });
    let md = format!("capability=\"resourcedump-manifest\" {times}");
    read_with_oddities(&shape("urlset", &md, &bitstreams), "");
}

#[test]
fn change_lists_and_their_index() {
    // Example 19: an open list in which a resource changes twice.
    let changes = [
        changed("a.html", 11, "created", ""),
        changed("b.pdf", 13, "updated", ""),
        changed("c.tiff", 18, "deleted", ""),
        changed("b.pdf", 21, "updated", ""),
    ];
    let open = "capability=\"changelist\" from=\"2026-05-06T00:00:00Z\"";
    read_with_oddities(&shape("urlset", open, &changes), "");
    // Example 20.
    let day = |from: u32, until: &str| {
        let md = format!("<rs:md from=\"2026-05-0{from}T00:00:00Z\"{until}/>");
        entry("sitemap", &format!("changes{from}.xml"), &md)
    };
    let days = [
        day(4, " until=\"2026-05-05T00:00:00Z\""),
        day(5, " until=\"2026-05-06T00:00:00Z\""),
        day(6, ""),
    ];
    let md = "capability=\"changelist\" from=\"2026-05-04T00:00:00Z\"";
    read_with_oddities(&shape("sitemapindex", md, &days), "");
    // Example 21: a closed list.
    let closed = format!("{open} until=\"2026-05-07T00:00:00Z\"");
    let index = "<rs:ln rel=\"index\" href=\"http://example.com/index.xml\"/>\n  <rs:md capability";
    let list = shape("urlset", &closed, &changes).replace("<rs:md capability", index);
    read_with_oddities(&list, "");
}

#[test]
fn change_dumps_and_their_manifests() {
    let contents = "<rs:ln rel=\"contents\" href=\"http://example.com/manifest.xml\" type=\"application/xml\"/>";
    // Example 22; one of the packages has `until` only.
    let package = |day: u32, from: &str| {
        let md = format!(
            "<rs:md type=\"application/zip\" length=\"6629\"{from} until=\"2026-05-0{day}T23:59:59Z\"/>"
        );
        let lastmod = format!("<lastmod>2026-05-0{day}T23:59:59Z</lastmod>");
        url(
            &format!("changes{day}.zip"),
            &format!("{lastmod}{md}{contents}"),
        )
    };
    let packages = [
        package(4, ""),
        package(5, " from=\"2026-05-05T00:00:00Z\""),
        package(6, " from=\"2026-05-06T00:00:00Z\""),
    ];
    let md = "capability=\"changedump\" from=\"2026-05-04T00:00:00Z\"";
    read_with_oddities(&shape("urlset", md, &packages), "");
    // Example 23.
    let member =
        |path: &str| format!(" hash=\"{MD5}\" length=\"3\" type=\"text/html\" path=\"{path}\"");
    let bitstreams = [
        changed("g.html", 12, "created", &member("/changes/g.html")),
        changed("i.pdf", 13, "updated", &member("/changes/i.pdf")),
        changed("e.tiff", 19, "deleted", ""),
        changed("g.html", 20, "updated", &member("/changes/g-2.html")),
    ];
    let md = "capability=\"changedump-manifest\" from=\"2026-05-06T00:00:00Z\" until=\"2026-05-07T00:00:00Z\"";
    read_with_oddities(&shape("urlset", md, &bitstreams), "");
}

#[test]
fn changes_with_links_to_related_resources() {
    let attributes = format!(" hash=\"{MD5}\" length=\"3\" type=\"text/html\"");
    let modified = "modified=\"2026-05-06T18:00:00Z\"";
    let fixed = format!("{modified} hash=\"{MD5}\" length=\"3\" type=\"text/html\"");
    let href = "href=\"http://other.example.com/a\"";
    for (example, links) in [
        (24, vec![
            format!("<rs:ln rel=\"duplicate\" pri=\"1\" {href} {modified}/>"),
            format!("<rs:ln rel=\"duplicate\" pri=\"999999\" href=\"gsiftp://grid.example.com/a\" {modified}/>"),
        ]),
        (25, vec![
            format!("<rs:ln rel=\"alternate\" {href} {modified} type=\"text/html\"/>"),
            format!("<rs:ln rel=\"alternate\" {href} {modified} type=\"application/pdf\"/>"),
        ]),
        (26, vec![format!("<rs:ln rel=\"canonical\" {href} {modified}/>")]),
        (27, vec![format!("<rs:ln rel=\"http://www.openarchives.org/rs/terms/patch\" {href} {fixed}/>")]),
        (28, vec![
            format!("<rs:ln rel=\"describedby\" {href} {modified} type=\"application/xml\"/>"),
            format!("<rs:ln rel=\"describes\" {href} {fixed}/>"),
            "<rs:ln rel=\"profile\" href=\"http://purl.example.org/terms/\"/>".to_owned(),
        ]),
        (29, vec![
            format!("<rs:ln rel=\"memento\" {href} {fixed}/>"),
            "<rs:ln rel=\"timegate\" href=\"http://example.com/gate/http://example.com/a\"/>".to_owned(),
            "<rs:ln rel=\"timemap\" href=\"http://example.com/map/http://example.com/a\" type=\"application/link-format\"/>".to_owned(),
        ]),
        (30, vec![format!("<rs:ln rel=\"collection\" {href}/>")]),
        (33, vec![format!("<rs:ln rel=\"via\" {href} {fixed}/>")]),
    ] {
        let md = "capability=\"changelist\" from=\"2026-05-06T00:00:00Z\"";
        let entry = changed("a", 18, "updated", &attributes).replace("  </url>", &format!("{}</url>", links.concat()));
        let read = read_with_oddities(&shape("urlset", md, &[entry]), "");
        assert_eq!(read.entries[0].links.len(), links.len(), "example {example}");
    }
    // The digests of example 27 are invalid.
    let invalid = changed(
        "a",
        18,
        "updated",
        " hash=\"sha-256:f40xZX_x_DFGFDgghgdfb6rtSx-iosjf6735432nklj\"",
    );
    let md = "capability=\"changelist\" from=\"2026-05-06T00:00:00Z\"";
    let read = read_with_oddities(&shape("urlset", md, &[invalid]), "digest-encoding=1");
    assert_eq!(
        read.entries[0].md.content.hashes[0].bytes().len(),
        32,
        "they happen to be valid base64"
    );
}

#[test]
fn change_and_framework_notifications() {
    let dated = |path: &str, lastmod: &str, minute: u32, more: &str| {
        let md =
            format!("<rs:md change=\"updated\" datetime=\"2026-05-06T00:0{minute}:22Z\" {more}/>");
        url(path, &format!("{lastmod}{md}"))
    };
    let changes = [
        dated(
            "a",
            "<lastmod>2026-05-01T13:03:00Z</lastmod>",
            7,
            "length=\"3\"",
        ),
        dated("b", "", 8, &format!("hash=\"{BOTH}\"")),
    ];
    let md = "capability=\"change-notification\" from=\"2026-05-06T00:00:00Z\" until=\"2026-05-06T00:10:00Z\"";
    read_with_oddities(&shape("urlset", md, &changes), "");
    let index = "<rs:ln rel=\"index\" href=\"http://example.com/index.xml\"/></url>";
    let lists = [
        dated("list.xml", "", 7, "capability=\"resourcelist\"").replace("</url>", index),
        dated("changes.xml", "", 6, "capability=\"changelist\""),
        dated("2.xml", "", 7, "capability=\"resourcelist\""),
    ];
    let md = "capability=\"framework-notification\"";
    let text = shape("urlset", md, &lists);
    read_with_oddities(&text, "");
    let up = text.find("<rs:ln rel=\"up\"").unwrap();
    let end = text[up..].find("/>").unwrap() + up + 2;
    read_with_oddities(&format!("{}{}", &text[..up], &text[end..]), "");
}
