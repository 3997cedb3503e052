//! The worker of one hook: reads what the feed has for it, and runs its program or sends its request until that is accepted.
//!
//! Invariants: the position moves when everything up to it was accepted, and is stored then; what was not accepted is stated again. One
//! run or request at a time. Nothing waits for a hook: it reads the feed, and writes its own row, as any reader would.
//!
//! Must not know how other hooks are.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use resyncd_fetch::{Bounds, Client, FeedNews, FetchError, WebhookReceiver, WebhookRequest, pause};
use resyncd_mirror::MirrorPlace;
use tempfile::TempDir;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::command::{CommandError, CommandRun, run_command};
use super::copies::copy_files;
use super::delivery::{DeliveryError, accepted};
use crate::clock;
use crate::config::{Hook, HookAction};
use crate::engine::heartbeats::Heartbeats;
use crate::engine::runtime_status::{HookFacts, RuntimeStatus};
use crate::engine::store_retries::rest_unless_stopped;
use crate::status::{StatusError, rfc3339};
use crate::store::{FeedEntry, Store, StoreError, Wake};

/// The pauses between two tries.
const PAUSES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(15 * 60),
};
/// How long news are gathered: changes come in groups, and each run of a program costs a process.
const GATHERING: Duration = Duration::from_secs(1);
/// How many bytes of lines a run gets at most, but one line at least.
const MOST_BYTES: usize = 4 << 20;
/// How far a position moves over the changes of other Sources before it is stored without having been accepted, and for how long.
const UNSTORED_NUMBERS: i64 = 1000;
const UNSTORED_TIME: Duration = Duration::from_secs(3600);
/// The code of the notice that entries of the feed were removed before a hook has accepted them.
const MISSED: &str = "hook-missed-changes";

/// A hook of a Source.
#[derive(Clone, Debug)]
pub(super) struct HookTarget {
    /// The label of the Source.
    pub(super) source: String,
    /// Where its files are.
    pub(super) mirror: MirrorPlace,
    pub(super) hook: Hook,
}

/// What all hooks work with.
#[derive(Clone)]
pub(crate) struct HookHandles {
    pub(crate) store: Arc<Store>,
    pub(crate) client: Client,
    pub(crate) runtime_status: Arc<RuntimeStatus>,
    pub(crate) heartbeats: Heartbeats,
}

/// What a hook is to accept at once.
struct HookBatch {
    /// The number of the last change.
    seq: i64,
    /// The lines for a program, and the files that they name.
    lines: String,
    files: Vec<String>,
    /// The number up to which it has everything.
    until: i64,
    /// Whether there is more than one run gets.
    is_full: bool,
}

impl HookBatch {
    /// As many of the first entries as a run gets, and at least one; `None`: there are none. `until`: the number up to which there are no
    /// others, `most`: how many a run gets.
    fn of_lines(entries: &[FeedEntry], feed: &str, until: i64, most: usize) -> Option<Self> {
        let (mut lines, mut files) = (String::new(), Vec::new());
        let mut seq = None;
        for entry in entries {
            let line = entry.to_line(feed);
            if seq.is_some() && lines.len() + line.len() >= MOST_BYTES {
                return seq.map(|seq| Self {
                    seq,
                    lines,
                    files,
                    until: seq,
                    is_full: true,
                });
            }
            lines.push_str(&line);
            lines.push('\n');
            // What has no length was removed.
            files.extend(entry.path.clone().filter(|_| entry.length.is_some()));
            seq = Some(entry.seq);
        }
        let is_full = entries.len() >= most;
        seq.map(|seq| Self {
            seq,
            lines,
            files,
            until,
            is_full,
        })
    }
}

/// How far a hook has come.
struct HookPosition {
    /// The number of the feed up to which it has accepted everything.
    accepted: i64,
    stored: i64,
    stored_at: Instant,
    /// Whether entries were removed before it has accepted them, until it has accepted what follows.
    has_missed: bool,
}

pub(super) struct HookWorker {
    pub(super) target: Arc<HookTarget>,
    pub(super) handles: HookHandles,
    pub(super) stop: CancellationToken,
    /// Of a web hook, once something was sent.
    receiver: OnceLock<WebhookReceiver>,
}

