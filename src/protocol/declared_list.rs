//! Whether an entry declares itself as a list, or as a package.

use super::{Capability, Entry, Head, is_zip};

/// Whether an entry of a `urlset` declares itself as a list: some Sources serve an index so. A dump counts only within a
/// dump of the same capability, as in other documents it may be a mere reference. A package is no list, whatever its
/// capability.
pub(super) fn is_list(entry: &Entry, head: &Head) -> bool {
    if is_package(entry) {
        return false;
    }
    match &entry.md.capability {
        Some(Capability::ResourceList | Capability::ChangeList) => true,
        Some(Capability::ResourceDump | Capability::ChangeDump) => {
            entry.md.capability == head.md.capability
        }
        _ => false,
    }
}

/// Whether an entry declares itself as a package of a dump.
pub(super) fn is_package(entry: &Entry) -> bool {
    entry.md.content.media_type.as_deref().is_some_and(is_zip)
}
