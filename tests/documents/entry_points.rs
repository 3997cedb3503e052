//! Entry points of a Source, and links between its documents.

use crate::documents::site::{
    Follower, Site, capability_list, change_list, changed, description, document, entry, listed,
    resource_list, with_up,
};
use crate::support::eventually;

async fn two_resources() -> Site {
    let site = Site::with_lists(&resource_list(&(listed("/a") + &listed("/b")))).await;
    site.put("/a", "a");
    site.put("/b", "b");
    site
}

const BOTH: [(&str, &str); 2] = [("/a", "a"), ("/b", "b")];

#[tokio::test(flavor = "multi_thread")]
async fn namespace_without_its_last_slash_is_accepted() {
    let site = two_resources().await;
    let misspell =
        |page: String| page.replace("openarchives.org/rs/terms/", "openarchives.org/rs/terms");
    site.put(
        "/.well-known/resourcesync",
        &misspell(description("/capabilities.xml")),
    );
    let lists = [
        ("resourcelist", "/list.xml"),
        ("changelist", "/changes.xml"),
    ];
    site.put("/capabilities.xml", &misspell(capability_list(&lists)));
    site.put("/list.xml", &misspell(resource_list(&listed("/a"))));
    let created = changed("/b", "created", "02T00:00:00");
    site.put("/changes.xml", &misspell(change_list(&created)));
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&[
            "/.well-known/resourcesync namespace-spelling=1",
            "/capabilities.xml namespace-spelling=1",
            "/changes.xml namespace-spelling=1",
            "/list.xml namespace-spelling=1",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_sitemap_at_the_well_known_uri_leads_to_the_sets() {
    let site = two_resources().await;
    let plain = description("/capabilities.xml").replace("<rs:md capability=\"description\"/>", "");
    let plain = plain.replace("<rs:md capability=\"capabilitylist\"/>", "");
    site.put("/.well-known/resourcesync", &plain);
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/.well-known/resourcesync no-capability=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_well_known_uri_is_tried() {
    let site = two_resources().await;
    site.remove("/.well-known/resourcesync");
    site.put(
        "/.wellknown/resourcesync",
        &description("/capabilities.xml"),
    );
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/.wellknown/resourcesync well-known-spelling=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_links_to_the_source_description_leads_to_all_sets() {
    let site = two_resources().await;
    site.remove("/.well-known/resourcesync");
    site.put("/source.xml", &description("/capabilities.xml"));
    let page = r#"<!DOCTYPE html><html><head><link rel="resourcesync" href="{site}/source.xml"></head><body><br></html>"#;
    site.put("/page.html", page);
    let follower = Follower::start_at(site, "/page.html").await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/source.xml link-to-description=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_that_skips_a_level_is_followed() {
    let site = two_resources().await;
    let md = r#"capability="resourcelist" at="2026-03-01T00:00:00Z""#;
    let entries = listed("/a") + &listed("/b");
    let list = with_up("urlset", "/.well-known/resourcesync", md, &entries);
    site.put("/list.xml", &list);
    let follower = Follower::start_at(site, "/list.xml").await;
    follower.until_mirrored(&BOTH).await;
    follower.until_oddities(&["/list.xml wrong-up=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_up_is_replaced_by_the_well_known_uri() {
    let site = two_resources().await;
    let md = r#"capability="resourcelist" at="2026-03-01T00:00:00Z""#;
    site.put(
        "/list.xml",
        &with_up("urlset", "", md, &(listed("/a") + &listed("/b"))),
    );
    let lists = capability_list(&[("resourcelist", "/list.xml")]);
    let up = lists
        .split("<rs:ln")
        .nth(1)
        .unwrap()
        .split("/>")
        .next()
        .unwrap();
    site.put(
        "/capabilities.xml",
        &lists.replace(&format!("<rs:ln{up}/>"), ""),
    );
    let follower = Follower::start_at(site, "/list.xml").await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/capabilities.xml no-up=1", "/list.xml no-up=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_that_points_down_causes_no_cycle() {
    let site = two_resources().await;
    let down = description("/capabilities.xml").replace(
        "<rs:md capability=\"description\"/>",
        "<rs:ln rel=\"up\" href=\"{site}/capabilities.xml\"/><rs:md capability=\"description\"/>",
    );
    site.put("/.well-known/resourcesync", &down);
    let offers = entry("/list.xml", "<rs:md capability=\"resourcelist\"/>");
    let md = r#"capability="capabilitylist""#;
    site.put(
        "/capabilities.xml",
        &with_up("urlset", "/list.xml", md, &offers),
    );
    let follower = Follower::start_at(site, "/list.xml").await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/capabilities.xml wrong-up=1"])
        .await;
    let site = two_resources().await;
    site.put("/.well-known/resourcesync", &down);
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&["/.well-known/resourcesync wrong-up=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn capability_listed_twice_is_read_from_the_valid_document() {
    let oai = r#"<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><error code="badVerb"/></OAI-PMH>"#;
    for first in ["/list.xml", "/oai"] {
        let site = two_resources().await;
        site.put("/oai", oai);
        let second = if first == "/oai" { "/list.xml" } else { "/oai" };
        let lists = [
            ("resourcelist", first),
            ("resourcelist", second),
            (
                "changelist",
                if first == "/oai" {
                    "/oai"
                } else {
                    "/changes.xml"
                },
            ),
            (
                "changelist",
                if first == "/oai" {
                    "/changes.xml"
                } else {
                    "/oai"
                },
            ),
        ];
        site.put("/capabilities.xml", &capability_list(&lists));
        site.put(
            "/changes.xml",
            &change_list(&changed("/a", "updated", "02T00:00:00")),
        );
        let follower = Follower::start(site).await;
        follower.until_mirrored(&BOTH).await;
        follower
            .until_oddities(&["/capabilities.xml capability-twice=2"])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_capabilities_are_accepted() {
    let site = two_resources().await;
    let lists = [
        ("resourceList", "/index.xml"),
        ("changelistindex", "/changes.xml"),
    ];
    site.put("/capabilities.xml", &capability_list(&lists));
    let md = r#"capability="resourceindex" at="2026-03-01T00:00:00Z""#;
    let parts = entry("/list.xml", "").replace("url>", "sitemap>");
    site.put("/index.xml", &document("sitemapindex", md, &parts));
    let list = resource_list(&(listed("/a") + &listed("/b")));
    site.put("/list.xml", &list.replace("resourcelist", "resourcecelist"));
    site.put(
        "/changes.xml",
        &change_list("").replace("changelist", "ChangeList"),
    );
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH).await;
    follower
        .until_oddities(&[
            "/capabilities.xml capability-spelling=2",
            "/changes.xml capability-spelling=1",
            "/index.xml capability-spelling=1",
            "/list.xml capability-spelling=1",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_with_a_new_uri_at_each_publication_is_followed() {
    let site = two_resources().await;
    let lists = [
        ("resourcelist", "/list-1.xml"),
        ("changelist", "/changes-1.xml"),
    ];
    site.put("/capabilities.xml", &capability_list(&lists));
    site.put("/list-1.xml", &resource_list(&listed("/a")));
    // The oddities of a list that is no longer listed disappear from the status.
    let undated = |entries: &str| change_list(entries).replace(" from=", " x=");
    site.put("/changes-1.xml", &undated(""));
    let follower = Follower::start(site).await;
    follower.until_mirrored(&BOTH[..1]).await;
    follower.until_oddities(&["/changes-1.xml no-from=1"]).await;

    let site = &follower.site;
    site.remove("/list-1.xml");
    site.remove("/changes-1.xml");
    let lists = [
        ("resourcelist", "/list-2.xml"),
        ("changelist", "/changes-2.xml"),
    ];
    site.put(
        "/list-2.xml",
        &resource_list(&(listed("/a") + &listed("/b"))),
    );
    site.put(
        "/changes-2.xml",
        &undated(&changed("/b", "created", "02T00:00:00")),
    );
    site.put("/capabilities.xml", &capability_list(&lists));
    follower.poll().await;
    follower.until_mirrored(&BOTH).await;
    follower.until_oddities(&["/changes-2.xml no-from=1"]).await;

    // Without a Change List, the Resource List alone states the changes.
    let site = &follower.site;
    site.remove("/changes-2.xml");
    site.remove("/list-2.xml");
    let newer = resource_list(&listed("/b")).replace("2026-03-01", "2026-03-03");
    site.put("/list-3.xml", &newer);
    site.put(
        "/capabilities.xml",
        &capability_list(&[("resourcelist", "/list-3.xml")]),
    );
    follower.poll().await;
    follower.until_mirrored(&BOTH[1..]).await;
    follower.until_oddities(&[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describing_documents_and_channels_of_other_transports_are_shown() {
    let site = two_resources().await;
    let about = |path: &str| format!("<rs:ln rel=\"describedby\" href=\"{{site}}{path}\"/>");
    let found = description("/capabilities.xml")
        .replace(
            "<rs:md capability=\"description\"",
            &format!("{}<rs:md capability=\"description\"", about("/about")),
        )
        .replace("</url>", &format!("{}</url>", about("/about/set")));
    site.put("/.well-known/resourcesync", &found);
    let list = capability_list(&[("resourcelist", "/list.xml")])
        .replacen("<rs:md", &format!("{}<rs:md", about("/about/list")), 1)
        .replace(
            "</urlset>",
            "<url><loc>xmpp:pubsub.example.com</loc><rs:md capability=\"change-notification\"/></url></urlset>",
        );
    site.put("/capabilities.xml", &list);
    let follower = Follower::start(site).await;
    let expected = ["/about/set", "/about/list"].map(|path| follower.site.url(path));
    let set = follower
        .until("described", |set| {
            set.describedby == expected && !set.notices.is_empty()
        })
        .await;
    assert_eq!(set.notices[0].code, "unsupported-transport");
    assert!(set.notices[0].message.contains("not supported yet"));
    let status = follower.destination.operator.status().await;
    assert_eq!(status.sources[0].describedby, [follower.site.url("/about")]);
    follower.until_mirrored(&BOTH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_up_link_of_a_list_that_stands_alone_is_a_notice() {
    let site = two_resources().await;
    for path in ["/.well-known/resourcesync", "/capabilities.xml"] {
        site.remove(path);
    }
    let follower = Follower::start_at(site, "/list.xml").await;
    follower.until_mirrored(&BOTH).await;
    // The set is followed a moment before the result of the discovery is shown.
    let source = eventually("discovered", None, async || {
        let source = follower
            .destination
            .operator
            .status()
            .await
            .sources
            .remove(0);
        match source.state.as_str() {
            "discovering" => Err(format!("{source:#?}")),
            _ => Ok(source),
        }
    })
    .await;
    assert_eq!((source.state.as_str(), &source.error), ("ok", &None));
    assert_eq!(source.notices[0].code, "dead-link");
    let message = &source.notices[0].message;
    assert!(message.contains("/capabilities.xml"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn robots_txt_in_utf16_without_a_space_leads_to_the_sitemap() {
    let site = Site::start().await;
    let sitemap =
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">{entries}</urlset>";
    site.put("/map.xml", &sitemap.replace("{entries}", &listed("/a")));
    site.put("/a", "0");
    let robots = format!(
        "\u{feff}User-agent: *\r\nSitemap:{}\r\n",
        site.url("/map.xml")
    );
    let robots = robots.encode_utf16().flat_map(u16::to_le_bytes).collect();
    site.put_bytes("/robots.txt", &[("content-type", "text/plain")], robots);
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "0")]).await;
}

/// A Capability List has an entry without a capability, and a package.
#[tokio::test(flavor = "multi_thread")]
async fn entries_of_other_kinds_are_passed_over() {
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "0");
    let offers = entry("/list.xml", "<rs:md capability=\"resourcelist\"/>")
        + &entry("/other.html", "")
        + &entry("/all.zip", "<rs:md type=\"application/zip\"/>");
    let md = "capability=\"capabilitylist\"";
    let list = with_up("urlset", "/.well-known/resourcesync", md, &offers);
    site.put("/capabilities.xml", &list);
    let follower = Follower::start(site).await;
    let set = follower.until_mirrored(&[("/a", "0")]).await;
    assert_eq!(set.error, None);
    assert_eq!(follower.site.hits("/all.zip"), 0);
}

/// A Source Description without a capability lists the home page as a Resource List.
#[tokio::test(flavor = "multi_thread")]
async fn home_page_in_place_of_a_resource_list_is_named() {
    let site = Site::start().await;
    site.put("/", "<html><title>Home</title></html>");
    let home = entry("/", "<rs:md capability=\"resourcelist\"/>");
    site.put(
        "/.well-known/resourcesync",
        &with_up("urlset", "", "", &home),
    );
    let follower = Follower::start(site).await;
    let set = follower.until("an error", |set| set.error.is_some()).await;
    let error = set.error.unwrap();
    assert_eq!(
        (set.state.as_str(), error.code.as_str()),
        ("failing", "html-page")
    );
    assert!(error.message.contains("\"Home\""), "{}", error.message);
}

/// A document of the draft of version 0.1 that names the Change Set at `/set.xml`.
fn draft(inside: &str, end: &str) -> String {
    let link = r#"<xhtml:link rel="current http://www.openarchives.org/rs/changeset" href="{site}/set.xml"/>"#;
    format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"
             xmlns:xhtml="http://www.w3.org/1999/xhtml"><xhtml:meta name="DCTERMS.modified" content="2026-03-03T00:00:00Z"/>
             {link}{inside}{end}"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn change_set_of_the_draft_leads_to_the_sitemap_that_names_it() {
    let site = Site::start().await;
    site.put("/a", "a");
    site.put("/b", "b");
    site.put("/robots.txt", "Sitemap: {site}/sitemap.xml");
    // It ends as examples of the draft do.
    site.put("/sitemap.xml", &draft(&listed("/a"), "<urlset>\n"));
    let created = r#"<lastmod rs:type="created">2026-03-02T00:00:00Z</lastmod>"#;
    site.put("/set.xml", &draft(&entry("/b", created), "</urlset>"));
    let follower = Follower::start_at(site, "/set.xml").await;
    let set = follower.until_mirrored(&BOTH).await;
    let sitemap = follower.site.url("/sitemap.xml");
    assert_eq!(set.capability_list, sitemap);
    let oddities = [
        "/set.xml draft-0.1=1",
        "/sitemap.xml draft-0.1=1",
        "/sitemap.xml root-reopened=1",
    ];
    follower.until_oddities(&oddities).await;
}
