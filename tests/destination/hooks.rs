//! Hooks: programs and URLs that get what was applied.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use resyncd::config::{Hook, HookAction, WebhookSecret};
use resyncd::status::{HookStatus, SourceStatus};
use resyncd_fetch::{FeedNews, WebhookRequest};
use tokio::net::TcpListener;
use url::Url;

use crate::support::{Exposition, NAME, Rig, SET, eventually, resources};

/// A hook that runs a script of the shell, whose `$0` is a file.
fn script(script: &str, file: &Path) -> Hook {
    let arguments = ["-c", script, file.to_str().unwrap()];
    let action = HookAction::Command {
        program: "/bin/sh".into(),
        arguments: arguments.map(str::to_owned).into(),
    };
    Hook::new("index", action)
}

async fn source(rig: &Rig) -> SourceStatus {
    let status = rig.operator.status().await;
    status.sources.into_iter().next().unwrap()
}

/// Waits until the status of the Source with its only hook satisfies `wanted`.
async fn until(
    rig: &Rig,
    what: &str,
    wanted: impl Fn(&SourceStatus, &HookStatus) -> bool,
) -> SourceStatus {
    eventually(what, None, async || {
        let source = source(rig).await;
        match source.hooks.first() {
            Some(hook) if wanted(&source, hook) => Ok(source),
            _ => Err(format!("{:#?} {:#?}", source.hooks, source.attention)),
        }
    })
    .await
}

/// The value of a metric with these labels.
async fn metric(rig: &Rig, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let (_, text) = rig.operator.get("/metrics").await;
    Exposition::parse(&text).sum(name, labels)
}

