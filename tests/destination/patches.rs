//! Patches: how the version that the mirror has becomes the new one (section 14.4).

use resourcesync::{Algorithm, ContentInfo, Digest, Entry, Link};
use resyncd::config::Config;
use resyncd::status::SetStatus;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};

use super::change_dumps::{only_dumped, polled};
use super::duplicates::{announce, update};
use super::own_change_dumps::put_package;
use crate::support::{Rig, SET, resources};

const RELATION: &str = "http://www.openarchives.org/rs/terms/patch";
const NAME: &str = "r0001.txt";
const OWN: &str = "/set1/res/r0001.txt";
const PATCH: &str = "/patches/1";
const JSON: &str = "application/json-patch";
const BASE: &str = "{\n  \"z\": 1.0,\n  \"a\": [\n    \"é\"\n  ]\n}\n";

/// A Source whose resource was updated to these bytes, and a mirror that has them.
async fn rig_of(base: &str, change: impl FnOnce(&mut Config)) -> Rig {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options, change).await;
    rig.idle().await;
    let since = rig.operator.last_change().await;
    announce(&rig, &[update(&rig, NAME, base)]).await;
    rig.until_holds(NAME, base).await;
    rig.until_mirrored().await;
    // The file is there before its line.
    rig.until_in_feed(since, NAME).await;
    rig
}

async fn rig() -> Rig {
    rig_of(BASE, |_| {}).await
}

/// Serves a patch, and adds a link to it to the entry.
fn put(rig: &Rig, entry: &mut Entry, path: &str, media_type: &str, patch: &str) {
    rig.source.put_document(path, media_type, patch.to_owned());
    let href = rig.source.base().join(path).unwrap();
    entry.links.push(Link {
        content: ContentInfo {
            length: Some(patch.len() as u64),
            media_type: Some(media_type.to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, patch.as_bytes())],
        },
        ..Link::new(RELATION, href)
    });
}

/// Announces a change to these bytes with a patch, while the Source serves only the patch.
async fn announce_patch(rig: &Rig, bytes: &str, media_type: &str, patch: &str) {
    rig.source.fail(OWN, Fault::Status(404), usize::MAX);
    let mut entry = update(rig, NAME, bytes);
    put(rig, &mut entry, PATCH, media_type, patch);
    announce(rig, &[entry]).await;
}

/// Waits until nothing is pending, while the mirror is another one than the sample Source's own.
async fn until_in_sync(rig: &Rig) {
    let is_done = |set: &SetStatus| set.state == "in-sync" && set.pending == 0;
    rig.until("in sync", is_done).await;
}

