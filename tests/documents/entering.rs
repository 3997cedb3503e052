//! How a Source is entered, and how its documents hang together.

use crate::site::{
    Follower, Site, capability_list, change_list, changed, description, document, entry, listed,
    resource_list, with_up,
};

async fn two_resources() -> Site {
    let site = Site::with_lists(&resource_list(&(listed("/a") + &listed("/b")))).await;
    site.put("/a", "a");
    site.put("/b", "b");
    site
}

const BOTH: [(&str, &str); 2] = [("/a", "a"), ("/b", "b")];

#[tokio::test(flavor = "multi_thread")]
async fn namespace_without_its_last_slash_is_the_namespace() {
    let site = two_resources().await;
    let odd =
        |page: String| page.replace("openarchives.org/rs/terms/", "openarchives.org/rs/terms");
    site.put(
        "/.well-known/resourcesync",
        &odd(description("/capabilities.xml")),
    );
    let lists = [
        ("resourcelist", "/list.xml"),
        ("changelist", "/changes.xml"),
    ];
    site.put("/capabilities.xml", &odd(capability_list(&lists)));
    site.put("/list.xml", &odd(resource_list(&listed("/a"))));
    let created = changed("/b", "created", "02T00:00:00");
    site.put("/changes.xml", &odd(change_list(&created)));
    let follower = Follower::start(site).await;
    follower.holds(&BOTH).await;
    follower
        .shows(&[
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
    follower.holds(&BOTH).await;
    follower
        .shows(&["/.well-known/resourcesync no-capability=1"])
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
    follower.holds(&BOTH).await;
    follower
        .shows(&["/.wellknown/resourcesync well-known-spelling=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_links_to_the_source_description_leads_to_all_sets() {
    let site = two_resources().await;
    site.remove("/.well-known/resourcesync");
    site.put("/source.xml", &description("/capabilities.xml"));
    let page = r#"<!DOCTYPE html><html><head><link rel="resourcesync" href="{site}/source.xml"></head><body><br></html>"#;
    site.put("/page.html", page);
    let follower = Follower::enter(site, "/page.html").await;
    follower.holds(&BOTH).await;
    follower.shows(&["/source.xml link-to-description=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_that_skips_a_level_leads_on_from_any_list() {
    let site = two_resources().await;
    let md = r#"capability="resourcelist" at="2026-03-01T00:00:00Z""#;
    let entries = listed("/a") + &listed("/b");
    let skips = with_up("urlset", "/.well-known/resourcesync", md, &entries);
    site.put("/list.xml", &skips);
    let follower = Follower::enter(site, "/list.xml").await;
    follower.holds(&BOTH).await;
    follower.shows(&["/list.xml wrong-up=1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_that_is_missing_is_made_up_for_by_the_well_known_uri() {
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
    let follower = Follower::enter(site, "/list.xml").await;
    follower.holds(&BOTH).await;
    follower
        .shows(&["/capabilities.xml no-up=1", "/list.xml no-up=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn up_that_points_down_leads_into_no_ring() {
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
    let follower = Follower::enter(site, "/list.xml").await;
    follower.holds(&BOTH).await;
    follower.shows(&["/capabilities.xml wrong-up=1"]).await;
    let site = two_resources().await;
    site.put("/.well-known/resourcesync", &down);
    let follower = Follower::start(site).await;
    follower.holds(&BOTH).await;
    follower
        .shows(&["/.well-known/resourcesync wrong-up=1"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn capability_twice_is_the_one_that_can_be_read() {
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
        follower.holds(&BOTH).await;
        follower
            .shows(&["/capabilities.xml capability-twice=2"])
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn misspelt_capabilities_are_understood() {
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
    follower.holds(&BOTH).await;
    follower
        .shows(&[
            "/capabilities.xml capability-spelling=2",
            "/changes.xml capability-spelling=1",
            "/index.xml capability-spelling=1",
            "/list.xml capability-spelling=1",
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn list_that_moves_at_each_publication_is_followed() {
    let site = two_resources().await;
    let lists = [
        ("resourcelist", "/list-1.xml"),
        ("changelist", "/changes-1.xml"),
    ];
    site.put("/capabilities.xml", &capability_list(&lists));
    site.put("/list-1.xml", &resource_list(&listed("/a")));
    // Of what is odd about a list that has gone, nothing is shown any more.
    let undated = |entries: &str| change_list(entries).replace(" from=", " x=");
    site.put("/changes-1.xml", &undated(""));
    let follower = Follower::start(site).await;
    follower.holds(&BOTH[..1]).await;
    follower.shows(&["/changes-1.xml no-from=1"]).await;

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
    follower.holds(&BOTH).await;
    follower.shows(&["/changes-2.xml no-from=1"]).await;

    // Without a Change List it is the Resource List alone that tells.
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
    follower.holds(&BOTH[1..]).await;
    follower.shows(&[]).await;
}
