//! What strangers send ends up in the log: each kind of refusal once, on a line of its own that is not too long.

use std::fs;

use resyncd::demo::{Fault, SampleSource};
use resyncd::protocol::Capability;
use resyncd::protocol::websub::{Mode, Verification};

use crate::PROCESSOR;
use crate::process::{Home, Running, command};
use crate::support::{NAME, SET, client, resources, soon};

/// What would begin a line of its own, clear a terminal, or turn the direction of what is read.
const EVIL: &str = "a\r\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{7}\u{0}\u{9b}31m\u{202e}txt";
/// A line is cut at 4 KiB, and says so.
const LONGEST_LINE: usize = 4096 + 8;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_strangers_send_is_logged_once_on_a_line_of_its_own() {
    let _turn = PROCESSOR.read().await;
    const TIMES: u64 = 20;
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "[limits]\nnotification = \"10KB\"");
    let logged = home.folder().join("log");
    let file = fs::File::create(&logged).unwrap();
    let daemon = Running::start(command(&home.config).env("RUST_LOG", "info").stderr(file));
    home.settled(&source).await;
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let hub = source.hub().unwrap();
    let to = soon("subscribed", hub.wait_for_subscription(topic.as_str())).await;

    let client = client();
    for _ in 0..TIMES {
        let post = || client.post(&to.callback);
        for (request, status) in [
            (post().body("unsigned"), 403),
            (post().header("X-Hub-Signature", "sha256=00"), 200),
            (post().body("x".repeat(10_001)), 413),
        ] {
            assert_eq!(request.send().await.unwrap().status(), status);
        }
        let foreign = client.get(format!("http://{}/status", home.status));
        let foreign = foreign.header("Host", "evil.example").send().await;
        assert_eq!(foreign.unwrap().status(), 403);
    }
    home.until("counted", |set| {
        let mut channels = set.channels.iter();
        channels.any(|channel| channel.rejected == 3 * TIMES)
    })
    .await;
    // The name of a root element can be nearly anything, and a hub gives any reason.
    let list = "/set1/changelist.xml";
    let root = format!("<{}/>", "\u{9b}31m\u{202e}root".repeat(9));
    source.put_document(list, "application/xml", root);
    home.operator.poll(NAME).await;
    let error = |code: &'static str| {
        move |set: &resyncd::status::SetStatus| {
            set.error.as_ref().is_some_and(|error| error.code == code)
        }
    };
    home.until("the root is told", error("wrong-root")).await;
    source.remove_document(list);
    let away = format!("/{}", "long".repeat(1500));
    source.fail(list, Fault::Redirect(away), usize::MAX);
    home.operator.poll(NAME).await;
    home.until("it is not there", error("not-found")).await;
    source.heal(list);
    let denial = Verification {
        mode: Mode::Denied,
        topic: to.topic.clone(),
        challenge: None,
        lease_seconds: None,
        reason: Some(EVIL.repeat(200)),
    };
    let url = format!("{}?{}", to.callback, denial.to_query());
    assert_eq!(client.get(url).send().await.unwrap().status(), 200);
    home.until("denied", |set| {
        set.channels.iter().any(|channel| channel.state == "denied")
    })
    .await;
    let (_, status) = home.operator.get("/status").await;
    assert!(!status.chars().any(is_harmful), "{status}");
    assert_eq!(daemon.stop().await.code(), Some(0));

    let log = fs::read_to_string(&logged).unwrap();
    for line in log.lines() {
        assert!(line.len() <= LONGEST_LINE, "{}: {line}", line.len());
        assert!(!line.chars().any(is_harmful), "{line:?}");
        let time: Option<&str> = line.split(' ').next();
        assert!(
            time.is_some_and(|time| time.len() > 20 && time.ends_with('Z')),
            "{line:?}"
        );
        assert!(!line.starts_with("2026-01-01T00:00:00Z"), "{line:?}");
    }
    for code in [
        "unsigned",
        "wrong-signature",
        "delivery-too-large",
        "forbidden-host",
        "wrong-root",
        "denied",
    ] {
        let code = format!("code=\"{code}\"");
        let told = log.lines().filter(|line| line.contains(&code)).count();
        assert_eq!(told, 1, "{code}: {log}");
    }
}

fn is_harmful(character: char) -> bool {
    (character.is_control() && character != '\n') || character == '\u{202e}'
}
