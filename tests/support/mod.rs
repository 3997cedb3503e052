//! Shared by the integration tests: a daemon that follows a sample Source on loopback, and functions that wait for its state.
//!
//! Nothing here sleeps for a fixed time: [`eventually`] repeats its check at every [`Wake`] of the daemon, and at a steady
//! interval, because not every change of state sends a wake.

mod addresses;
pub(crate) mod client_tls;
pub(crate) mod completeness;
mod examples;
mod exposition;
mod files;
mod lists;
mod operator;
pub(crate) mod process;
pub(crate) mod site;
pub(crate) mod socket_site;
mod webdriver;
#[allow(dead_code, reason = "the unit tests of XMPP use the rest")]
pub(crate) mod xmpp_end;

use std::fs::File;
use std::time::Duration;

pub(crate) use addresses::free_address;
use chrono::DateTime;
pub(crate) use client_tls::{CLIENT_CERTIFICATE, NAMING_AUTHORITY, asking_tls_server};
pub(crate) use examples::{Examples, KEYS, Way};
pub(crate) use exposition::Exposition;
pub(crate) use files::{Files, difference, expected_files, files, path_of};
pub(crate) use lists::{capability_list, change, change_list, change_list_index, put_zip};
pub(crate) use operator::{FeedLine, Operator, client, client_with, send};
use resourcesync::{Capability, SourceTime};
use resyncd::cli::Daemon;
use resyncd::clock;
use resyncd::config::{self, Config};
use resyncd::status::{ChannelStatus, SetStatus};
use resyncd::store::Wake;
use resyncd_core::TopicUri;
pub(crate) use resyncd_testkit::tls::{AUTHORITY, tls_server};
use resyncd_testkit::{ChannelHub, Hub, SampleOptions, SampleSource};
use tempfile::TempDir;
use tokio::sync::broadcast;
use url::Url;
pub(crate) use webdriver::Browser;

/// The limit of every wait for an event. It only ends a test that would hang: no test relies on the speed of the daemon. A
/// timeout that must not expire during a test has to be longer than this.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// The interval between two checks of a condition without a wake.
const CHECK_INTERVAL: Duration = Duration::from_millis(40);
/// The name of the set that most tests use.
pub(crate) const SET: &str = "set1";
/// The name of the Source in the configuration.
pub(crate) const NAME: &str = "sample";

/// Waits until `check` returns `Ok`, repeating it at every wake. Panics after [`LIMIT`] with the last `Err`.
pub(crate) async fn eventually<T, F>(
    what: &str,
    mut wakes: Option<broadcast::Receiver<Wake>>,
    mut check: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = clock::now().mono + LIMIT;
    loop {
        let found = check().await;
        let wrong = match found {
            Ok(found) => return found,
            Err(wrong) => wrong,
        };
        assert!(
            clock::now().mono < deadline,
            "{what}: not within {LIMIT:?}; last state: {wrong}"
        );
        let woken = async {
            match &mut wakes {
                Some(wakes) => drop(wakes.recv().await),
                None => std::future::pending().await,
            }
        };
        // A timeout is no error: the check is repeated either way.
        let _ = tokio::time::timeout(CHECK_INTERVAL, woken).await;
    }
}

/// Awaits a future; panics after [`LIMIT`].
pub(crate) async fn soon<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, awaited).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {LIMIT:?}"),
    }
}

/// Waits until the Source's hub has concluded its verifications: a channel is active before its hub has the subscription.
pub(crate) async fn until_verified(source: &SampleSource) {
    if let Some(hub) = source.hub() {
        soon("the hub is done", hub.wait_until_processed()).await;
    }
}

/// Whether no poll of a set is due. A subscription that is verified after the first poll began makes another one due.
pub(crate) fn has_no_poll_due(set: &SetStatus, followed: &config::Source) -> bool {
    let of_wall = |text: &Option<String>| {
        let text = text.as_deref()?;
        DateTime::parse_from_rfc3339(text).ok()
    };
    let (Some(last), Some(next)) = (of_wall(&set.last_poll_at), of_wall(&set.next_poll_at)) else {
        return false;
    };
    let verified = set
        .channels
        .iter()
        .map(|channel| of_wall(&channel.lease_expires_at).map(|expires| expires - followed.lease));
    // Published at the end of a poll.
    last + followed.poll_interval <= next && verified.flatten().all(|verified| verified <= last)
}

/// Whether a poll of a set has begun after a status of it, and has ended; no other one is due.
pub(crate) fn was_polled_since(
    before: &SetStatus,
    set: &SetStatus,
    followed: &config::Source,
) -> bool {
    set.last_poll_at != before.last_poll_at && has_no_poll_due(set, followed)
}

/// Parses a time of the Source as the status and the feed write it.
pub(crate) fn time(text: impl AsRef<str>) -> SourceTime {
    text.as_ref().parse().unwrap()
}

/// Options of a sample Source with this number of resources.
pub(crate) fn resources(resources_per_set: usize) -> SampleOptions {
    SampleOptions {
        resources_per_set,
        ..SampleOptions::default()
    }
}

