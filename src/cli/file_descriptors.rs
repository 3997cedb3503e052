//! The file descriptors that the process may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many it wants: as many as the unit gives it.
const WANTED: u64 = 65_536;

/// Raises the limit, as far as the process may, to [`WANTED`]. A shell gives 1024, with which fewer files are synced together.
/// The commands of hooks inherit it.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(WANTED, |most| most.min(WANTED));
    if limit.current.is_some_and(|current| current < most) {
        // Where it is refused, less is done at once.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(most),
                ..limit
            },
        );
    }
}
