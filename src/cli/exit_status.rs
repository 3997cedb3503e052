//! Exit statuses of the commands.

/// Success.
pub(super) const OK: u8 = 0;
/// Failure, or not in sync.
pub(super) const FAILED: u8 = 1;
/// A fault in the command line or the configuration.
pub(super) const FAULTS: u8 = 2;
/// The state is of a version with another schema: another start does not change that. Only of `run` below systemd, whose unit does not restart it.
pub(super) const OTHER_STATE: u8 = 4;
/// Daemon not reachable.
pub(super) const UNREACHABLE: u8 = 3;
