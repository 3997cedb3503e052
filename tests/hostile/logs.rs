//! Untrusted input in the log: each kind of rejection is logged once, on one line of limited length.

use std::fs;
use std::time::Instant;

use resourcesync::Capability;
use resyncd::clock;
use resyncd_testkit::{Fault, SampleSource};
use websub::{Mode, Signature, SignatureMethod, Verification};

use crate::hostile::PROCESSOR;
use crate::support::process::{Home, Running, command};
use crate::support::{NAME, SET, client, resources, send, soon};

/// Text that would forge a log line, clear a terminal or reverse the direction of the text.
const HARMFUL: &str = "a\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{7}\u{0}\u{9b}31m\u{202e}txt\u{2028}\u{61c}\u{feff}";
/// A line is truncated at 4 KiB, with a mark at its end.
const LINE_LIMIT: usize = 4096 + 8;

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_rejected_input_is_logged_once_on_a_single_line() {
    let _permit = PROCESSOR.read().await;
    const TIMES: u64 = 20;
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "[limits]\nnotification = \"10KB\"");
    let path = home.folder().join("log");
    let file = fs::File::create(&path).unwrap();
    let daemon = Running::start(command(&home.config).env("RUST_LOG", "info").stderr(file));
    home.settled(&source).await;
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap();
    let to = soon("subscribed", hub.wait_for_subscription(topic.as_str())).await;

    let client = client();
    let begun = clock::now().mono;
    for _ in 0..TIMES {
        let post = || client.post(&to.callback);
        for (request, status) in [
            (post().body("unsigned"), 403),
            (post().header("X-Hub-Signature", "sha256=00"), 200),
            (post().body("x".repeat(10_001)), 413),
        ] {
            let answer = send(|| request.try_clone().unwrap()).await;
            assert_eq!(answer.status(), status);
        }
        let foreign = client.get(format!("http://{}/status", home.status));
        let foreign = foreign.header("Host", "evil.example");
        let foreign = send(|| foreign.try_clone().unwrap()).await;
        assert_eq!(foreign.status(), 403);
    }
    let minutes = minutes_since(begun);
    home.until("counted", |set| {
        let mut channels = set.channels.iter();
        channels.any(|channel| channel.rejected == 3 * TIMES)
    })
    .await;
    // The name of a root element and the reason of a denial can contain nearly any text.
    let list = "/set1/changelist.xml";
    let root = format!("<{}/>", "\u{9b}31m\u{202e}\u{61c}root".repeat(9));
    source.put_document(list, "application/xml", root);
    home.operator.poll(NAME).await;
    let error = |code: &'static str| {
        move |set: &resyncd::status::SetStatus| {
            set.error.as_ref().is_some_and(|error| error.code == code)
        }
    };
    home.until("the root is reported", error("wrong-root"))
        .await;
    source.remove_document(list);
    let away = format!("/{}", "long".repeat(1500));
    source.fail(list, Fault::Redirect(away), usize::MAX);
    home.operator.poll(NAME).await;
    home.until("the list is missing", error("not-found")).await;
    source.heal(list);
    let denial = Verification {
        mode: Mode::Denied,
        topic: to.topic.clone(),
        challenge: None,
        lease_seconds: None,
        reason: Some(HARMFUL.repeat(200)),
    };
    let url = format!("{}?{}", to.callback, denial.to_query());
    assert_eq!(send(|| client.get(&url)).await.status(), 200);
    home.until("denied", |set| {
        set.channels.iter().any(|channel| channel.state == "denied")
    })
    .await;
    let (_, status) = home.operator.get("/status").await;
    assert!(!status.chars().any(is_harmful), "{status}");
    assert_eq!(daemon.stop().await.code(), Some(0));

    let log = fs::read_to_string(&path).unwrap();
    for line in log.lines() {
        assert!(line.len() <= LINE_LIMIT, "{}: {line}", line.len());
        assert!(!line.chars().any(is_harmful), "{line:?}");
        let time: Option<&str> = line.split(' ').next();
        assert!(
            time.is_some_and(|time| time.len() > 20 && time.ends_with('Z')),
            "{line:?}"
        );
        assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{line:?}");
    }
    // A rejected request is logged again after a minute: on a busy machine they take longer.
    for (code, most) in [
        ("unsigned", 1 + minutes),
        ("wrong-signature", 1 + minutes),
        ("delivery-too-large", 1 + minutes),
        ("forbidden-host", 1 + minutes),
        ("wrong-root", 1),
        ("denied", 1),
    ] {
        let code = format!("code=\"{code}\"");
        let lines = log.lines().filter(|line| line.contains(&code)).count();
        assert!((1..=most).contains(&lines), "{code}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_failures_deliveries_and_denials_are_summarized() {
    let _permit = PROCESSOR.read().await;
    const MANY: usize = 300;
    const LOGGED: usize = 10;
    let source = SampleSource::start(resources(MANY)).await.unwrap();
    let resource = source.resource_uri(SET, "r0000.txt");
    let all = resource.path().replace("r0000.txt", "r*");
    source.fail(&all, Fault::Status(404), usize::MAX);
    let home = Home::new(&source.url(), "");
    let path = home.folder().join("log");
    let file = fs::File::create(&path).unwrap();
    let begun = clock::now().mono;
    let daemon = Running::start(command(&home.config).stderr(file));
    let failed = |set: &resyncd::status::SetStatus| set.failed == MANY as u64;
    home.until("every resource has failed", failed).await;
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap();
    let to = soon("subscribed", hub.wait_for_subscription(topic.as_str())).await;
    let secret = to.secret.clone().unwrap();
    let client = client();
    for number in 0..MANY {
        let body = format!("rubbish {number}");
        let signature =
            Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body.as_bytes());
        let delivery = client.post(&to.callback).body(body);
        let delivery = delivery.header("X-Hub-Signature", signature.to_string());
        let answer = send(|| delivery.try_clone().unwrap()).await;
        assert_eq!(answer.status(), 200);
    }
    home.until("every delivery is rejected", |set| {
        let mut channels = set.channels.iter();
        channels.any(|channel| channel.rejected == MANY as u64)
    })
    .await;
    let denial = Verification {
        mode: Mode::Denied,
        topic: to.topic.clone(),
        challenge: None,
        lease_seconds: None,
        reason: Some("no".to_owned()),
    };
    let url = format!("{}?{}", to.callback, denial.to_query());
    for _ in 0..MANY {
        assert_eq!(send(|| client.get(&url)).await.status(), 200);
    }
    assert_eq!(daemon.stop().await.code(), Some(0));
    // A window takes a minute. More of them may have begun meanwhile.
    let windows = 5_usize.max(1 + minutes_since(begun));

    let log = fs::read_to_string(&path).unwrap();
    for message in [
        "resource given up; trying again with growing pauses",
        "delivery rejected",
        "subscription denied by the hub",
    ] {
        let lines = || log.lines().filter(|line| line.contains(message));
        let (summaries, events): (Vec<&str>, Vec<&str>) =
            lines().partition(|line| line.contains("suppressed="));
        assert!(
            (LOGGED..=windows * LOGGED).contains(&events.len()),
            "{message}: {}",
            events.len()
        );
        let suppressed = summaries.iter().map(|line| number_in(line, "suppressed="));
        let counted = events.len() + suppressed.sum::<usize>();
        assert_eq!(counted, MANY, "{message}: {summaries:#?}");
        for line in lines() {
            assert!(line.contains(&format!("source=\"{NAME}\"")), "{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_notification_of_a_moment_is_no_warning_and_a_wrong_clock_is_logged_once() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let path = home.folder().join("log");
    let file = fs::File::create(&path).unwrap();
    let daemon = Running::start(command(&home.config).env("RUST_LOG", "info").stderr(file));
    home.settled(&source).await;
    // What is lost begins with this one: what happened before may have taken long.
    source.create(SET, "first.txt", "announced");
    source.notify_and_publish(SET).await.unwrap();
    source.create(SET, "lost.txt", "not announced");
    let lost = source.notify(SET);
    source.create(SET, "next.txt", "announced");
    source.notify_and_publish(SET).await.unwrap();
    home.until_mirrored(&source).await;
    drop(lost);
    // Its clock is days ahead of that of this machine.
    source.advance(std::time::Duration::from_secs(2 * 86_400));
    for number in 0..5 {
        source.create(SET, &format!("early-{number}.txt"), "from the future");
        source.notify_and_publish(SET).await.unwrap();
    }
    home.until_mirrored(&source).await;
    assert_eq!(daemon.stop().await.code(), Some(0));
    let log = fs::read_to_string(&path).unwrap();
    let lines = |message: &str| -> Vec<&str> {
        let lines = log.lines();
        lines.filter(|line| line.contains(message)).collect()
    };
    let gaps = lines("gap opened");
    assert!(
        gaps.iter().all(|line| line.contains("INFO")) && !gaps.is_empty(),
        "{gaps:?}"
    );
    let unusable = lines("interval unusable");
    assert_eq!(unusable.len(), 1, "{unusable:#?}");
}

/// How many whole minutes have passed.
fn minutes_since(begun: Instant) -> usize {
    let passed = clock::now().mono - begun;
    usize::try_from(passed.as_secs() / 60).unwrap()
}

/// The number after a text in a line.
fn number_in(line: &str, before: &str) -> usize {
    let after = line.split(before).nth(1).unwrap();
    let digits = after.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

fn is_harmful(character: char) -> bool {
    (character.is_control() && character != '\n')
        || matches!(character, '\u{202e}' | '\u{2028}' | '\u{61c}' | '\u{feff}')
}