/// Waits until the set is in sync and so many changes were applied by a patch, and so many patches were not used.
async fn until_counted(rig: &Rig, patched: u64, missed: u64) {
    let set = rig.until("counted", |set| {
        set.state == "in-sync"
            && set.pending == 0
            && set.patched + set.patch_missed >= patched + missed
    });
    let set = set.await;
    assert_eq!((set.patched, set.patch_missed), (patched, missed));
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_is_mirrored_by_its_patch() {
    for (base, media_type, patch, expected) in [
        (
            BASE,
            JSON,
            r#"[{"op":"add","path":"/a/-","value":"ü"},{"op":"add","path":"/b","value":{}}]"#,
            "{\n  \"z\": 1.0,\n  \"a\": [\n    \"é\",\n    \"ü\"\n  ],\n  \"b\": {}\n}\n",
        ),
        (
            r#"{"a": "\u00e9", "b": 1}"#,
            "application/json-patch+json",
            r#"[{"op":"replace","path":"/a","value":"ü"}]"#,
            r#"{"a": "\u00fc", "b": 1}"#,
        ),
        (
            r#"{"a":{"b":1},"c":2}"#,
            "application/merge-patch+json",
            r#"{"a":{"b":null},"d":"x"}"#,
            r#"{"a":{},"c":2,"d":"x"}"#,
        ),
        (
            "<?xml version='1.0'?>\n<r:a xmlns:r=\"urn:r\"  k='v'>\n  <r:b/>\n</r:a>\n",
            "application/patch-ops-error+xml",
            r#"<diff xmlns:x="urn:r"><replace sel="x:a/x:b"><x:c n="1"/></replace><add sel="*" type="@m">2</add></diff>"#,
            "<?xml version='1.0'?>\n<r:a xmlns:r=\"urn:r\"  k='v' m=\"2\">\n  <r:c n=\"1\"/>\n</r:a>\n",
        ),
        (
            "<doc><note>This is a sample document</note></doc>",
            "application/xml-patch+xml",
            r#"<p:patch xmlns:p="urn:ietf:rfc:7351"><p:add sel="doc"><foo>new</foo></p:add></p:patch>"#,
            "<doc><note>This is a sample document</note><foo>new</foo></doc>",
        ),
    ] {
        let rig = rig_of(base, |_| {}).await;
        let own = rig.source.hits(OWN);
        let since = rig.operator.last_change().await;
        announce_patch(&rig, expected, media_type, patch).await;
        rig.until_holds(NAME, expected).await;
        until_counted(&rig, 1, 0).await;
        assert_eq!((rig.source.hits(PATCH), rig.source.hits(OWN)), (1, own));
        let line = rig.until_in_feed(since, NAME).await;
        assert_eq!(line.by.as_deref(), Some("patch"));
        assert_eq!(line.origin, "change-list");
        rig.assert_mirrored();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_that_does_not_give_the_stated_bytes_is_not_used() {
    let rig = rig().await;
    let stated = r#"{"z":2}"#;
    let since = rig.operator.last_change().await;
    for (number, patch) in [
        // Another result, one that does not fit, and none at all.
        r#"[{"op":"remove","path":"/z"}]"#,
        r#"[{"op":"test","path":"/z","value":7}]"#,
        "<html/>",
    ]
    .iter()
    .enumerate()
    {
        let number = number as u64 + 1;
        let expected = stated.replace('2', &number.to_string());
        let (own, path) = (rig.source.hits(OWN), format!("/patches/{number}"));
        let mut entry = update(&rig, NAME, &expected);
        put(&rig, &mut entry, &path, JSON, patch);
        announce(&rig, &[entry]).await;
        rig.until_holds(NAME, &expected).await;
        until_counted(&rig, 0, number).await;
        assert_eq!(rig.source.hits(&path), 1);
        assert_eq!(rig.source.hits(OWN), own + 1);
    }
    assert_eq!(rig.until_in_feed(since, NAME).await.by, None);
    rig.assert_mirrored();
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_of_a_version_that_was_skipped_is_not_requested() {
    let rig = rig().await;
    let mut first = update(&rig, NAME, r#"{"z":2}"#);
    put(
        &rig,
        &mut first,
        "/patches/1",
        JSON,
        r#"[{"op":"replace","path":"/z","value":2}]"#,
    );
    rig.source.advance(std::time::Duration::from_secs(1));
    let mut second = update(&rig, NAME, r#"{"z":3}"#);
    put(
        &rig,
        &mut second,
        "/patches/2",
        JSON,
        r#"[{"op":"replace","path":"/z","value":3}]"#,
    );
    announce(&rig, &[first, second]).await;
    rig.until_holds(NAME, r#"{"z":3}"#).await;
    until_counted(&rig, 0, 1).await;
    assert_eq!(
        rig.source.hits("/patches/1") + rig.source.hits("/patches/2"),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_without_a_digest_of_the_result_or_of_an_unknown_type_is_not_requested() {
    let rig = rig().await;
    let patch = r#"[{"op":"replace","path":"/z","value":2}]"#;
    let mut entry = update(&rig, NAME, r#"{"z":2}"#);
    entry.md.content.hashes.clear();
    put(&rig, &mut entry, "/patches/1", JSON, patch);
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, r#"{"z":2}"#).await;
    until_counted(&rig, 0, 1).await;
    let mut entry = update(&rig, NAME, r#"{"z":3}"#);
    put(
        &rig,
        &mut entry,
        "/patches/2",
        "application/x-tiff-diff",
        patch,
    );
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, r#"{"z":3}"#).await;
    until_counted(&rig, 0, 1).await;
    assert_eq!(
        rig.source.hits("/patches/1") + rig.source.hits("/patches/2"),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_are_not_requested_if_they_are_switched_off() {
    let rig = rig_of(BASE, |config| config.sources[0].patches = false).await;
    let mut entry = update(&rig, NAME, r#"{"z":2}"#);
    put(
        &rig,
        &mut entry,
        PATCH,
        JSON,
        r#"[{"op":"replace","path":"/z","value":2}]"#,
    );
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, r#"{"z":2}"#).await;
    until_counted(&rig, 0, 0).await;
    assert_eq!(rig.source.hits(PATCH), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_somebody_has_changed_is_not_patched() {
    let rig = rig().await;
    let file = rig.config.sources[0].mirror.join(mirrored_path(&rig));
    std::fs::write(&file, BASE.replace('z', "y")).unwrap();
    let mut entry = update(&rig, NAME, r#"{"a":[]}"#);
    put(
        &rig,
        &mut entry,
        PATCH,
        JSON,
        r#"[{"op":"add","path":"/b","value":2}]"#,
    );
    announce(&rig, &[entry]).await;
    rig.until_holds(NAME, r#"{"a":[]}"#).await;
    until_counted(&rig, 0, 1).await;
}

fn mirrored_path(rig: &Rig) -> String {
    crate::support::path_of(&rig.source.resource_uri(crate::support::SET, NAME))
}

/// A kill between the publication of the file and its commit.
#[tokio::test(flavor = "multi_thread")]
async fn file_that_was_patched_before_a_kill_is_recorded() {
    let mut rig = rig().await;
    rig.stop_daemon().await;
    let expected = BASE.replace("1.0", "2.5");
    let file = rig.config.sources[0].mirror.join(mirrored_path(&rig));
    std::fs::write(&file, &expected).unwrap();
    rig.start_daemon().await;
    until_in_sync(&rig).await;
    let since = rig.operator.last_change().await;
    let patch = r#"[{"op":"test","path":"/z","value":1},{"op":"replace","path":"/z","value":2.5}]"#;
    announce_patch(&rig, &expected, JSON, patch).await;
    let line = rig.until_in_feed(since, NAME).await;
    assert_eq!(line.by.as_deref(), Some("patch"));
    until_counted(&rig, 1, 0).await;
    rig.assert_mirrored();
}

/// What only a hub of another origin states may be neither the patch nor the digest that proves it.
#[tokio::test(flavor = "multi_thread")]
async fn pushed_patch_is_used_only_if_the_hub_is_trusted() {
    let options = SampleOptions {
        related: true,
        ..resources(1)
    };
    let (name, own) = ("catalog.json", "/set1/res/catalog.json");
    let second = "{\"title\":\"Catalog\",\"version\":2}\n";
    for trusted in [true, false] {
        let change = |config: &mut Config| config.sources[0].trust_hub = Some(trusted);
        let rig = Rig::start_with(options.clone(), change).await;
        rig.idle().await;
        let since = rig.operator.last_change().await;
        rig.source.update(SET, name, second);
        rig.source.notify_and_publish(SET).await.unwrap();
        let line = rig.until_in_feed(since, name).await;
        assert_eq!(line.by.as_deref(), trusted.then_some("patch"));
        let hits = (rig.source.hits("/set1/patches/2"), rig.source.hits(own));
        assert_eq!(hits, if trusted { (1, 1) } else { (0, 2) });
        rig.assert_mirrored();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patch_in_a_change_dump_is_used() {
    let rig = polled(only_dumped()).await;
    let (before, after) = (r#"{"a":1}"#, r#"{"a":1,"b":[]}"#);
    let entry = |bytes: &str, md: &str, link: &str| {
        let digest = Digest::of(Algorithm::Sha256, bytes.as_bytes());
        let (at, length) = (rig.source.boundary(), bytes.len());
        format!(
            r#"<url><loc>{OWN}</loc><lastmod>{at}</lastmod><rs:md change="updated" hash="{digest}" length="{length}" {md}/>{link}</url>"#
        )
    };
    let full = entry(before, r#"path="a.json""#, "");
    rig.source.advance(std::time::Duration::from_secs(1));
    put_package(&rig.source, "changedump", &full, &[("a.json", before)]);
    rig.until_holds(NAME, before).await;
    until_in_sync(&rig).await;
    rig.source.fail(OWN, Fault::Status(404), usize::MAX);
    let own = rig.source.hits(OWN);
    let link = format!(r#"<rs:ln rel="{RELATION}" href="{PATCH}" path="/patch" type="{JSON}"/>"#);
    let by_patch = entry(after, "", &link);
    rig.source.advance(std::time::Duration::from_secs(1));
    let patch = r#"[{"op":"add","path":"/b","value":[]}]"#;
    put_package(
        &rig.source,
        "changedump",
        &format!("{full}{by_patch}"),
        &[("a.json", before), ("patch", patch)],
    );
    rig.until_holds(NAME, after).await;
    until_counted(&rig, 1, 0).await;
    assert_eq!((rig.source.hits(OWN), rig.source.hits(PATCH)), (own, 0));
}

/// Patches that would take much memory or time: the resource is fetched instead.
#[tokio::test(flavor = "multi_thread")]
async fn costly_patches_are_stopped() {
    let copies = r#"{"op":"copy","from":"","path":"/-"},"#.repeat(64);
    let bomb = format!("[{}]", copies.trim_end_matches(','));
    let deep = format!("[{}", "[".repeat(1_000_000));
    let long = format!("[{}]", " ".repeat(17 << 20));
    let nested = "<a>".repeat(100_000);
    let steps = "*/".repeat(100_000);
    let selectors = format!("<diff><remove sel=\"{steps}*\"/></diff>");
    // Entities that grow exponentially.
    let references = "<!DOCTYPE d [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]><d><add sel=\"a\">&b;</add></d>";
    let references = references.to_owned();
    let rig = rig_of("[0]", |_| {}).await;
    for (number, (kind, base, patch)) in [
        (JSON, "[0]", bomb),
        (JSON, "[0]", deep),
        (JSON, "[0]", long),
        ("application/xml-patch+xml", "<a/>", nested),
        ("application/xml-patch+xml", "<a><b/></a>", selectors),
        ("application/patch-ops-error+xml", "<a/>", references),
    ]
    .into_iter()
    .enumerate()
    {
        announce(&rig, &[update(&rig, NAME, base)]).await;
        rig.until_holds(NAME, base).await;
        let expected = format!("[{number},1]");
        let mut entry = update(&rig, NAME, &expected);
        put(
            &rig,
            &mut entry,
            &format!("/patches/{number}"),
            kind,
            &patch,
        );
        if let Some(link) = entry.links.first_mut() {
            link.content.length = None;
        }
        announce(&rig, &[entry]).await;
        rig.until_holds(NAME, &expected).await;
        until_counted(&rig, 0, number as u64 + 1).await;
    }
    rig.assert_mirrored();
}
