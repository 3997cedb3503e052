//! Fault injection for tests: every call that changes the disk asks here first.

/// A call that changes the disk, or syncs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Create,
    Write,
    Date,
    Fsync,
    Syncfs,
    CreateFolder,
    Rename,
    Link,
    Unlink,
    RemoveFolder,
}

/// Fails if the next call is to fail. Outside of tests it never does.
#[cfg(not(test))]
#[inline]
pub(super) fn inject_fault(_: Call) -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use planned::{FaultPlan, before_call, inject_fault, record_calls};

#[cfg(test)]
mod planned {
    use std::cell::{Cell, RefCell};

    use rustix::io::{Errno, Result};

    use super::Call;

    thread_local! {
        static PLANNED: Cell<Option<FaultPlan>> = const { Cell::new(None) };
        static RECORDED: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
        static INTERLUDE: RefCell<Option<Interlude>> = const { RefCell::new(None) };
    }

    /// The calls of this thread that fail.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct FaultPlan {
        /// The calls that may fail, and that are counted; none: all of them.
        pub(crate) of: &'static [Call],
        /// The number of calls that succeed first.
        pub(crate) after: usize,
        pub(crate) errno: Errno,
        /// Whether all later calls fail, and not only one.
        pub(crate) lasting: bool,
        /// The number of calls that have failed.
        pub(crate) injected: usize,
    }

    impl FaultPlan {
        pub(crate) fn begin(self) {
            PLANNED.set(Some(self));
        }

        /// Ends the plan; returns the number of calls that failed.
        pub(crate) fn end() -> usize {
            PLANNED.take().map_or(0, |plan| plan.injected)
        }
    }

    /// What happens before a call.
    struct Interlude {
        call: Call,
        /// The number of such calls that come first.
        after: usize,
        work: Box<dyn FnOnce()>,
    }

    /// Has this thread do something, as another thread or process would, before it makes a call; `after` such calls come first.
    pub(crate) fn before_call(call: Call, after: usize, work: impl FnOnce() + 'static) {
        let work = Box::new(work);
        INTERLUDE.set(Some(Interlude { call, after, work }));
    }

    /// The calls of this thread that change the disk while it works.
    pub(crate) fn record_calls(work: impl FnOnce()) -> Vec<Call> {
        RECORDED.take();
        work();
        RECORDED.take()
    }

    pub(crate) fn inject_fault(call: Call) -> Result<()> {
        let interlude = INTERLUDE.with_borrow_mut(|next| match next {
            Some(it) if it.call == call && it.after == 0 => next.take(),
            Some(it) if it.call == call => {
                it.after -= 1;
                None
            }
            _ => None,
        });
        if let Some(interlude) = interlude {
            (interlude.work)();
        }
        RECORDED.with_borrow_mut(|calls| calls.push(call));
        let Some(mut plan) = PLANNED.get() else {
            return Ok(());
        };
        if !plan.of.is_empty() && !plan.of.contains(&call) {
            return Ok(());
        }
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
