//! Fault injection for tests: every call that changes the disk asks here first.

/// Fails if the next call is to fail. Outside of tests it never does.
#[cfg(not(test))]
#[inline]
pub(super) fn inject_fault() -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use planned::{FaultPlan, inject_fault};

#[cfg(test)]
mod planned {
    use std::cell::Cell;

    use rustix::io::{Errno, Result};

    thread_local! {
        static PLANNED: Cell<Option<FaultPlan>> = const { Cell::new(None) };
    }

    /// The calls of this thread that fail.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::mirror) struct FaultPlan {
        /// The number of calls that succeed first.
        pub(in crate::mirror) after: usize,
        pub(in crate::mirror) errno: Errno,
        /// Whether all later calls fail, and not only one.
        pub(in crate::mirror) lasting: bool,
        /// The number of calls that have failed.
        pub(in crate::mirror) injected: usize,
    }

    impl FaultPlan {
        pub(in crate::mirror) fn begin(self) {
            PLANNED.set(Some(self));
        }

        /// Ends the plan; returns the number of calls that failed.
        pub(in crate::mirror) fn end() -> usize {
            PLANNED.take().map_or(0, |plan| plan.injected)
        }
    }

    pub(in crate::mirror) fn inject_fault() -> Result<()> {
        let Some(mut plan) = PLANNED.get() else {
            return Ok(());
        };
        let fails = plan.after == 0 && (plan.lasting || plan.injected == 0);
        if fails {
            plan.injected += 1;
        } else {
            plan.after = plan.after.saturating_sub(1);
        }
        PLANNED.set(Some(plan));
        if fails { Err(plan.errno) } else { Ok(()) }
    }
}
