//! URIs that are not themselves again when they are parsed: what is stored of them could not be read. Wherever such a URI comes from, it
//! is rejected, the daemon goes on, and no other Source notices.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use resourcesync::Capability;
use resyncd::config::{Filter, Source};
use resyncd_core::{LinkRules, MediaRange};
use resyncd_testkit::{Notification, SampleSource};
use url::Url;
use websub::{Signature, SignatureMethod};

use crate::support::process::Home;
use crate::support::site::{Site, entry, ok, redirect, status, urlset};
use crate::support::socket_site::{CHANGES, SocketSite};
use crate::support::{
    Rig, SET, change, change_list, client, eventually, files, resources, send, soon,
};

/// The name of the hostile Source in the configuration.
const HOSTILE: &str = "hostile";

/// A host that can be encoded, and not decoded again.
fn host() -> String {
    let host: String = (0..700)
        .map(|number| char::from_u32(0x4e00 + number * 7919 % 20_000).unwrap())
        .collect();
    let uri = Url::parse(&format!("http://{host}/")).unwrap();
    assert!(uri.as_str().len() < 8 << 10 && Url::parse(uri.as_str()).is_err());
    host
}

fn md(capability: &str) -> String {
    format!(r#"<rs:md capability="{capability}"/>"#)
}

/// The documents of a hostile Source: more entries of its Source Description, its Capability List and its Resource List, and more elements
/// of the one entry there that is sound.
#[derive(Default)]
struct Documents {
    description: String,
    capabilities: String,
    list: String,
    of_sound: String,
}

impl Documents {
    async fn serve(self) -> Site {
        let redirected = format!("http://{}/", host());
        Site::start(Ipv4Addr::LOCALHOST, |address| {
            let at = |path: &str| format!("http://{address}{path}");
            let set = entry(&at("/caps.xml"), &md("capabilitylist"));
            let description = urlset("description", "", &(set + &self.description));
            let list = entry(&at("/list.xml"), &md("resourcelist"));
            let capabilities = urlset("capabilitylist", "", &(list + &self.capabilities));
            let sound = entry(&at("/sound"), &self.of_sound);
            let list = urlset("resourcelist", "", &(sound + &self.list));
            move |path: &str, _: &_| match path {
                "/.well-known/resourcesync" => ok(description.clone()),
                "/caps.xml" => ok(capabilities.clone()),
                "/list.xml" => ok(list.clone()),
                "/sound" => ok("sound"),
                "/redirected" => redirect(302, &redirected),
                _ => status(404),
            }
        })
        .await
    }
}

/// The ways in through documents.
fn ways() -> Vec<(&'static str, Documents)> {
    let host = host();
    let uri = format!("http://{host}/x");
    let link = |rel: &str| format!(r#"<rs:ln rel="{rel}" href="{uri}" type="text/xml"/>"#);
    let channel = md("change-notification");
    let none = Documents::default;
    vec![
        (
            "loc",
            Documents {
                list: entry(&uri, ""),
                ..none()
            },
        ),
        (
            "redirection",
            Documents {
                list: entry("/redirected", ""),
                ..none()
            },
        ),
        (
            "link",
            Documents {
                of_sound: link("canonical") + &link("duplicate"),
                ..none()
            },
        ),
        (
            "followed link",
            Documents {
                of_sound: link("alternate") + &link("describedby"),
                ..none()
            },
        ),
        (
            "set",
            Documents {
                description: entry(&uri, &md("capabilitylist")),
                ..none()
            },
        ),
        (
            "list",
            Documents {
                capabilities: entry(&uri, &md("changelist")),
                ..none()
            },
        ),
        (
            "channel",
            Documents {
                capabilities: entry(&uri, &(channel.clone() + &link("hub"))),
                ..none()
            },
        ),
        (
            "hub",
            Documents {
                capabilities: entry("/topic", &(channel.clone() + &link("hub"))),
                ..none()
            },
        ),
        (
            "socket",
            Documents {
                capabilities: entry(&format!("ws://{host}/x"), &channel),
                ..none()
            },
        ),
    ]
}

/// A daemon with a sound Source, and a hostile one.
struct Victim(Rig);

impl Victim {
    async fn start(url: Url) -> Self {
        let rig = Rig::start_with(resources(3), |config| {
            let mirror = config.sources[0].mirror.with_file_name(HOSTILE);
            let mut hostile = Source::new(HOSTILE, url, mirror);
            hostile.reorder_window = Duration::from_millis(300);
            let rules = LinkRules::new(true, vec![MediaRange::parse("*/*").unwrap()]);
            hostile.filter = Filter::everything().following(rules);
            hostile.trust_hub = Some(false);
            config.sources.push(hostile);
        })
        .await;
        Self(rig)
    }

    /// Waits until the hostile Source satisfies a condition.
    async fn until(&self, what: &str, wanted: impl Fn(&resyncd::status::SourceStatus) -> bool) {
        eventually(what, Some(self.0.wakes()), async || {
            self.assert_sound(what).await;
            let mut sources = self.0.operator.status().await.sources;
            let found = sources.remove(1);
            if wanted(&found) {
                Ok(())
            } else {
                Err(format!("{found:#?}"))
            }
        })
        .await;
    }

    async fn until_mirrored(&self, what: &str, bytes: &[u8]) {
        let mirror = &self.0.config.sources[1].mirror;
        eventually(what, Some(self.0.wakes()), async || {
            self.assert_sound(what).await;
            if files(mirror).into_values().any(|found| found == bytes) {
                Ok(())
            } else {
                Err(format!("{:#?}", self.0.operator.status().await.sources[1]))
            }
        })
        .await;
    }

    async fn assert_sound(&self, what: &str) {
        let damaged = self.0.daemon().store.damaged();
        let is_damaged = tokio::time::timeout(Duration::ZERO, damaged).await.is_ok();
        assert!(!is_damaged, "{what}: counts as a damaged database");
    }

    /// Checks that the daemon and the other Source have not noticed, also after a restart.
    async fn check(mut self, what: &str) {
        let rig = &mut self.0;
        rig.settled().await;
        rig.source.update(SET, "r0001.txt", what.to_owned());
        rig.source.notify_and_publish(SET).await.unwrap();
        rig.until_holds("r0001.txt", what).await;
        let feed = rig.daemon().store.feed_id().to_owned();
        rig.stop_daemon().await;
        rig.start_daemon().await;
        rig.settled().await;
        assert_eq!(rig.daemon().store.feed_id(), feed, "{what}");
        assert!(!rig.config.state_dir.join("resyncd.db.damaged-1").exists());
        let hostile = &rig.operator.status().await.sources[1];
        let codes = hostile.attention.iter().map(|it| it.code.as_str());
        assert!(!codes.into_iter().any(|it| it == "database-row"), "{what}");
        self.assert_sound(what).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unstable_uris_of_documents_are_rejected_and_harm_no_other_source() {
    for (what, documents) in ways() {
        let site = documents.serve().await;
        let victim = Victim::start(site.url("/")).await;
        victim.until_mirrored(what, b"sound").await;
        let failed = u64::from(what == "redirection");
        victim
            .until(what, |source| {
                let sets = &source.sets;
                sets.len() == 1 && sets[0].last_poll_at.is_some() && sets[0].failed == failed
            })
            .await;
        victim.check(what).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unstable_uris_of_notifications_are_rejected_and_harm_no_other_source() {
    for what in ["notification", "header of a delivery"] {
        let source = SampleSource::start(resources(3)).await.unwrap();
        let victim = Victim::start(source.base()).await;
        victim
            .until(what, |source| {
                let set = source.sets.first();
                set.is_some_and(|set| set.state == "in-sync")
            })
            .await;
        let topic = source.topic(SET, &Capability::ChangeNotification);
        let hub = source.hub().unwrap();
        let subscribed = hub.wait_for_subscription(topic.as_str());
        let to = soon("subscribed", subscribed).await;
        let unstable = format!("http://{}/x", host());
        source.update(SET, "r0001.txt", "pushed");
        let genuine = source.notify(SET);
        let interval = genuine.interval.unwrap();
        let forged = change(&source.resource_uri(SET, "PLACE"), interval.until());
        let known = change(&source.resource_uri(SET, "r0001.txt"), interval.until());
        let place = forged.loc.to_string();
        let body = change_list(
            interval.from(),
            Some(interval.until()),
            None,
            &[known, forged],
        );
        if what == "notification" {
            let body = String::from_utf8(body).unwrap().replace(&place, &unstable);
            let body = Bytes::from(body);
            let sent = source.publish(&Notification { body, ..genuine }).await;
            assert!(sent.unwrap()[0].is_accepted());
        } else {
            let body = genuine.body.to_vec();
            let secret = to.secret.as_ref().unwrap();
            let signature = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &body);
            // Other characters do not count in a header.
            let encode = |byte: u8| format!("%{byte:02X}");
            let host: String = host().bytes().map(encode).collect();
            let link = format!("<http://{host}/x>; rel=\"self\"");
            let request = client()
                .post(&to.callback)
                .header("X-Hub-Signature", signature.to_string())
                .header("Link", link)
                .body(body);
            assert_eq!(send(|| request.try_clone().unwrap()).await.status(), 200);
        }
        victim.until_mirrored(what, b"pushed").await;
        victim.check(what).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unstable_uris_of_a_message_are_rejected_and_harm_no_other_source() {
    let what = "message";
    let site = SocketSite::of(&["/a"]).await;
    let victim = Victim::start(Url::parse(&site.url("/")).unwrap()).await;
    victim
        .until(what, |source| {
            let active = |set: &resyncd::status::SetStatus| {
                set.state == "in-sync" && set.channels.iter().all(|it| it.state == "active")
            };
            source.sets.iter().any(active)
        })
        .await;
    site.put("/a", "changed");
    let unstable = format!("http://{}/x", host());
    let md = r#"<lastmod>2024-03-01T00:00:00Z</lastmod><rs:md change="updated"/>"#;
    let sound = site.change("/a", "updated", "03-01T00:00:00");
    site.send(CHANGES, site.notification(&(entry(&unstable, md) + &sound)));
    victim.until_mirrored(what, b"changed").await;
    victim.check(what).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unstable_uris_do_not_fail_a_single_run() {
    // What is redirected is tried again for half a minute.
    let ways = ways()
        .into_iter()
        .filter(|(what, _)| *what != "redirection");
    for (what, documents) in ways {
        let site = documents.serve().await;
        let home = Home::new(site.url("/").as_str(), "metadata = \"follow\"");
        for _ in 0..2 {
            let output = home.run_command(&["sync"]);
            let log = String::from_utf8_lossy(&output.stderr);
            assert!(!log.contains("database"), "{what}: {log}");
            assert!(
                output.status.code().is_some_and(|code| code < 2),
                "{what}: {log}"
            );
        }
        let found = files(&home.mirror).into_values().collect::<Vec<_>>();
        assert_eq!(found, [b"sound"], "{what}");
        let aside = home.folder().join("state/resyncd.db.damaged-1");
        assert!(!aside.exists(), "{what}");
    }
}
