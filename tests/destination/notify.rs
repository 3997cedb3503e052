//! `[[notify]]`: people are told what waits for them, and that it is over.

use std::fs;
use std::path::Path;
use std::time::Duration;

use resyncd::config::{Notify, NotifyAction, NotifyFormat, PrivateUrl, WebhookSecret};
use rusqlite::Connection;
use serde_json::Value;

use super::hooks::Receiver;
use crate::support::{NAME, Rig, SET, eventually, resources};

fn notify(name: &str, on: &[&str], action: NotifyAction) -> Notify {
    Notify {
        name: name.to_owned(),
        on: on.iter().map(|&on| on.to_owned()).collect(),
        after: Duration::ZERO,
        repeat: None,
        action,
    }
}

/// Appends each message to a file, as a line.
fn append_to(file: &Path) -> NotifyAction {
    let arguments = ["-c", "cat >> \"$0\"", file.to_str().unwrap()];
    NotifyAction::Command {
        program: "/bin/sh".into(),
        arguments: arguments.map(str::to_owned).into(),
    }
}

/// The codes of each message: `+` what begins, `-` what is over.
fn codes<'a>(messages: impl Iterator<Item = &'a str>) -> Vec<String> {
    let of = |message: &str| {
        let message: Value = serde_json::from_str(message).unwrap();
        assert_eq!(message["type"], "resyncd.notification");
        let list = |sign: char, list: &str| {
            let things = message["data"][list].as_array().unwrap().clone();
            let code = move |thing: &Value| format!("{sign}{}", thing["code"].as_str().unwrap());
            things.iter().map(code).collect::<Vec<_>>()
        };
        [list('+', "began"), list('=', "lasting"), list('-', "ended")]
            .concat()
            .join(" ")
    };
    messages.map(of).collect()
}

/// Waits until the messages in a file are these.
async fn until_told(file: &Path, expected: &[&str]) {
    eventually("messages", None, async || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let found = codes(text.lines());
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

/// Has many deletions wait for approval.
async fn hold_deletions(rig: &Rig) {
    rig.idle().await;
    for number in 0..150 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("held back", |set| set.held_deletions == 150)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn held_deletions_are_told_once_and_so_is_their_end_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("messages");
    let (receiver, url) = Receiver::start(&[204]).await;
    let on = ["held-deletions", "recovered"];
    let request = NotifyAction::Request {
        url: PrivateUrl::new(url),
        format: NotifyFormat::Json,
        secret: Some(WebhookSecret::new("whsec_unused", vec![7; 32])),
    };
    let notifications = vec![
        notify("command", &on, append_to(&file)),
        notify("request", &on, request),
    ];
    let mut rig = Rig::start_with(resources(300), |config| config.notify = notifications).await;
    hold_deletions(&rig).await;
    until_told(&file, &["+held-deletions"]).await;
    let text = fs::read_to_string(&file).unwrap();
    let message: Value = serde_json::from_str(&text).unwrap();
    let thing = &message["data"]["began"][0];
    assert_eq!(thing["source"], NAME);
    assert!(
        thing["next_step"]
            .as_str()
            .unwrap()
            .contains("resyncd approve"),
        "{thing}"
    );

    // It counts as told once that is on disk, which is after the message was accepted.
    eventually("a record of both messages", None, async || {
        let database = Connection::open(rig.config.state_dir.join("resyncd.db")).unwrap();
        let sql = "SELECT count(*) FROM told WHERE told LIKE '%held-deletions%'";
        let recorded = database.query_row(sql, [], |row| row.get::<_, i64>(0));
        if recorded == Ok(2) {
            Ok(())
        } else {
            Err(format!("{recorded:?}"))
        }
    })
    .await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/approve")).await;
    assert_eq!(status, 202, "{body}");
    until_told(&file, &["+held-deletions", "-held-deletions"]).await;
    eventually("requests", None, async || {
        let received = receiver.received();
        let found = codes(received.iter().map(|request| request.body.as_str()));
        let is_signed = received
            .iter()
            .all(|it| it.header("webhook-signature").starts_with("v1,"));
        if found == ["+held-deletions", "-held-deletions"] && is_signed {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn url_is_pinged_while_there_is_nothing_to_tell() {
    let (receiver, url) = Receiver::start(&[204]).await;
    let mut of_user = url.clone();
    of_user.set_username("name").unwrap();
    of_user.set_password(Some("pass%20word")).unwrap();
    let ping = NotifyAction::Ping {
        url: PrivateUrl::new(of_user),
    };
    let notifications = vec![notify("ping", &["attention", "failing"], ping)];
    let rig = Rig::start_with(resources(3), |config| config.notify = notifications).await;
    rig.settled().await;
    let request = eventually("a ping", None, async || {
        receiver.received().pop().ok_or_else(String::new)
    })
    .await;
    assert_eq!(request.body, "");
    // `name:pass word`
    assert_eq!(
        request.header("authorization"),
        "Basic bmFtZTpwYXNzIHdvcmQ="
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_is_not_accepted_is_told_by_others_and_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("messages");
    let (receiver, url) = Receiver::start(&[500, 204]).await;
    let request = NotifyAction::Request {
        url: PrivateUrl::new(url),
        format: NotifyFormat::Json,
        secret: None,
    };
    let others = ["notify-failing", "recovered"];
    let notifications = vec![
        notify("request", &["held-deletions"], request),
        notify("command", &others, append_to(&file)),
    ];
    let rig = Rig::start_with(resources(300), |config| config.notify = notifications).await;
    hold_deletions(&rig).await;
    until_told(&file, &["+notify-failing", "-notify-failing"]).await;
    let received = receiver.received();
    let found = codes(received.iter().map(|request| request.body.as_str()));
    assert_eq!(found, ["+held-deletions", "+held-deletions"]);
}
