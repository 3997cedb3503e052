//! The log on standard error.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use resyncd_testkit::SampleSource;
use serde_json::Value;

use crate::support::process::{Home, Running, command};
use crate::support::{NAME, SET, eventually, resources};

fn lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    // The last line may not be complete yet.
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let lines = complete.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

async fn until_logged(log: &Path, message: &str) -> Value {
    eventually(message, None, async || {
        let lines = lines(log);
        let found = lines.iter().find(|line| line["message"] == message);
        found.cloned().ok_or_else(|| format!("{lines:#?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn configuration_states_the_level_of_the_log() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    for (level, expected) in [("warn", vec![]), ("debug", vec!["DEBUG", "INFO"])] {
        let home = Home::new(&source.url(), "");
        let mut config = OpenOptions::new().append(true).open(&home.config).unwrap();
        writeln!(config, "[log]\nformat = \"json\"\nlevel = \"{level}\"").unwrap();
        let log = home.folder().join("log");
        let mut command = command(&home.config);
        let file = File::create(&log).unwrap();
        let running = Running::start(command.env_remove("RUST_LOG").stderr(file));
        home.settled(&source).await;
        assert_eq!(running.stop().await.code(), Some(0));
        let lines = lines(&log);
        let mut levels: Vec<_> = lines
            .iter()
            .map(|line| line["level"].as_str().unwrap())
            .collect();
        levels.sort_unstable();
        levels.dedup();
        assert_eq!(levels, expected, "{lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_log_states_subscriptions_gaps_and_what_was_done() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mut config = OpenOptions::new().append(true).open(&home.config).unwrap();
    writeln!(config, "[log]\nformat = \"json\"").unwrap();
    let log = home.folder().join("log");
    let file = File::create(&log).unwrap();
    let running = Running::start(command(&home.config).env("RUST_LOG", "info").stderr(file));
    home.settled(&source).await;
    let active = until_logged(&log, "subscription active").await;
    assert_eq!(
        (&active["level"], &active["source"]),
        (&"INFO".into(), &NAME.into())
    );
    assert!(
        active["topic"]
            .as_str()
            .is_some_and(|topic| topic.starts_with("http://"))
    );

    // A poll that is due would fill the gap before it is noticed.
    home.idle(&source).await;
    source.create(SET, "lost.txt", "lost");
    source.notify(SET);
    source.create(SET, "next.txt", "next");
    source.notify_and_publish(SET).await.unwrap();
    let opened = until_logged(&log, "gap opened").await;
    let closed = until_logged(&log, "gap closed").await;
    for field in ["code", "source", "set", "from", "until"] {
        assert_eq!(opened[field], closed[field], "{field}");
        assert!(opened[field].is_string(), "{field}");
    }
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));

    let lines = lines(&log);
    let summaries = lines.iter().filter(|line| line["applied"].is_u64());
    let applied: u64 = summaries
        .map(|line| line["applied"].as_u64().unwrap())
        .sum();
    assert!(applied >= 5, "{applied}: {lines:#?}");
    let last = lines.last().unwrap();
    assert_eq!(last["message"], "stopped", "{lines:#?}");
}
