//! Tells people what waits for them, and which Sources fail: in the log, and as `[[notify]]` states.
//!
//! | module | what it has |
//! |---|---|
//! | `subjects` | what there is to tell; lines of the log |
//! | `told` | what was told, and what is told next |
//! | `message` | a message with its forms |
//! | `send` | sends it |
//!
//! Invariants: what was told counts as told once it was accepted, also after a restart; a failure of one `[[notify]]` is an attention,
//! which the others tell.
//!
//! Must not decide what waits for a person.

mod message;
mod send;
mod subjects;
mod told;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use message::Message;
use resyncd_core::Now;
use resyncd_fetch::{Bounds, Client, pause};
use subjects::{Subject, Subjects, attentions, failures, log_changes};
use tokio_util::sync::CancellationToken;
use told::{News, Told, has_news};

use super::hooks::delivery::DeliveryError;
use super::lifecycle::Engine;
use crate::clock;
use crate::config::{Notify, NotifyAction};
use crate::status::{Attention, StatusError, rfc3339};
use crate::store::Store;

/// The time between two checks for news. Each reads the database once, for all Sources.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(60);
/// The pauses after a message that was not accepted.
const PAUSES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(10),
    longest: Duration::from_secs(15 * 60),
};

/// Why the messages of `[[notify]]` are not accepted, and since when, by name.
pub(super) type NotifyErrors = BTreeMap<String, StatusError>;

/// Tells until the engine stops or is gone.
pub(super) async fn tell(engine: Weak<Engine>, stop: CancellationToken) {
    let mut logged = Subjects::new();
    let mut notifiers: Vec<Notifier> = Vec::new();
    loop {
        let rest = tokio::time::sleep(INTERVAL);
        if stop.run_until_cancelled(rest).await.is_none() {
            return;
        }
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let status = match engine.notable_status().await {
            Ok(Some(status)) => status,
            Ok(None) => continue,
            Err(StatusError { code, message, .. }) => {
                // What the workers read fails as well, and is reported.
                tracing::debug!(
                    code,
                    error = message,
                    "database error; attention not checked"
                );
                continue;
            }
        };
        let mut found = attentions(&status);
        log_changes(&logged, &found);
        logged.clone_from(&found);
        found.extend(failures(&status));
        let configured = engine.config.lock().notify.clone();
        notifiers = adapted(notifiers, &configured, &engine.store).await;
        let client = engine.shared.transports.client();
        let work = notifiers.iter_mut();
        let work = work.map(|notifier| notifier.work(&found, client, &engine.store, &stop));
        join_all(work).await;
        let errors = notifiers.iter();
        let errors = errors.filter_map(|it| Some((it.notify.name.clone(), it.error.clone()?)));
        *engine.notify_errors.lock() = errors.collect();
    }
}

/// The notifiers of the configuration: those that stay as they are go on.
async fn adapted(
    mut known: Vec<Notifier>,
    configured: &[Notify],
    store: &Arc<Store>,
) -> Vec<Notifier> {
    let is_same = known.len() == configured.len()
        && known
            .iter()
            .zip(configured)
            .all(|(it, notify)| it.notify == *notify);
    if is_same {
        return known;
    }
    let names = configured.iter().map(|notify| notify.name.clone());
    if let Err(error) = store.retain_told(names.collect()).await {
        tracing::debug!(code = error.code(), %error, "database error; what was told is not removed");
    }
    let mut adapted = Vec::new();
    for notify in configured {
        let same = known.iter().position(|known| known.notify == *notify);
        adapted.push(match same {
            Some(at) => known.swap_remove(at),
            None => Notifier::begin(notify.clone(), store).await,
        });
    }
    adapted
}

/// What tells as one `[[notify]]` states.
struct Notifier {
    notify: Notify,
    told: Told,
    /// What the database has of it.
    stored: String,
    /// When it was told last that something begins or ends, or was pinged.
    last: Option<Instant>,
    failures: u32,
    /// The next try, after one that was not accepted.
    next_try: Option<Instant>,
    error: Option<StatusError>,
}