/// Options of a site that has nothing but the pages that a test puts there.
pub(crate) fn only_pages() -> SampleOptions {
    SampleOptions {
        sets: Vec::new(),
        hub: ChannelHub::None,
        ..SampleOptions::default()
    }
}

/// A sample Source and a daemon that follows it, in this process.
pub(crate) struct Rig {
    pub(crate) source: SampleSource,
    pub(crate) config: Config,
    pub(crate) folder: TempDir,
    pub(crate) operator: Operator,
    /// The sets that the mirror must contain.
    pub(crate) sets: Vec<String>,
    daemon: Option<Daemon>,
}

impl Rig {
    /// Starts both. The configuration has the defaults, but a short reorder window.
    pub(crate) async fn start(options: SampleOptions) -> Self {
        Self::start_with(options, |_| {}).await
    }

    /// The same; `change` may alter the configuration.
    pub(crate) async fn start_with(
        options: SampleOptions,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let sets = options.sets.clone();
        let source = SampleSource::start(options).await.unwrap();
        let mut rig = Self::follow(source, change).await;
        rig.sets = sets;
        rig
    }

    /// Starts a daemon that follows a running Source.
    pub(crate) async fn follow(source: SampleSource, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = configuration(&folder, source.base());
        change(&mut config);
        let mut rig = Self {
            source,
            operator: Operator::new(config.status.listen),
            config,
            folder,
            sets: vec![SET.to_owned()],
            daemon: None,
        };
        rig.start_daemon().await;
        rig
    }

    pub(crate) async fn start_daemon(&mut self) {
        let daemon = Daemon::start(self.config.clone()).await.unwrap();
        self.daemon = Some(daemon);
    }

    pub(crate) async fn stop_daemon(&mut self) {
        stop(self.daemon.take().unwrap(), &self.config).await;
    }

    pub(crate) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub(crate) fn hub(&self) -> &Hub {
        self.source.hub().unwrap()
    }

