//! How much compressed bytes may become: a few of them may fill any disk.

/// The maximum ratio.
pub(super) const RATIO: u64 = 100;

/// The length up to which the ratio is not limited, in bytes: large lists, and the headers of archives, compress well.
const UNLIMITED: u64 = 64 << 20;

/// The maximum length, in bytes, of what this number of compressed bytes becomes.
pub(crate) fn max_expanded(compressed: u64) -> u64 {
    compressed.saturating_mul(RATIO).max(UNLIMITED)
}
