//! The traffic is reproducible and bounded.

use std::time::Duration;

use resourcesync::SourceTime;

use super::*;
use crate::{ChannelHub, SampleOptions};

/// Ends a test that would hang.
const LIMIT: Duration = Duration::from_secs(180);

async fn source() -> SampleSource {
    let options = SampleOptions {
        hub: ChannelHub::None,
        start: Some(SourceTime::from_micros(1_700_000_000_000_000)),
        ..SampleOptions::default()
    };
    SampleSource::start(options).await.unwrap()
}

async fn steps(traffic: &mut Traffic, steps: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for step in 0..steps {
        let events = traffic.step(1 + step % 3).await;
        lines.extend(events.iter().map(|event| format!("{event:?}")));
    }
    lines
}

#[tokio::test]
async fn the_same_seed_does_the_same() {
    let (one, other) = (source().await, source().await);
    let options = TrafficOptions {
        seed: 7,
        ..TrafficOptions::default()
    };
    let first = steps(&mut Traffic::new(one.clone(), options.clone()), 300).await;
    let second = steps(&mut Traffic::new(other.clone(), options), 300).await;
    assert_eq!(first, second);
    for word in ["Lost", "Doubled", "Reordered"] {
        assert!(first.iter().any(|line| line.contains(word)), "{word}");
    }
    let contents = |source: &SampleSource| source.state("set1").into_values().collect::<Vec<_>>();
    assert_eq!(contents(&one), contents(&other));
}

#[tokio::test]
async fn nothing_grows_without_bound() {
    let source = source().await;
    let options = TrafficOptions {
        names: 20,
        changes_per_list: 10,
        lists_retained: 2,
        ..TrafficOptions::default()
    };
    let mut traffic = Traffic::new(source.clone(), options);
    let lines = steps(&mut traffic, 100).await;
    assert!(lines.iter().any(|line| line.contains("dropped: 1")));
    assert!(source.state("set1").len() <= 20 + 3);
    let index = served(&source, "changelist.xml").await;
    assert_eq!(
        index.matches("<sitemap>").count(),
        3,
        "two closed and one open"
    );
}

async fn served(source: &SampleSource, file: &str) -> String {
    let client = crate::serving::client(LIMIT).unwrap();
    let answer = client.get(source.document_uri("set1", file)).send().await;
    answer.unwrap().text().await.unwrap()
}
