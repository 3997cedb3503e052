//! A signed notification that is sent repeatedly.

use std::fs;

use futures_util::{StreamExt, stream};
use resourcesync::Capability;
use resyncd_testkit::{SampleSource, Subscription};
use websub::{Signature, SignatureMethod};

use crate::support::process::Home;
use crate::support::{Rig, SET, client, eventually, resources, send, soon};

const REPLAYS: usize = 10_000;

/// Sends one signed body repeatedly.
struct Replayer {
    client: reqwest::Client,
    callback: String,
    signature: String,
    body: Vec<u8>,
}

impl Replayer {
    fn new(to: &Subscription, body: &[u8]) -> Self {
        let secret = to.secret.as_ref().unwrap();
        Self {
            client: client(),
            callback: to.callback.clone(),
            signature: Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body)
                .to_string(),
            body: body.to_vec(),
        }
    }

    async fn send(&self) -> u16 {
        let request = self.client.post(&self.callback).body(self.body.clone());
        let request = request.header("X-Hub-Signature", &self.signature);
        let answer = send(|| request.try_clone().unwrap()).await;
        answer.status().as_u16()
    }

    /// Sends until it is accepted: a daemon on a busy machine may refuse some. Returns how often it was refused.
    async fn send_until_accepted(&self) -> u64 {
        let mut refused = 0;
        loop {
            match self.send().await {
                200 => return refused,
                408 | 503 => refused += 1,
                status => panic!("{status}"),
            }
        }
    }
}

async fn subscription(source: &SampleSource) -> Subscription {
    let topic = source.topic(SET, &Capability::ChangeNotification);
    let subscribed = source.hub().unwrap();
    soon(
        "subscribed",
        subscribed.wait_for_subscription(topic.as_str()),
    )
    .await
}

fn size_of_state(home: &Home) -> u64 {
    let files = fs::read_dir(home.folder().join("state")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_replays_have_one_effect() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let _daemon = home.run();
    home.settled(&source).await;
    let subscription = subscription(&source).await;
    source.freeze_change_list(SET, true);
    let since = home.operator.last_change().await;
    source.update(SET, "r0001.txt", "once");
    let replayer = Replayer::new(&subscription, &source.notify(SET).body);
    let refused_at_first = replayer.send_until_accepted().await;
    home.settled(&source).await;
    let fetched = source.hits("/set1/res/r0001.txt");
    let size = size_of_state(&home);

    let sending = stream::iter(0..REPLAYS).map(|_| replayer.send_until_accepted());
    let refused: Vec<u64> = sending.buffer_unordered(16).collect().await;
    let refused: u64 = refused_at_first + refused.iter().sum::<u64>();
    let growth = size_of_state(&home).saturating_sub(size);

    let set = home.until("the status", |_| true).await;
    let mut channels = set.channels.into_iter();
    let is_topic = |topic: &str| topic == subscription.topic;
    let channel = channels.find(|it| is_topic(&it.topic)).unwrap();
    let counts = (channel.received, channel.applied, channel.duplicate);
    assert_eq!(counts, (REPLAYS as u64 + 1, 1, REPLAYS as u64));
    assert!(
        channel.rejected <= refused,
        "{} of {refused}",
        channel.rejected
    );
    assert_eq!((channel.held, channel.gaps), (0, 0));
    assert_eq!(home.operator.changes(since).await.len(), 1);
    assert_eq!(source.hits("/set1/res/r0001.txt"), fetched);
    // The write-ahead log of the database has a few megabytes at most, and is reused.
    assert!(growth < 8 << 20, "{growth} bytes");
    source.update(SET, "r0002.txt", "after the flood");
    source.notify_and_publish(SET).await.unwrap();
    home.until_mirrored(&source).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replay_after_a_restart_is_a_duplicate() {
    let mut rig = Rig::start(resources(3)).await;
    // A poll would cover the notification before it is delivered.
    rig.idle().await;
    let replayer = {
        rig.source.update(SET, "r0001.txt", "once");
        Replayer::new(
            &subscription(&rig.source).await,
            &rig.source.notify(SET).body,
        )
    };
    assert_eq!(replayer.send().await, 200);
    rig.until_mirrored().await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    rig.settled().await;
    assert_eq!(replayer.send().await, 200);
    let channel = rig.channel().await;
    assert_eq!((channel.received, channel.duplicate), (2, 1));
    assert_eq!(rig.set().await.pending, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_replay_is_recognized_by_its_interval() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    rig.source.freeze_change_list(SET, true);
    let subscription = subscription(&rig.source).await;
    rig.source.update(SET, "r0001.txt", "old");
    let text = String::from_utf8(rig.source.notify(SET).body.to_vec()).unwrap();
    assert_eq!(
        Replayer::new(&subscription, text.as_bytes()).send().await,
        200
    );
    rig.until_holds("r0001.txt", "old").await;
    rig.source.update(SET, "r0001.txt", "new");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_holds("r0001.txt", "new").await;
    rig.until("nothing pending", |set| set.pending == 0).await;
    let since = rig.operator.last_change().await;
    let fetched = rig.source.hits("/set1/res/r0001.txt");
    // Other bytes, which are not stored as delivered.
    let same = format!("{text}\n");
    assert_eq!(
        Replayer::new(&subscription, same.as_bytes()).send().await,
        200
    );
    eventually("a duplicate", Some(rig.wakes()), async || {
        match rig.channel().await {
            channel if channel.duplicate == 1 => Ok(()),
            channel => Err(format!("{channel:?}")),
        }
    })
    .await;
    assert_eq!(rig.operator.last_change().await, since);
    assert_eq!(rig.source.hits("/set1/res/r0001.txt"), fetched);
    assert_eq!(rig.mirrored("r0001.txt").unwrap(), b"new");
}