impl HookWorker {
    pub(super) fn new(
        target: Arc<HookTarget>,
        handles: HookHandles,
        stop: CancellationToken,
    ) -> Self {
        Self {
            target,
            handles,
            stop,
            receiver: OnceLock::new(),
        }
    }

    /// Works until the hook is stopped, or its receiver wants no more.
    pub(super) async fn run(self) {
        let Some(mut position) = self.begin().await else {
            return;
        };
        self.follow(&mut position).await;
        if position.stored != position.accepted && !position.has_missed {
            self.store(&mut position).await;
        }
    }

    /// Reads the stored position, until that succeeds; `None`: the hook is stopped.
    async fn begin(&self) -> Option<HookPosition> {
        let HookTarget { source, hook, .. } = &*self.target;
        loop {
            match self.handles.store.begin_hook(source, &hook.name).await {
                Ok(begin) => {
                    if begin.has_missed {
                        self.report_missed();
                    }
                    self.note(|facts| facts.status.position = Some(begin.position));
                    return Some(HookPosition {
                        accepted: begin.position,
                        stored: begin.position,
                        stored_at: clock::now().mono,
                        has_missed: begin.has_missed,
                    });
                }
                Err(error) => self.note_store_error(&error),
            }
            if !rest_unless_stopped(&self.stop).await {
                return None;
            }
        }
    }

    async fn follow(&self, position: &mut HookPosition) {
        let store = &self.handles.store;
        let mut wakes = store.wakes();
        let (mut failures, mut has_gathered) = (0_u32, false);
        while !self.stop.is_cancelled() {
            let batch = match self.next(position).await {
                Ok(Some(batch)) => batch,
                Ok(None) => {
                    self.store_if_due(position).await;
                    let since = position.accepted;
                    let is_news = |wake: &Wake| matches!(wake, Wake::Feed(seq) if *seq > since);
                    let news = Wake::until(&mut wakes, is_news);
                    // The result is the stop.
                    let _ = self.stop.run_until_cancelled(news).await;
                    continue;
                }
                Err(StoreError::FeedTrimmed { oldest }) => {
                    self.report_missed();
                    (position.accepted, position.has_missed) = (oldest, true);
                    continue;
                }
                Err(error) => {
                    self.note_store_error(&error);
                    rest_unless_stopped(&self.stop).await;
                    continue;
                }
            };
            if !batch.is_full && !has_gathered && failures == 0 {
                has_gathered = true;
                self.pause(GATHERING).await;
                continue;
            }
            has_gathered = false;
            self.note(|facts| facts.status.running = true);
            let delivered = self.deliver(&batch, position).await;
            self.note(|facts| facts.status.running = false);
            match delivered {
                Ok(()) => {
                    failures = 0;
                    (position.accepted, position.has_missed) = (batch.until, false);
                    self.note_accepted(position.accepted);
                    self.store(position).await;
                }
                Err(DeliveryError::Command(CommandError::Stopped)) => return,
                Err(error @ DeliveryError::Gone) => {
                    self.note_failure(&error, None);
                    self.stop.cancelled().await;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let pause = pause(failures, error.retry_after(), &PAUSES);
                    let pause = pause.unwrap_or(PAUSES.longest);
                    self.note_failure(&error, Some(pause));
                    self.pause(pause).await;
                }
            }
        }
    }

    /// What the hook is to get next; `None`: there is nothing. The position moves over the changes of other Sources.
    async fn next(&self, position: &mut HookPosition) -> Result<Option<HookBatch>, StoreError> {
        let HookTarget { source, hook, .. } = &*self.target;
        let is_webhook = matches!(hook.action, HookAction::Webhook { .. });
        let mut since = position.accepted;
        let mut last = None;
        loop {
            let store = &self.handles.store;
            let news = store.hook_news(source, since, hook.lines).await?;
            let has_more = news.until < news.end;
            if news.entries.is_empty() && last.is_none() {
                position.accepted = news.until;
                self.note(|facts| facts.status.position = Some(news.until));
            }
            if !is_webhook && !news.entries.is_empty() {
                let (feed, most) = (store.feed_id(), hook.lines);
                return Ok(HookBatch::of_lines(&news.entries, feed, news.until, most));
            }
            // A request announces the last one only.
            last = news.entries.last().map(|entry| entry.seq).or(last);
            since = news.until;
            if !has_more || self.stop.is_cancelled() {
                return Ok(last.map(|seq| HookBatch {
                    seq,
                    lines: String::new(),
                    files: Vec::new(),
                    until: since,
                    is_full: false,
                }));
            }
        }
    }

