//! How far compressed bytes may expand: a few of them may stand for more than any disk has.
//!
//! This holds for documents, for packages and their members, and for content codings. It is a bound in proportion to what was served;
//! the limits of lengths hold as well.

/// The maximum expansion of what is longer than is exempt.
const RATIO: u64 = 100;

/// The decompressed length up to which the expansion is not limited, in bytes: large lists, and the headers in an archive, compress
/// well.
const EXEMPT: u64 = 64 << 20;

/// The same of what is decompressed where it is in a package.
const EXEMPT_IN_PACKAGE: u64 = 16 << 20;

/// The maximum decompressed length of so many compressed bytes: of a document, of a package that is compressed as a whole, or of coded
/// content.
#[must_use]
pub fn max_expanded(compressed: u64) -> u64 {
    compressed.saturating_mul(RATIO).max(EXEMPT)
}

/// Whether what is decompressed where it is in a package expands too much.
pub(super) fn is_out_of_proportion(length: u64, compressed: u64) -> bool {
    length > EXEMPT_IN_PACKAGE && length / RATIO > compressed
}
