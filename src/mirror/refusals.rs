//! Where tests have the operating system refuse something: every call that changes the disk asks here first.

/// Whether the call that comes next is refused. It never is, but in tests.
#[cfg(not(test))]
#[inline]
pub(super) fn inject_fault() -> rustix::io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(super) use planned::{Refusals, inject_fault};

#[cfg(test)]
mod planned {
    use std::cell::Cell;

    use rustix::io::{Errno, Result};

    thread_local! {
        static PLANNED: Cell<Option<Refusals>> = const { Cell::new(None) };
    }

    /// The calls of this thread that are refused.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::mirror) struct Refusals {
        /// How many are let through first.
        pub(in crate::mirror) after: usize,
        pub(in crate::mirror) errno: Errno,
        /// Whether all that follow are refused, and not only one.
        pub(in crate::mirror) lasting: bool,
        pub(in crate::mirror) met: usize,
    }

    impl Refusals {
        pub(in crate::mirror) fn begin(self) {
            PLANNED.set(Some(self));
        }

        /// How many calls were refused.
        pub(in crate::mirror) fn end() -> usize {
            PLANNED.take().map_or(0, |refusals| refusals.met)
        }
    }

    pub(in crate::mirror) fn inject_fault() -> Result<()> {
        let Some(mut refusals) = PLANNED.get() else {
            return Ok(());
        };
        let refuses = refusals.after == 0 && (refusals.lasting || refusals.met == 0);
        if refuses {
            refusals.met += 1;
        } else {
            refusals.after = refusals.after.saturating_sub(1);
        }
        PLANNED.set(Some(refusals));
        if refuses { Err(refusals.errno) } else { Ok(()) }
    }
}