    /// Has the hook accept a batch. The position up to which it has is that of the batch afterwards.
    async fn deliver(
        &self,
        batch: &HookBatch,
        position: &HookPosition,
    ) -> Result<(), DeliveryError> {
        match &self.target.hook.action {
            HookAction::Command { program, arguments } => {
                self.run_program(program, arguments, batch, position).await
            }
            HookAction::Webhook { url, secret } => {
                let HookTarget { source, hook, .. } = &*self.target;
                let news = FeedNews {
                    feed: self.handles.store.feed_id(),
                    source,
                    hook: &hook.name,
                    seq: batch.seq,
                    has_missed: position.has_missed,
                };
                let request = WebhookRequest::of_news(&news, secret.bytes(), clock::now().wall);
                let receiver = self.receiver(url)?;
                // It has its time. What is left of it then hangs.
                let (begun, timeout) = (clock::now().mono, hook.timeout);
                let name = format!("hook {} (Source {source})", hook.name);
                let _work = self.handles.heartbeats.work(name, move || {
                    let passed = clock::now().mono.saturating_duration_since(begun);
                    (passed > timeout).then_some(0)
                });
                let sending = accepted(hook.timeout, receiver.send(&request));
                let sent = self.stop.run_until_cancelled(sending).await;
                sent.unwrap_or(Err(CommandError::Stopped.into()))
            }
        }
    }

    /// The receiver of the requests, with the connections to it.
    fn receiver(&self, url: &Url) -> Result<&WebhookReceiver, FetchError> {
        if let Some(receiver) = self.receiver.get() {
            return Ok(receiver);
        }
        let timeout = self.target.hook.timeout;
        let receiver = self.handles.client.webhook_receiver(url, timeout)?;
        Ok(self.receiver.get_or_init(|| receiver))
    }

    async fn run_program(
        &self,
        program: &Path,
        arguments: &[String],
        batch: &HookBatch,
        position: &HookPosition,
    ) -> Result<(), DeliveryError> {
        let HookTarget {
            source,
            mirror,
            hook,
        } = &*self.target;
        let feed = self.handles.store.feed_id();
        // It is removed after the run.
        let mut copied = None;
        if hook.files && mirror.objects().is_some() {
            let copying = copy_files(mirror.clone(), batch.files.clone());
            let copies = self.stop.run_until_cancelled(copying).await;
            copied = Some(copies.unwrap_or(Err(CommandError::Stopped.into()))?);
        }
        let mirror = copied.as_ref().map_or(&**mirror, TempDir::path);
        let mut variables = vec![
            ("RESYNCD_SOURCE", source.into()),
            ("RESYNCD_HOOK", hook.name.clone().into()),
            ("RESYNCD_MIRROR", mirror.into()),
            ("RESYNCD_FEED", feed.into()),
            ("RESYNCD_SINCE", position.accepted.to_string().into()),
        ];
        if position.has_missed {
            variables.push(("RESYNCD_MISSED", "1".into()));
        }
        let run = CommandRun {
            program,
            arguments,
            variables,
            input: batch.lines.as_bytes(),
            timeout: hook.timeout,
        };
        Ok(run_command(&run, &self.stop).await?)
    }

    fn note(&self, change: impl FnOnce(&mut HookFacts)) {
        let HookTarget { source, hook, .. } = &*self.target;
        let runtime_status = &self.handles.runtime_status;
        runtime_status.note_hook(source, &hook.name, change);
    }

