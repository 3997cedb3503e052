//! Whether an entry declares itself as a list, or as a package, or states so little that it may be a list.

use super::media_type::{archive_suffix, is_archive, is_octets, is_package_type};
use super::{Capability, Entry, Head, Metadata};

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
    let stated = entry.md.content.media_type.as_deref();
    stated.is_some_and(is_package_type)
}

impl Entry {
    /// Whether an entry of a Change List is a package of changes, as some Sources list them: it has an interval instead of a
    /// change, and the type or the name of an archive, or no type of its own.
    pub fn is_package_of_changes(&self) -> bool {
        let md = &self.md;
        let has_interval = md.from.is_some() || md.until.is_some();
        let is_dump = matches!(md.capability, None | Some(Capability::ChangeDump));
        // Few entries have an interval, so that the names of the others need not be looked at.
        has_interval && is_dump && !self.states_change() && self.is_named_archive()
    }

    fn is_named_archive(&self) -> bool {
        match &self.md.content.media_type {
            Some(stated) if is_archive(stated) || is_octets(stated) => true,
            _ => archive_suffix(self.loc.path()).is_some(),
        }
    }

    /// Whether it states nothing but its URI and perhaps the time of a snapshot, as entries of an index do.
    pub(super) fn is_bare(&self) -> bool {
        let stated = Metadata {
            at: None,
            completed: None,
            ..self.md.clone()
        };
        self.lastmod.is_none() && self.links.is_empty() && stated == Metadata::default()
    }

    /// Whether its URI has the name of an XML document.
    pub(super) fn is_named_xml(&self) -> bool {
        let path = self.loc.path().to_ascii_lowercase();
        path.ends_with(".xml") || path.ends_with(".xml.gz")
    }
}
