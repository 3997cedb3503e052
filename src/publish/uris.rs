//! The URIs of what is published: `<public_url><source>/<path in the mirror>`, and documents below `<public_url><source>/.rs/`.
//!
//! Invariant: the same thing has the same URI after a restart, and with another database.

use resourcesync::uri::resolve_reference;
use resourcesync::{Algorithm, Digest};
use url::Url;

use crate::store::PublishedSet;

/// The folder of the documents of a Source, and of what all share.
pub(super) const DOCUMENTS: &str = ".rs";
/// The path of the Source Description of all (the core, section 6.3.1).
pub(super) const WELL_KNOWN: &str = ".well-known/resourcesync";
/// The path of the hub.
pub(super) const HUB: &str = ".rs/hub";
/// The file names of documents.
pub(super) const DESCRIPTION: &str = "description.xml";
pub(super) const CAPABILITY_LIST: &str = "capabilitylist.xml";
pub(super) const RESOURCE_LIST: &str = "resourcelist";
pub(super) const CHANGE_LIST: &str = "changelist";
pub(super) const RESOURCE_DUMP: &str = "resourcedump";
pub(super) const CHANGE_DUMP: &str = "changedump";
/// Where dumps are asked for.
pub(super) const DUMP: &str = "dump";
/// The folder of the documents of a folder, which has one set.
const ALL: &str = "all";
/// The topics of the channels of a set.
pub(super) const CHANGES: &str = "changes";
pub(super) const FRAMEWORK: &str = "framework";

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct SiteUris {
    base: Url,
}

impl SiteUris {
    /// `base`: ends in `/`.
    pub(super) fn new(base: Url) -> Self {
        Self { base }
    }

    /// The path that all URIs begin with.
    pub(super) fn prefix(&self) -> &str {
        self.base.path()
    }

    /// What is at a path, which is no relative reference to another host.
    pub(super) fn at(&self, path: &str) -> Url {
        resolve_reference(&self.base, &format!("./{path}")).unwrap_or_else(|_| self.base.clone())
    }

    /// A document of a Source.
    pub(super) fn description(&self, source: &str) -> Url {
        self.at(&format!("{source}/{DOCUMENTS}/{DESCRIPTION}"))
    }

    /// A document of a set.
    pub(super) fn of_set(&self, set: &PublishedSet, document: &str) -> Url {
        let (source, folder) = (&set.source, self.folder_of(set));
        self.at(&format!("{source}/{DOCUMENTS}/{folder}/{document}"))
    }

    /// The Capability List of the only set of a folder.
    pub(super) fn list_of_folder(&self, name: &str) -> Url {
        self.at(&format!("{name}/{DOCUMENTS}/{ALL}/{CAPABILITY_LIST}"))
    }

    /// The folder of the documents of a set.
    pub(super) fn folder_of(&self, set: &PublishedSet) -> String {
        if set.capability_list == self.list_of_folder(&set.source) {
            return ALL.to_owned();
        }
        let digest = Digest::of(Algorithm::Sha256, set.capability_list.as_str().as_bytes());
        hexadecimal(&digest.bytes()[..6])
    }

    /// The file of a Source at a path in its mirror.
    pub(super) fn file(&self, source: &str, path: &str) -> Url {
        let mut uri = self.base.clone();
        if let Ok(mut segments) = uri.path_segments_mut() {
            segments.pop_if_empty().push(source).extend(path.split('/'));
        }
        uri
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use resourcesync::uri::parse_uri;

    use super::*;

    #[test]
    fn paths_of_files_are_percent_encoded() {
        let uris = SiteUris::new(parse_uri("https://mirror.example.net/rs/").unwrap());
        for (path, expected) in [
            ("a.example/x", "a.example/x"),
            ("a.example/a b?c#d%3F", "a.example/a%20b%3Fc%23d%253F"),
            ("a.example/\u{e4}", "a.example/%C3%A4"),
        ] {
            let expected = format!("https://mirror.example.net/rs/s/{expected}");
            assert_eq!(uris.file("s", path).as_str(), expected);
        }
        let well_known = uris.at(WELL_KNOWN);
        assert_eq!(
            well_known.as_str(),
            "https://mirror.example.net/rs/.well-known/resourcesync"
        );
    }
}
