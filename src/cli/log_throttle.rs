//! Limits how often the same event is logged: what Sources, hubs and others send must not fill the journal.
//!
//! Events that have a `code` are counted by their place in the program, their code and their Source. The first ones of a window
//! are logged; the others are counted, and one line states how many there were when the window ends, or the process. Of rejected requests
//! one is logged, without that line: the status has their counts.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::clock;
use crate::http::REJECTED;

/// How long a window is. It begins with an event.
const WINDOW: Duration = Duration::from_secs(60);
/// How many events of a kind are logged in one window.
const MOST: u64 = 10;
/// The same for rejected requests.
const MOST_REJECTED: u64 = 1;
/// How many kinds are counted at once; the events of further ones share one count.
const MOST_KINDS: usize = 4096;
/// How often the ends of windows are looked for while there are any.
const PACE: Duration = Duration::from_secs(1);
/// The field that marks a summary, which is always logged.
const SUPPRESSED: &str = "suppressed";

/// What is counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventKind<P> {
    /// The place in the program; `None`: any, because there are too many kinds.
    place: Option<P>,
    code: String,
    source: String,
}

/// The events of one kind in one window.
#[derive(Debug)]
struct EventCount {
    began: Instant,
    /// How many are logged.
    most: u64,
    seen: u64,
    message: String,
}

/// The counts of all kinds. It does not know the log.
#[derive(Debug)]
struct LogCounts<P>(HashMap<EventKind<P>, EventCount>);

impl<P: Clone + Eq + std::hash::Hash> LogCounts<P> {
    /// Counts an event of a kind of which `most` are logged in a window; returns whether to log it.
    fn count(&mut self, kind: EventKind<P>, most: u64, message: String, now: Instant) -> bool {
        let is_room = self.0.len() < MOST_KINDS || self.0.contains_key(&kind);
        let kind = if is_room {
            kind
        } else {
            EventKind {
                place: None,
                code: "other".to_owned(),
                source: String::new(),
            }
        };
        let count = self.0.entry(kind).or_insert(EventCount {
            began: now,
            most,
            seen: 0,
            message,
        });
        count.seen += 1;
        count.seen <= count.most
    }

    /// Ends the windows that began a window's length before `now`, or all; returns those that have suppressed events.
    fn end(&mut self, now: Instant, all: bool) -> Vec<(EventKind<P>, EventCount)> {
        let has_ended =
            |count: &EventCount| all || now.saturating_duration_since(count.began) >= WINDOW;
        let ended = self.0.extract_if(|_, count| has_ended(count));
        ended
            .filter(|(_, count)| count.seen > count.most && count.most > MOST_REJECTED)
            .collect()
    }
}

/// The counts, and whether their thread is to end.
struct ThrottleState {
    counts: LogCounts<Identifier>,
    is_stopped: bool,
}

/// What the layer and the thread share.
struct Shared {
    state: Mutex<ThrottleState>,
    /// The first window began, or the thread is to end.
    changed: Condvar,
}

impl Shared {
    /// Logs the summaries of windows when they end, until it is stopped. Waits without a time-out while nothing is counted.
    fn log_summaries(&self) {
        let mut state = self.state.lock();
        while !state.is_stopped {
            if state.counts.0.is_empty() {
                self.changed.wait(&mut state);
                continue;
            }
            self.changed.wait_for(&mut state, PACE);
            let ended = state.counts.end(clock::now().mono, false);
            // Not while the lock is held: what is logged is counted, too.
            MutexGuard::unlocked(&mut state, || log(ended));
        }
    }
}

/// The layer that drops events.
pub(super) struct LogThrottleLayer(Arc<Shared>);

/// Logs the summaries; dropping it logs those that are left.
pub(super) struct Summaries {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LogThrottleLayer {
    pub(super) fn new() -> (Self, Summaries) {
        let shared = Arc::new(Shared {
            state: Mutex::new(ThrottleState {
                counts: LogCounts(HashMap::new()),
                is_stopped: false,
            }),
            changed: Condvar::new(),
        });
        let watched = Arc::clone(&shared);
        // A thread of its own: the log must not depend on the runtime, which may be busy.
        let thread = std::thread::Builder::new()
            .name("log-summary".to_owned())
            .spawn(move || watched.log_summaries());
        let summaries = Summaries {
            shared: Arc::clone(&shared),
            // Without the thread the summaries are logged at the end.
            thread: thread.ok(),
        };
        (Self(shared), summaries)
    }
}

impl Drop for Summaries {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to log.
            let _ = thread.join();
        }
        let left = self.shared.state.lock().counts.end(clock::now().mono, true);
        log(left);
    }
}

