//! A process that ends between a rename and the commit of its record, and a Source that then reverts the change.

use std::sync::Arc;

use resyncd_testkit::{Fault, SampleSource};

use crate::hostile::traced::Traced;
use crate::support::process::Home;
use crate::support::{SET, eventually, resources};

const NAME: &str = "r0001.txt";
const PATH: &str = "/set1/res/r0001.txt";
/// Two versions of the same length.
const FORMER: &str = "former version";
const NEWER: &str = "newer version!";

/// Where the mirror has the resource.
fn mirrored(home: &Home, source: &SampleSource) -> std::path::PathBuf {
    let uri = source.resource_uri(SET, NAME).to_string();
    home.mirror.join(uri.trim_start_matches("http://"))
}

/// After the kill the file is the newer version, the record is that of the former one, and the task is pending.
#[tokio::test(flavor = "multi_thread")]
async fn update_that_the_source_reverts_after_a_kill_is_not_mistaken_for_the_former_version() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.update(SET, NAME, FORMER);
    source.refresh_resource_list(SET);
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.update(SET, NAME, NEWER);
    source.fail(PATH, Fault::Status(503), usize::MAX);
    source.notify_and_publish(SET).await.unwrap();
    // On a busy machine it may be given up before anybody looks.
    home.until("the task is not done", |set| set.pending + set.failed == 1)
        .await;
    running.kill();
    // What the rename has done before the kill.
    let file = mirrored(&home, &source);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), FORMER);
    std::fs::write(&file, NEWER).unwrap();
    source.update(SET, NAME, FORMER);
    source.heal(PATH);
    let running = home.run();
    home.until_status("the daemon runs", |_| true).await;
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), FORMER);
    assert_eq!(running.stop().await.code(), Some(0));
}

/// The resources of the cycle.
const NAMES: [&str; 3] = ["r0000.txt", "r0001.txt", "folder/r"];

/// Replaces each resource by its other version.
pub(crate) fn toggle(source: &SampleSource) {
    let state = source.state(SET);
    for name in NAMES {
        let is_newer = state[source.resource_uri(SET, name).as_str()] == NEWER.as_bytes();
        source.update(SET, name, if is_newer { FORMER } else { NEWER });
    }
}

/// A Source that updates its resources and then reverts them, and the home of a daemon that has a baseline. All versions have the same
/// length.
pub(crate) struct RevertingCycle {
    pub(crate) source: Arc<SampleSource>,
    pub(crate) home: Home,
}

impl RevertingCycle {
    pub(crate) async fn new() -> Self {
        let source = SampleSource::start(resources(2)).await.unwrap();
        source.create(SET, NAMES[2], FORMER);
        for name in &NAMES[..2] {
            source.update(SET, name, FORMER);
        }
        source.refresh_resource_list(SET);
        let home = Home::new(&source.url(), "");
        let running = home.run();
        home.settled(&source).await;
        assert_eq!(running.stop().await.code(), Some(0));
        Self {
            source: Arc::new(source),
            home,
        }
    }

    /// Updates the resources; when the daemon has applied that, or its fault has come, reverts them.
    pub(crate) async fn run(&self, traced: &Traced) {
        self.settled().await;
        for _ in 0..2 {
            toggle(&self.source);
            let notification = self.source.notify(SET);
            eventually("acknowledged", None, async || {
                let deliveries = self.source.publish(&notification).await.unwrap();
                let is_accepted = deliveries.iter().any(|it| it.is_accepted());
                is_accepted.then_some(()).ok_or(format!("{deliveries:?}"))
            })
            .await;
            eventually("applied, or failed", None, async || {
                if traced.has_hit() || self.is_settled().await {
                    return Ok(());
                }
                Err(format!("{} steps", traced.steps()))
            })
            .await;
        }
        self.settled().await;
    }

    async fn is_settled(&self) -> bool {
        let state = self.source.state(SET);
        let is_mirrored = |name: &&str| {
            let uri = self.source.resource_uri(SET, name).to_string();
            let file = self.home.mirror.join(uri.trim_start_matches("http://"));
            std::fs::read(file).is_ok_and(|bytes| bytes == state[&uri])
        };
        let set = self.home.set().await;
        set.is_some_and(|set| set.state == "in-sync" && set.pending == 0)
            && NAMES.iter().all(is_mirrored)
    }

    /// Waits until mirror and Source are equal and the set is in sync.
    pub(crate) async fn settled(&self) {
        eventually("settled", None, async || {
            self.is_settled()
                .await
                .then_some(())
                .ok_or(format!("{:#?}", self.home.set().await))
        })
        .await;
    }
}