    fn note_accepted(&self, position: i64) {
        let mut failed_since = None;
        self.note(
            |HookFacts {
                 status, failures, ..
             }| {
                status.position = Some(position);
                status.accepted += 1;
                status.last_accepted_at = Some(rfc3339(clock::now().wall));
                *failures = 0;
                status.error = None;
                status.next_try_at = None;
                failed_since = status.failing_since.take();
            },
        );
        if failed_since.is_some() {
            let HookTarget { source, hook, .. } = &*self.target;
            tracing::info!(source, hook = hook.name, position, "hook succeeds again");
        }
    }

    /// Records and logs why something was not accepted. `pause`: until the next try; `None`: there is none.
    fn note_failure(&self, error: &DeliveryError, pause: Option<Duration>) {
        let now = clock::now().wall;
        let next = pause.and_then(|pause| TimeDelta::from_std(pause).ok());
        let next = next.and_then(|pause| now.checked_add_signed(pause));
        let status_error = StatusError::new(error.code(), error.to_string(), now);
        self.note(
            |HookFacts {
                 status, failures, ..
             }| {
                status.failed += 1;
                *failures = failures.saturating_add(1);
                status.failing_since.get_or_insert_with(|| rfc3339(now));
                status.error = Some(status_error.clone());
                status.next_try_at = next.map(rfc3339);
                status.stopped = pause.is_none();
            },
        );
        let HookTarget { source, hook, .. } = &*self.target;
        let (code, reason) = (error.code(), &status_error.message);
        let seconds = pause.map(|pause| pause.as_secs_f32());
        tracing::warn!(
            code,
            source,
            hook = hook.name,
            reason,
            seconds,
            "hook failed"
        );
    }

    fn report_missed(&self) {
        let HookTarget { source, hook, .. } = &*self.target;
        let message = format!(
            "entries of the feed were removed before the hook {} has accepted them: it goes on with the oldest that there is, and its \
             receiver must begin anew",
            hook.name
        );
        tracing::warn!(code = MISSED, source, hook = hook.name, "{message}");
        let notice = StatusError::new(MISSED, message, clock::now().wall);
        self.note(|facts| facts.missed = Some(notice));
    }

    fn note_store_error(&self, error: &StoreError) {
        // What the workers read and write fails as well, and is reported.
        let HookTarget { source, hook, .. } = &*self.target;
        self.handles.store.note_unreadable(source, error);
        tracing::debug!(code = error.code(), source, hook = hook.name, %error, "database error; retrying");
    }

    /// Stores the position, if what it has moved over is worth it.
    async fn store_if_due(&self, position: &mut HookPosition) {
        let age = clock::now()
            .mono
            .saturating_duration_since(position.stored_at);
        let moved = position.accepted - position.stored;
        // The receiver is to learn that it has missed entries, also after a restart: the stored position shows that.
        if position.has_missed {
            return;
        }
        if moved >= UNSTORED_NUMBERS || (moved != 0 && age >= UNSTORED_TIME) {
            self.store(position).await;
        }
    }

    /// Stores the position. If that fails it is stored with the next one: until then it counts in this process only.
    async fn store(&self, position: &mut HookPosition) {
        let HookTarget { source, hook, .. } = &*self.target;
        let store = &self.handles.store;
        match store.note_hook(source, &hook.name, position.accepted).await {
            Ok(()) => {
                position.stored = position.accepted;
                position.stored_at = clock::now().mono;
            }
            Err(error) => self.note_store_error(&error),
        }
    }