    pub(crate) fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.daemon().store.wakes()
    }

    /// The topic of the change notification channel.
    pub(crate) fn changes(&self) -> TopicUri {
        self.source.topic(SET, &Capability::ChangeNotification)
    }

    /// The topic of the framework notification channel.
    pub(crate) fn framework(&self) -> TopicUri {
        self.source.topic(SET, &Capability::FrameworkNotification)
    }

    /// The URI of a resource of the set.
    pub(crate) fn uri(&self, name: &str) -> String {
        self.source.resource_uri(SET, name).to_string()
    }

    /// The status of the set.
    pub(crate) async fn set(&self) -> SetStatus {
        self.set_named(SET).await.unwrap()
    }

    pub(crate) async fn set_named(&self, name: &str) -> Option<SetStatus> {
        let list = format!("{}{name}/capabilitylist.xml", self.source.base());
        let status = self.operator.status().await;
        let mut sets = status.sources.into_iter().flat_map(|source| source.sets);
        sets.find(|set| set.capability_list == list)
    }

    /// The status of the change notification channel.
    pub(crate) async fn channel(&self) -> ChannelStatus {
        let set = self.set().await;
        let mut channels = set.channels.into_iter();
        channels
            .find(|channel| channel.kind == "change-notification")
            .unwrap()
    }

    /// Waits until the status of a set satisfies `wanted`.
    pub(crate) async fn until_named(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&SetStatus) -> bool,
    ) -> SetStatus {
        eventually(what, Some(self.wakes()), async || {
            match self.set_named(name).await {
                Some(set) if wanted(&set) => Ok(set),
                set => Err(format!("{set:#?}")),
            }
        })
        .await
    }

    /// Waits until the status of the set satisfies `wanted`.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        self.until_named(SET, what, wanted).await
    }

    /// Waits until the set is in sync, every channel is active, and the mirror equals the Source.
    pub(crate) async fn settled(&self) -> SetStatus {
        self.until("in sync, every channel active", |set| {
            set.state == "in-sync" && set.channels.iter().all(|channel| channel.state == "active")
        })
        .await;
        until_verified(&self.source).await;
        self.until_mirrored().await;
        // A file is in place before it is recorded.
        self.until("everything is recorded", |set| {
            set.state == "in-sync" && set.pending == 0
        })
        .await
    }

    /// The same; then waits until no poll is due, so that tests can compare the requests for documents.
    pub(crate) async fn idle(&self) -> SetStatus {
        self.settled().await;
        self.until("no poll is due", |set| {
            has_no_poll_due(set, &self.config.sources[0])
        })
        .await
    }

    /// Waits until the mirror equals the Source, byte by byte, without additional files.
    pub(crate) async fn until_mirrored(&self) {
        let mirror = &self.config.sources[0].mirror;
        eventually(
            "the mirror equals the Source",
            Some(self.wakes()),
            async || {
                let (expected, found) = (expected_files(&self.source, &self.sets), files(mirror));
                if expected == found {
                    Ok(())
                } else {
                    Err(difference(&expected, &found))
                }
            },
        )
        .await;
        self.assert_mirrored();
    }

    /// Asserts that the mirror equals the Source at this moment.
    #[track_caller]
    pub(crate) fn assert_mirrored(&self) {
        let (expected, found) = (
            expected_files(&self.source, &self.sets),
            files(&self.config.sources[0].mirror),
        );
        assert_eq!(difference(&expected, &found), "");
    }

    /// The bytes of a resource in the mirror; `None` if there is no such file.
    pub(crate) fn mirrored(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.config.sources[0]
            .mirror
            .join(path_of(&self.source.resource_uri(SET, name)));
        std::fs::read(path).ok()
    }

    /// Waits until a resource in the mirror has these bytes.
    pub(crate) async fn until_holds(&self, name: &str, bytes: &str) {
        let what = format!("{name} holds {bytes:?}");
        eventually(&what, Some(self.wakes()), async || {
            let found = self.mirrored(name);
            if found.as_deref() == Some(bytes.as_bytes()) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    }

    /// Waits until the feed has a line of a resource with a number above `since`.
    pub(crate) async fn until_in_feed(&self, since: i64, name: &str) -> FeedLine {
        let (uri, what) = (self.uri(name), format!("the feed has a line of {name}"));
        eventually(&what, Some(self.wakes()), async || {
            let lines = self.operator.changes(since).await;
            let found = lines.iter().find(|line| line.uri == uri).cloned();
            found.ok_or(format!("{lines:#?}"))
        })
        .await
    }
}

/// Stops a daemon.
async fn stop(daemon: Daemon, config: &Config) {
    soon("the daemon stops", daemon.stop()).await;
    // A query that is still running releases the database a moment later.
    let lock = File::open(config.state_dir.join("resyncd.lock")).unwrap();
    eventually("the state directory is unlocked", None, async || {
        lock.try_lock().map_err(|error| error.to_string())?;
        // Closing it does not unlock it as long as a process that is just being started has it, too.
        lock.unlock().map_err(|error| error.to_string())
    })
    .await;
}

/// A daemon that follows the Source at any URL.
pub(crate) struct Destination {
    pub(crate) config: Config,
    pub(crate) operator: Operator,
    daemon: Option<Daemon>,
    /// Removed when the daemon has been dropped.
    _folder: TempDir,
}

impl Destination {
    /// Starts with the configuration of [`Rig`]; `change` may alter it.
    pub(crate) async fn start(url: Url, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = configuration(&folder, url);
        change(&mut config);
        let daemon = Daemon::start(config.clone()).await.unwrap();
        Self {
            config,
            operator: Operator::new(daemon.status),
            daemon: Some(daemon),
            _folder: folder,
        }
    }

    pub(crate) async fn stop(&mut self) {
        stop(self.daemon.take().unwrap(), &self.config).await;
    }

    /// Where it publishes; `None`: it does not.
    pub(crate) fn published(&self) -> Option<Url> {
        let address = self.daemon.as_ref().and_then(|daemon| daemon.publish)?;
        Url::parse(&format!("http://{address}/")).ok()
    }

    pub(crate) async fn start_again(&mut self) {
        let daemon = Daemon::start(self.config.clone()).await.unwrap();
        self.daemon = Some(daemon);
    }

    pub(crate) fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.daemon.as_ref().unwrap().store.wakes()
    }

    /// Waits until the status of the first set satisfies a condition.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        eventually(what, Some(self.wakes()), async || {
            let sources = self.operator.status().await.sources;
            let set = sources.iter().flat_map(|source| &source.sets).next();
            match set {
                Some(set) if wanted(set) => Ok(set.clone()),
                _ => Err(format!("{sources:#?}")),
            }
        })
        .await
    }

    /// Waits until the mirror has exactly these files, of the paths of one host.
    pub(crate) async fn until_mirrored(&self, host: &str, expected: &[(&str, &str)]) {
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(path, text)| (format!("{host}{path}"), (*text).to_owned()))
            .collect();
        let mirror = &self.config.sources[0].mirror;
        eventually("mirrored", Some(self.wakes()), async || {
            let found = files(mirror).into_iter();
            let found: Vec<(String, String)> = found
                .map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned()))
                .collect();
            if found == expected {
                Ok(())
            } else {
                Err(format!("{found:?} {:#?}", self.operator.status().await))
            }
        })
        .await;
    }
}

fn configuration(folder: &TempDir, source: Url) -> Config {
    let mut followed = config::Source::new(NAME, source, folder.path().join("mirror"));
    followed.reorder_window = Duration::from_millis(300);
    let mut config = Config::new(folder.path().join("state"), vec![followed]);
    let (callback, status) = (free_address(), free_address());
    config.callback.listen = callback;
    config.callback.public_url = Url::parse(&format!("http://{callback}/hooks/")).ok();
    config.status.listen = status;
    config.http.allow_private_addresses = true;
    config
}
