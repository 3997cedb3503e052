//! For tests: a log that panics, as a fault of the program would where something is logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// Until it is dropped, what a module logs on this thread at one level panics.
pub(crate) struct PanickingLog {
    panics: Arc<AtomicU32>,
    #[expect(dead_code, reason = "ends it when it is dropped")]
    installed: DefaultGuard,
}

struct PanickingLayer {
    module: &'static str,
    level: Level,
    panics: Arc<AtomicU32>,
}

impl PanickingLog {
    pub(crate) fn of(module: &'static str, level: Level) -> Self {
        let panics = Arc::default();
        let layer = PanickingLayer {
            module,
            level,
            panics: Arc::clone(&panics),
        };
        Self {
            panics,
            installed: Registry::default().with(layer).set_default(),
        }
    }

    /// How often it has panicked.
    pub(crate) fn panics(&self) -> u32 {
        self.panics.load(Ordering::SeqCst)
    }
}

impl<S: Subscriber> Layer<S> for PanickingLayer {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target() == self.module && *metadata.level() == self.level
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.panics.fetch_add(1, Ordering::SeqCst);
        panic!("a test");
    }
}