/// Waits until a file has exactly the lines of the feed.
async fn until_fed(rig: &Rig, file: &Path) {
    eventually("the program has the feed", Some(rig.wakes()), async || {
        let (_, feed) = rig.operator.get("/changes?since=0").await;
        let found = fs::read_to_string(file).unwrap_or_default();
        if found == feed && !feed.is_empty() {
            Ok(())
        } else {
            Err(format!("{found}\n{feed}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_gets_each_line_of_the_feed_and_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let hook = script(
        "echo \"$RESYNCD_SOURCE $RESYNCD_HOOK\" > \"$0.names\"; cat >> \"$0\"",
        &file,
    );
    let mut rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hooks = vec![Hook { lines: 2, ..hook }];
    })
    .await;
    rig.settled().await;
    until_fed(&rig, &file).await;
    let names = fs::read_to_string(folder.path().join("lines.names")).unwrap();
    assert_eq!(names, format!("{NAME} index\n"));
    let last = rig.operator.last_change().await;
    let accepted = until(&rig, "accepted", |_, hook| hook.position == Some(last)).await;
    let hook = &accepted.hooks[0];
    assert_eq!(
        (hook.kind.as_str(), hook.behind, hook.failed),
        ("command", Some(0), 0)
    );
    // At most two lines at once.
    assert!(hook.accepted >= 2, "{hook:?}");
    assert!(hook.last_accepted_at.is_some() && hook.error.is_none());

    rig.stop_daemon().await;
    rig.source.update(SET, "r0001.txt", "meanwhile");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.start_daemon().await;
    rig.until_in_feed(last, "r0001.txt").await;
    // Nothing is there twice.
    until_fed(&rig, &file).await;
    let labels = [("source", NAME), ("hook", "index")];
    let accepted = [labels[0], labels[1], ("outcome", "accepted")];
    assert!(metric(&rig, "resyncd_hook_position", &labels).await > Some(0.0));
    assert!(
        metric(&rig, "resyncd_hook_behind_entries", &labels)
            .await
            .is_some()
    );
    assert!(
        metric(&rig, "resyncd_hook_runs_total", &accepted)
            .await
            .is_some()
    );
    let failing = "resyncd_hook_failing_since_timestamp_seconds";
    assert_eq!(metric(&rig, failing, &labels).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_that_fails_waits_for_a_person_until_it_succeeds_and_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines");
    let failing = "test -e \"$0.ok\" || { echo 'no index yet' >&2; exit 3; }; cat >> \"$0\"";
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hooks = vec![script(failing, &file)];
    })
    .await;
    rig.settled().await;
    let failed = until(&rig, "an attention", |source, _| {
        !source.attention.is_empty()
    })
    .await;
    let attention = &failed.attention[0];
    assert_eq!(attention.code, "hook-failing");
    assert!(attention.message.contains("no index yet"), "{attention:?}");
    let hook = &failed.hooks[0];
    assert!(hook.failed >= 3 && hook.accepted == 0, "{hook:?}");
    assert_eq!(hook.failing_since.as_ref(), Some(&attention.since));
    assert_eq!(hook.error.as_ref().unwrap().code, "command-failed");
    let labels = [("source", NAME), ("code", "hook-failing")];
    assert_eq!(
        metric(&rig, "resyncd_source_attention", &labels).await,
        Some(1.0)
    );
    let (_, page) = rig.operator.get(&format!("/page/sources/{NAME}")).await;
    assert!(
        page.contains("hook-failing") && page.contains("Hooks"),
        "{page}"
    );

    // The mirror goes on.
    rig.source.update(SET, "r0001.txt", "meanwhile");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.settled().await;
    assert!(!file.exists());
    fs::write(folder.path().join("lines.ok"), "").unwrap();
    until_fed(&rig, &file).await;
    let healed = until(&rig, "no attention", |source, _| {
        source.attention.is_empty()
    })
    .await;
    let hook = &healed.hooks[0];
    assert!(
        hook.failing_since.is_none() && hook.error.is_none(),
        "{hook:?}"
    );
}

/// A request that a receiver got.
#[derive(Clone, Debug)]
pub(super) struct Received {
    headers: HeaderMap,
    pub(super) body: String,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn seq(&self) -> i64 {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        body["data"]["seq"].as_i64().unwrap()
    }
}

/// A receiver of requests, with the statuses that it answers: the last one for ever.
#[derive(Clone)]
pub(super) struct Receiver {
    statuses: Arc<Mutex<Vec<u16>>>,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub(super) async fn start(statuses: &[u16]) -> (Self, Url) {
        let receiver = Self {
            statuses: Arc::new(Mutex::new(statuses.to_vec())),
            received: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        (receiver, Url::parse(&url).unwrap())
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.received.lock().clone()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: String) -> Response {
    receiver.received.lock().push(Received { headers, body });
    let mut statuses = receiver.statuses.lock();
    let status = match statuses.len() {
        1 => statuses[0],
        _ => statuses.remove(0),
    };
    let status = StatusCode::from_u16(status).unwrap();
    ([("retry-after", "1")], status).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_gets_signed_requests_until_it_answers_410() {
    let (receiver, url) = Receiver::start(&[503, 204]).await;
    let key = [7; 32];
    let mut hook = Hook::new(
        "portal",
        HookAction::Webhook {
            url,
            secret: WebhookSecret::new("whsec_BwcH", key.to_vec()),
        },
    );
    hook.lines = 2;
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].hooks = vec![hook];
    })
    .await;
    rig.settled().await;
    let last = rig.operator.last_change().await;
    let accepted = until(&rig, "accepted", |_, hook| hook.position == Some(last)).await;
    assert!(accepted.hooks[0].failed >= 1, "{:?}", accepted.hooks);
    assert!(accepted.attention.is_empty(), "{:?}", accepted.attention);
    let request = receiver.received().pop().unwrap();
    assert_eq!(request.seq(), last);
    let feed = rig.operator.changes(0).await[0].feed.clone();
    let news = FeedNews {
        feed: &feed,
        source: NAME,
        hook: "portal",
        seq: last,
        has_missed: false,
    };
    let timestamp = request.header("webhook-timestamp").parse().unwrap();
    let sent = chrono::DateTime::from_timestamp(timestamp, 0).unwrap();
    let expected = WebhookRequest::of_news(&news, &key, sent);
    assert_eq!(request.body, expected.body);
    assert_eq!(expected.headers.len(), 4);
    for (name, value) in &expected.headers {
        assert_eq!(request.header(name), value);
    }

    *receiver.statuses.lock() = vec![410];
    rig.source.update(SET, "r0001.txt", "news");
    rig.source.notify_and_publish(SET).await.unwrap();
    let stopped = until(&rig, "stopped", |source, _| !source.attention.is_empty()).await;
    assert_eq!(stopped.attention[0].code, "hook-stopped");
    assert!(stopped.hooks[0].stopped && stopped.hooks[0].next_try_at.is_none());
    assert_eq!(stopped.hooks[0].position, Some(last));
    let requests = receiver.received().len();
    rig.source.update(SET, "r0002.txt", "more news");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(last, "r0002.txt").await;
    assert_eq!(receiver.received().len(), requests);
}
