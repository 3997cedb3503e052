//! I/O errors at planned calls of a thread, and what others do meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use rustix::io::{Errno, Result};

use crate::DiskCall as Call;
use crate::{DiskObserver, Mirror, MirrorError};

thread_local! {
    static PLANNED: Cell<Option<FaultPlan>> = const { Cell::new(None) };
    static RECORDED: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static UNSYNCABLE: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
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

/// Lets the syncs of these folders fail on this thread, and of no others.
pub(crate) fn fail_syncs_of(folders: &[&str]) {
    UNSYNCABLE.set(folders.iter().map(|&folder| folder.to_owned()).collect());
}

/// Has the calls fail that the thread has planned to fail.
struct PlannedFaults;

/// Opens a mirror whose calls may fail.
pub(crate) fn open_faulty(root: &Path) -> std::result::Result<Mirror, MirrorError> {
    Mirror::open_observed(root, None, Arc::new(PlannedFaults))
}

impl DiskObserver for PlannedFaults {
    fn before(&self, call: Call, of: &[u8]) -> Result<()> {
        let is_unsyncable =
            |folders: &BTreeSet<String>| folders.iter().any(|folder| folder.as_bytes() == of);
        if call == Call::Fsync && UNSYNCABLE.with_borrow(is_unsyncable) {
            return Err(Errno::IO);
        }
        inject_fault(call)
    }
}

fn inject_fault(call: Call) -> Result<()> {
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
