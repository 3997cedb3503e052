//! What every format of packages provides, and the bound on members that holds for all of them.
//!
//! A format is a file with a [`Format`]; `format.rs` lists them. Adding one changes nothing else.

use std::fs::File;
use std::sync::Arc;

use url::Url;

use super::error::PackageError;
use super::member::MemberReader;

/// The maximum number of members of a package.
pub(super) const MAX_MEMBERS: usize = 1_000_000;

/// A format of packages.
pub(super) struct Format {
    /// Whether a file of the format begins so.
    pub(super) begins: fn(&[u8]) -> bool,
    /// Opens a file of this length.
    pub(super) open: fn(&Arc<File>, u64) -> Opened,
}

/// An open package; `None`: it must be decompressed as a whole first.
pub(super) type Opened = Result<Option<Arc<dyn Archive>>, PackageError>;

/// The members of an open package. They can be read concurrently.
pub(super) trait Archive: Send + Sync {
    /// Names the member that is the manifest, as the entry of the package does (`contents`). It changes nothing if there is no such
    /// member, or it is no manifest.
    fn name_manifest(&mut self, _uri: &Url) {}

    /// Opens the manifest.
    fn manifest(&self) -> Result<MemberReader, PackageError>;

    /// Opens the member that the path in a manifest refers to.
    fn member(&self, path: &str) -> Result<MemberReader, PackageError>;

    /// The path that finds the member of a resource: the one that a manifest states, unless the format finds it by the URI.
    fn path_of(&self, path: Option<String>, _uri: &str) -> Option<String> {
        path
    }

    /// Whether the manifest is made of what the members state.
    fn makes_manifest(&self) -> bool {
        false
    }

    /// The number of members, including folders and the manifest.
    fn members(&self) -> usize;
}