fn log(ended: Vec<(EventKind<Identifier>, EventCount)>) {
    for (EventKind { code, source, .. }, count) in ended {
        let (message, suppressed) = (count.message, count.seen - count.most);
        tracing::warn!(code, source, suppressed, "{message}: and {suppressed} more");
    }
}

impl<S: Subscriber> Layer<S> for LogThrottleLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let fields = metadata.fields();
        // Other levels are for people who want everything, and a summary is a warning.
        if *metadata.level() > Level::WARN
            || fields.field("code").is_none()
            || fields.field(SUPPRESSED).is_some()
        {
            return true;
        }
        let mut found = Fields::default();
        event.record(&mut found);
        let kind = EventKind {
            place: Some(metadata.callsite()),
            code: found.code,
            source: found.source,
        };
        let most = if metadata.target() == REJECTED {
            MOST_REJECTED
        } else {
            MOST
        };
        let now = clock::now().mono;
        let mut state = self.0.state.lock();
        let is_first = state.counts.0.is_empty();
        let is_logged = state.counts.count(kind, most, found.message, now);
        if is_first {
            self.0.changed.notify_one();
        }
        is_logged
    }
}

/// The fields that identify an event.
#[derive(Default)]
struct Fields {
    code: String,
    source: String,
    message: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "code" => value.clone_into(&mut self.code),
            "source" => value.clone_into(&mut self.source),
            "message" => value.clone_into(&mut self.message),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "code" | "source" | "message") {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(place: u32, code: &str, source: &str) -> EventKind<u32> {
        EventKind {
            place: Some(place),
            code: code.to_owned(),
            source: source.to_owned(),
        }
    }

    #[test]
    fn first_events_of_a_window_are_logged_and_the_others_counted() {
        let mut counts = LogCounts(HashMap::new());
        let now = clock::now().mono;
        let mut logged = |kind: &EventKind<u32>, at: Instant, times: u64| -> u64 {
            let mut count = || counts.count(kind.clone(), MOST, "given up".to_owned(), at);
            (0..times).map(|_| u64::from(count())).sum()
        };
        let (one, other) = (kind(1, "not-found", "a"), kind(1, "not-found", "b"));
        assert_eq!(logged(&one, now, 20_000), MOST);
        assert_eq!(logged(&other, now, 3), 3, "another Source");
        assert_eq!(logged(&kind(1, "gone", "a"), now, 3), 3, "another code");
        assert_eq!(
            logged(&kind(2, "not-found", "a"), now, 3),
            3,
            "another place"
        );
        assert!(counts.end(now + WINDOW / 2, false).is_empty());
        let ended = counts.end(now + WINDOW, false);
        let [(kind, count)] = &ended[..] else {
            panic!("{ended:?}");
        };
        let found = (kind, count.message.as_str(), count.seen - count.most);
        assert_eq!(found, (&one, "given up", 20_000 - MOST));
        let later = now + WINDOW;
        assert!(counts.count(one.clone(), MOST, String::new(), later));
        assert!(counts.end(later, true).is_empty(), "nothing was suppressed");
        assert!(counts.0.is_empty());
    }

    #[test]
    fn same_rejection_is_logged_once_a_minute() {
        let mut counts = LogCounts(HashMap::new());
        let now = clock::now().mono;
        let mut logged = |code: &str, at: Instant| {
            let kind = kind(1, code, "a");
            counts.end(at, false).is_empty() && counts.count(kind, MOST_REJECTED, String::new(), at)
        };
        assert!(logged("unsigned", now));
        assert!(!logged("unsigned", now + WINDOW / 2));
        assert!(logged("too-large", now + WINDOW / 2));
        assert!(logged("unsigned", now + WINDOW));
    }

    #[test]
    fn number_of_kinds_is_bounded() {
        let mut counts = LogCounts(HashMap::new());
        let now = clock::now().mono;
        let mut logged = 0;
        for number in 0..2 * MOST_KINDS {
            let kind = kind(1, &number.to_string(), "a");
            logged += u64::from(counts.count(kind, MOST, String::new(), now));
        }
        assert_eq!(counts.0.len(), MOST_KINDS + 1);
        assert_eq!(logged, MOST_KINDS as u64 + MOST);
    }
}