impl Notifier {
    /// Goes on with what was told before a restart. If that can't be read, everything is told again.
    async fn begin(notify: Notify, store: &Arc<Store>) -> Self {
        let stored = store.told(&notify.name).await;
        let stored = stored.ok().flatten().unwrap_or_default();
        Self {
            told: serde_json::from_str(&stored).unwrap_or_default(),
            notify,
            stored,
            last: None,
            failures: 0,
            next_try: None,
            error: None,
        }
    }

    /// Tells what is to be told now.
    async fn work(
        &mut self,
        found: &Subjects,
        client: &Client,
        store: &Arc<Store>,
        stop: &CancellationToken,
    ) {
        let Now { wall, mono } = clock::now();
        self.told.observe(&self.notify, found, wall);
        if self.next_try.is_none_or(|next| next <= mono) {
            let interval = match self.notify.action {
                NotifyAction::Ping { .. } => PING_INTERVAL,
                _ => self.notify.after,
            };
            let passed = |last| mono.saturating_duration_since(last);
            if self.last.is_none_or(|last| passed(last) >= interval) {
                self.attempt(found, client, wall, stop).await;
            }
        }
        self.store(store).await;
    }

    async fn attempt(
        &mut self,
        found: &Subjects,
        client: &Client,
        now: DateTime<Utc>,
        stop: &CancellationToken,
    ) {
        let Notify { name, action, .. } = &self.notify;
        let sent = if let NotifyAction::Ping { url } = action {
            if has_news(&self.notify, found, now) {
                return;
            }
            send::ping(url.expose(), client).await
        } else {
            let news = self.told.news(&self.notify, found, now);
            if news.is_empty() {
                return;
            }
            let message = Message::new(&news, name, &send::host());
            let sent = send::send(name, action, &message, client, now, stop).await;
            if sent.is_ok() {
                self.told.note(&news, now);
                tracing::info!(notify = name, title = message.title, "notification sent");
            }
            sent
        };
        let mono = clock::now().mono;
        match sent {
            Ok(()) => {
                (self.last, self.failures) = (Some(mono), 0);
                (self.next_try, self.error) = (None, None);
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let pause = pause(self.failures, error.retry_after(), &PAUSES);
                let pause = pause.unwrap_or(PAUSES.longest);
                self.next_try = mono.checked_add(pause);
                let (code, reason) = (error.code(), error.to_string());
                let seconds = pause.as_secs_f32();
                tracing::warn!(code, notify = name, reason, seconds, "notification failed");
                let since = self.error.take().map(|error| error.at);
                let error = StatusError::new(code, reason, now);
                self.error = Some(StatusError {
                    at: since.unwrap_or_else(|| rfc3339(now)),
                    ..error
                });
            }
        }
    }

    /// Stores what was told, if that has changed. If it fails it is stored with the next change.
    async fn store(&mut self, store: &Arc<Store>) {
        let told = serde_json::to_string(&self.told).unwrap_or_default();
        if told == self.stored {
            return;
        }
        match store.put_told(&self.notify.name, &told).await {
            Ok(()) => self.stored = told,
            Err(error) => {
                tracing::debug!(code = error.code(), %error, "database error; what was told is not stored");
            }
        }
    }
}

/// Sends a message that says that it is one, or pings.
pub(crate) async fn send_test(
    notify: &Notify,
    client: &Client,
    stop: &CancellationToken,
) -> Result<(), StatusError> {
    let now = clock::now().wall;
    let Notify { name, action, .. } = notify;
    let sent = if let NotifyAction::Ping { url } = action {
        send::ping(url.expose(), client).await
    } else {
        let subject = Subject {
            source: None,
            set: None,
            code: "test".to_owned(),
        };
        let attention = Attention {
            code: subject.code.clone(),
            message: format!("a person tries the [[notify]] {name}"),
            since: rfc3339(now),
            next_step: "none".to_owned(),
        };
        let news = News {
            began: vec![(subject, attention)],
            ..News::default()
        };
        let message = Message::new(&news, name, &send::host());
        send::send(name, action, &message, client, now, stop).await
    };
    sent.map_err(|error: DeliveryError| StatusError::new(error.code(), error.to_string(), now))
}
