//! The status endpoint.

use resyncd_testkit::{ChannelHub, SampleOptions};

use super::packing::LIST;
use crate::support::{FeedLine, NAME, Rig, SET, client, eventually, resources, soon, time};

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_the_page_answer() {
    let rig = Rig::start(resources(3)).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(rig.operator.get(path).await.0, 200, "{path}");
    }
    rig.settled().await;
    let (status, page) = rig.operator.get("/").await;
    assert_eq!(status, 200);
    assert!(page.contains(NAME) && page.contains("in-sync"), "{page}");
    assert_eq!(rig.operator.get("/nothing").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_lists_source_sets_and_channels() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    // The sets are followed before the discovery has ended.
    let status = eventually("the Source is ok", Some(rig.wakes()), async || {
        let status = rig.operator.status().await;
        if status.sources[0].state == "ok" {
            Ok(status)
        } else {
            Err(format!("{status:#?}"))
        }
    })
    .await;
    assert_eq!(status.version, env!("CARGO_PKG_VERSION"));
    assert!(time(&status.started_at) <= time(&status.now));
    let source = &status.sources[0];
    assert_eq!(source.name, NAME);
    assert_eq!(source.url, rig.source.url());
    assert!(source.error.is_none());
    let origin = rig.source.base().origin().ascii_serialization();
    let mut hosts = status.hosts.iter();
    let host = hosts.find(|host| host.origin == origin).unwrap();
    assert_eq!(host.protocol.as_deref(), Some("HTTP/1.1"));
    assert_eq!((host.at_once, host.most), (8, 8));
    assert!(host.slowed.is_none());
    let set = &source.sets[0];
    assert_eq!(set.bytes, 3 * 64);
    assert!(set.last_poll_at.is_some() && set.next_poll_at.is_some());
    let kinds: Vec<_> = set.channels.iter().map(|c| c.kind.as_str()).collect();
    assert_eq!(kinds.len(), 2);
    for channel in &set.channels {
        assert_eq!(channel.transport, "websub");
        assert_eq!(channel.hub, Some(rig.hub().uri().to_string()));
        let (renewed, ends) = (
            channel.renew_at.as_ref().unwrap(),
            channel.lease_expires_at.as_ref().unwrap(),
        );
        assert!(time(renewed) < time(ends));
    }
    assert!(
        set.channels
            .iter()
            .any(|c| c.topic == rig.changes().to_string())
    );
    assert!(
        set.channels
            .iter()
            .any(|c| c.topic == rig.framework().to_string())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_of_the_endpoint_is_json() {
    let rig = Rig::start(resources(1)).await;
    for (path, status, code) in [
        ("/changes?since=abc", 400, "bad-query"),
        ("/changes?limit=-1", 400, "bad-query"),
        ("/resource?uri=abc", 400, "bad-uri"),
        ("/nothing", 404, "unknown-path"),
        ("/sources/unknown/poll", 405, "method-not-allowed"),
    ] {
        let (found, body) = rig.operator.get(path).await;
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(
            (found.as_u16(), &body["error"]["code"]),
            (status, &code.into()),
            "{path}"
        );
        assert!(body["error"]["message"].is_string(), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_is_served_in_pages_of_lines() {
    let rig = Rig::start(resources(10)).await;
    rig.settled().await;
    let all = rig.operator.changes(0).await;
    assert_eq!(all.len(), 10);
    assert!(all.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert!(
        all.iter()
            .all(|line| line.origin == "resource-list" && line.change == "created")
    );
    let (_, body) = rig
        .operator
        .get(&format!("/changes?since={}&limit=4", all[2].seq))
        .await;
    let page: Vec<FeedLine> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(page, all[3..7]);
    let (status, body) = rig
        .operator
        .get(&format!("/changes?since={}", all[9].seq))
        .await;
    assert_eq!((status.as_u16(), body.as_str()), (200, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn feed_continues_as_a_stream_of_events() {
    let rig = Rig::start(resources(3)).await;
    // A poll would apply the change before its notification.
    rig.idle().await;
    let mut events = rig.operator.events(1).await;
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    assert_eq!(events.headers()["x-accel-buffering"], "no");
    let mut text = String::new();
    let mut read_until = async |lines: usize| -> Vec<(i64, FeedLine)> {
        while text.matches("\n\n").count() < lines {
            let chunk = soon("an event", events.chunk()).await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        let blocks = text.split("\n\n").filter(|block| block.contains("data:"));
        blocks
            .map(|block| {
                let field = |name: &str| {
                    let line = block.lines().find(|line| line.starts_with(name)).unwrap();
                    line[name.len()..].trim().to_owned()
                };
                (
                    field("id:").parse().unwrap(),
                    serde_json::from_str(&field("data:")).unwrap(),
                )
            })
            .collect()
    };
    let former = read_until(2).await;
    assert_eq!(former.len(), 2, "changes after number 1");
    rig.source.update(SET, "r0001.txt", "live");
    rig.source.notify_and_publish(SET).await.unwrap();
    let all = read_until(3).await;
    let (id, line) = all.last().unwrap();
    assert_eq!((*id, line.uri.clone()), (line.seq, rig.uri("r0001.txt")));
    assert_eq!(line.origin, "notification");
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_events_ends_when_the_daemon_stops() {
    let mut rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let mut events = rig.operator.events(0).await;
    rig.stop_daemon().await;
    soon("end of the stream", async {
        while let Ok(Some(_)) = events.chunk().await {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_resource_and_unknown_source_are_not_found() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    assert!(
        rig.operator
            .resource(&rig.uri("nothing.txt"))
            .await
            .is_none()
    );
    let (status, body) = rig.operator.get("/resource?uri=nonsense").await;
    assert_eq!(status, 400, "{body}");
    let (status, _) = rig.operator.get("/resource").await;
    assert_eq!(status, 400);
    let (status, _) = rig.operator.post("/sources/unknown/poll").await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_entries_of_an_unchanged_list_are_shown_after_a_restart() {
    let polled = SampleOptions {
        change_list: false,
        hub: ChannelHub::None,
        ..resources(3)
    };
    let mut rig = Rig::start(polled).await;
    rig.settled().await;
    let list = rig.source.base().join(LIST).unwrap();
    let response = client().get(list).send().await.unwrap();
    let text = response.text().await.unwrap();
    let without_loc = text.replacen("<url>", "<url></url><url>", 1);
    rig.source
        .put_document(LIST, "application/xml", without_loc);
    rig.operator.poll(NAME).await;
    rig.until("unread", |set| set.unread == 1).await;
    // Another poll begins when the list is stored as read.
    let before = rig.source.hits(LIST);
    rig.operator.poll(NAME).await;
    rig.source.wait_for_hits(LIST, before + 1).await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    let set = rig.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(set.unread, 1);
    rig.source.remove_document(LIST);
    rig.operator.poll(NAME).await;
    rig.until("repaired", |set| set.unread == 0).await;
}
