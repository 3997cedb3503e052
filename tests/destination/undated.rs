//! Entries that state nothing but a URI: their resources are requested again for each new version of the list.

use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use crate::support::{NAME, Rig, SET, resources};

const LIST: &str = "/set1/resourcelist.xml";

/// A Resource List of that day in January 2026, of entries of nothing but a URI, or also of `changefreq`.
fn put_list(rig: &Rig, day: u32, more: &str) {
    let entries: String = ["r0000.txt", "r0001.txt", "r0002.txt"]
        .iter()
        .map(|name| format!("<url><loc>{}</loc>{more}</url>", rig.uri(name)))
        .collect();
    let list = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
         xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"resourcelist\" at=\"2026-01-{day:02}T00:00:00Z\"/>{entries}</urlset>"
    );
    rig.source.put_document(LIST, "application/xml", list);
}

async fn undated(more: &str, per_day: u64) -> Rig {
    let options = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    source.fail(LIST, resyncd_testkit::Fault::Status(503), usize::MAX);
    let rig = Rig::follow(source, |config| {
        config.sources[0].undated_per_day = per_day;
    })
    .await;
    put_list(&rig, 1, more);
    rig.source.heal(LIST);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    until_synced(&rig, 1).await;
    rig
}

async fn until_synced(rig: &Rig, day: u32) {
    let until = format!("2026-01-{day:02}T00:00:00Z");
    rig.until("in sync", |set| {
        set.synced_until.as_ref() == Some(&until) && set.state == "in-sync" && set.undated == 0
    })
    .await;
}

fn hits(rig: &Rig) -> [(u64, u64); 3] {
    ["r0000.txt", "r0001.txt", "r0002.txt"].map(|name| {
        let path = rig.source.resource_uri(SET, name).path().to_owned();
        (rig.source.hits(&path), rig.source.hits_not_modified(&path))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_is_requested_again_for_each_new_version_of_its_list() {
    let rig = undated("", 1000).await;
    let before = hits(&rig);
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", "changed");
    put_list(&rig, 2, "");
    rig.operator.poll(NAME).await;
    rig.until_holds("r0001.txt", "changed").await;
    until_synced(&rig, 2).await;
    let after = hits(&rig);
    for (number, (before, after)) in before.iter().zip(&after).enumerate() {
        let not_modified = u64::from(number != 1);
        assert_eq!(*after, (before.0 + 1, before.1 + not_modified), "{number}");
    }
    assert_eq!(rig.operator.changes(since).await.len(), 1);
    // The same version, polled again, is no reason.
    let polled = rig.source.hits(LIST);
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(LIST, polled + 1).await;
    until_synced(&rig, 2).await;
    assert_eq!(hits(&rig), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_changes_is_not_requested_again() {
    let rig = undated("<changefreq>never</changefreq>", 1000).await;
    let before = hits(&rig);
    put_list(&rig, 2, "<changefreq>never</changefreq>");
    rig.operator.poll(NAME).await;
    until_synced(&rig, 2).await;
    assert_eq!(hits(&rig), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_limit_hold_the_claim_back() {
    let rig = undated("", 2).await;
    let before = hits(&rig);
    put_list(&rig, 2, "");
    rig.operator.poll(NAME).await;
    let set = rig.until("two checked", |set| set.undated == 1).await;
    assert_eq!(set.synced_until.as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!((set.state.as_str(), set.pending), ("in-sync", 0));
    let after: u64 = hits(&rig).iter().map(|hits| hits.0).sum();
    let before: u64 = before.iter().map(|hits| hits.0).sum();
    assert_eq!(after, before + 2);
}