    /// Waits, until the hook is stopped at most.
    async fn pause(&self, pause: Duration) {
        let _ = self.stop.run_until_cancelled(sleep(pause)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use chrono::DateTime;

    use super::*;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::tests::database::TestDatabase;

    /// Ends a test that would hang.
    const LONG: Duration = Duration::from_secs(180);

    fn entry(seq: i64, uri: &str) -> FeedEntry {
        FeedEntry {
            seq,
            applied_at: DateTime::UNIX_EPOCH,
            source: "example".to_owned(),
            set: "set".to_owned(),
            uri: uri.to_owned(),
            change: "updated".to_owned(),
            path: None,
            length: None,
            changed_at: None,
            origin: "change-list".to_owned(),
            links: Vec::new(),
            are_links_left_out: false,
            is_patched: false,
        }
    }

    #[test]
    fn batch_of_lines_is_bounded_in_number_and_bytes() {
        let check = |entries: &[FeedEntry], expected: Option<(usize, i64, bool)>| {
            let batch = HookBatch::of_lines(entries, "feed", 9, 3);
            let found = batch.map(|it| (it.lines.lines().count(), it.until, it.is_full));
            assert_eq!(found, expected);
        };
        check(&[], None);
        check(&[entry(1, "a"), entry(2, "b")], Some((2, 9, false)));
        let full = [entry(1, "a"), entry(2, "b"), entry(3, "c")];
        check(&full, Some((3, 9, true)));
        // One is always among them.
        let long = "x".repeat(MOST_BYTES);
        check(&[entry(1, &long), entry(2, "b")], Some((1, 1, true)));
        check(&[entry(1, "a"), entry(2, &long)], Some((1, 1, true)));
    }

    /// Adds entries to the feed of a database that is not open, which were applied so many days ago.
    fn feed(folder: &Path, ages: &[i64]) {
        let now = clock::now().wall;
        let times = ages.iter().map(|&age| now - TimeDelta::days(age));
        TestDatabase::open(folder).add_feed_entries(NAME, times);
    }

    /// Runs a hook until its stored position is that one.
    async fn run_until(store: &Arc<Store>, hook: &Hook, position: i64) -> HookFacts {
        let source = TestSource::new(&Url::parse("http://a.example/").unwrap(), |client| client);
        let handles = HookHandles {
            store: Arc::clone(store),
            client: source.context.client.clone(),
            runtime_status: Arc::clone(&source.context.runtime_status),
            heartbeats: Heartbeats::default(),
        };
        let target = HookTarget {
            source: NAME.to_owned(),
            mirror: source.mirror.root().into(),
            hook: hook.clone(),
        };
        let stop = CancellationToken::new();
        let worker = HookWorker::new(Arc::new(target), handles, stop.clone());
        let stopping = async {
            while store.begin_hook(NAME, &hook.name).await.unwrap().position != position
                || source.context.runtime_status.hooks(NAME)[0].status.accepted == 0
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            stop.cancel();
        };
        let both = async { tokio::join!(worker.run(), stopping) };
        tokio::time::timeout(LONG, both).await.unwrap();
        let mut hooks = source.context.runtime_status.hooks(NAME);
        hooks.remove(0)
    }

    #[tokio::test]
    async fn program_gets_a_sign_of_missed_entries_until_it_has_accepted_what_follows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs");
        // It fails once.
        let script =
            "echo \"missed=$RESYNCD_MISSED since=$RESYNCD_SINCE lines=$(grep -c .)\" >> \"$0\"
            test -e \"$0.failed\" || { : > \"$0.failed\"; exit 1; }";
        let action = HookAction::Command {
            program: "/bin/sh".into(),
            arguments: ["-c", script, file.to_str().unwrap()]
                .map(str::to_owned)
                .into(),
        };
        let hook = Hook::new("index", action);
        drop(Store::open(folder.path()).unwrap());
        feed(folder.path(), &[200, 100, 1, 1]);
        let store = Store::open(folder.path()).unwrap();
        store.note_hook(NAME, &hook.name, 1).await.unwrap();
        let before = clock::now().wall - TimeDelta::days(90);
        while store.trim_feed(before).await.unwrap() {}
        let facts = run_until(&store, &hook, 4).await;
        assert_eq!(
            facts.missed.map(|notice| notice.code).as_deref(),
            Some(MISSED)
        );
        let missed = "missed=1 since=2 lines=2\n".repeat(2);
        assert_eq!(fs::read_to_string(&file).unwrap(), missed);
        drop(store);

        feed(folder.path(), &[0]);
        let store = Store::open(folder.path()).unwrap();
        let facts = run_until(&store, &hook, 5).await;
        assert!(facts.missed.is_none());
        let expected = format!("{missed}missed= since=4 lines=1\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }
}
