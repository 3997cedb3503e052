//! Exit statuses of the commands.

/// Success.
pub(super) const OK: u8 = 0;
/// Failure, or not in sync.
pub(super) const FAILED: u8 = 1;
/// A fault in the command line or the configuration.
pub(super) const FAULTS: u8 = 2;
/// Daemon not reachable.
pub(super) const UNREACHABLE: u8 = 3;
