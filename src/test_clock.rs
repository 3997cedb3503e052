//! For tests: clocks of single threads.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use resyncd_core::Now;

use crate::clock;

thread_local! {
    static INSTALLED: RefCell<Option<Rc<dyn Fn() -> Now>>> = const { RefCell::new(None) };
}

/// Makes this clock the one that the current thread reads.
pub(crate) fn install(clock: impl Fn() -> Now + 'static) {
    clock::replace(now);
    INSTALLED.set(Some(Rc::new(clock)));
}

fn now() -> Now {
    // It may panic.
    let installed = INSTALLED.with_borrow(Option::clone);
    installed.map_or_else(clock::system, |clock| clock())
}

/// Both clocks of a simulated machine. They move only when they are set.
#[derive(Debug)]
pub(crate) struct SimulatedClock {
    base: Now,
    millis: AtomicU64,
}

impl SimulatedClock {
    pub(crate) fn new(base: Now) -> Arc<Self> {
        Arc::new(Self {
            base,
            millis: AtomicU64::new(0),
        })
    }

    /// Sets the clock to so many milliseconds after its base.
    pub(crate) fn set(&self, millis: u64) {
        self.millis.store(millis, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Now {
        let millis = self.millis.load(Ordering::SeqCst);
        self.base.plus(Duration::from_millis(millis))
    }

    /// The milliseconds after the base of a moment on the monotonic clock, rounded up.
    pub(crate) fn millis_of(&self, mono: Instant) -> u64 {
        let micros = mono.saturating_duration_since(self.base.mono).as_micros();
        u64::try_from(micros.div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// Makes this clock the one that the current thread reads.
    pub(crate) fn install(self: &Arc<Self>) {
        let clock = Arc::clone(self);
        install(move || clock.now());
    }
}
