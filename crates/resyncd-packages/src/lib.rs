//! Packages: archives of resources with a manifest (sections 11 and 13).
//!
//! A package is a file on disk; its members are read from it one by one, or concurrently. Nothing is unpacked under a name from
//! the package. A package is untrusted: it is opened in bounded memory, and no member can grow beyond the length that the
//! package states.
//!
//! Formats: ZIP, tar, WARC, and these compressed as a whole with gzip or Zstandard.
//!
//! `format.rs` lists the formats, with a file for each.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod error;
mod file_tree;
mod format;
mod member;
mod section;
mod tar;
#[cfg(test)]
mod tests;
mod unpacked;
mod warc;
mod zip;

use std::fmt;
use std::fs::File;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use resourcesync::DocumentReader;
use resourcesync::uri::BaseUri;
use url::Url;

pub use self::error::PackageError;
use self::format::Archive;
pub use self::member::MemberReader;
pub use self::unpacked::max_expanded;

/// A package on disk. A clone is the same package; its members can be read concurrently.
///
/// All functions block for reading from disk.
#[derive(Clone)]
pub struct Package(Arc<Archive>);

impl Package {
    /// Opens a package and reads its directory. One that is compressed as a whole is unpacked into a file without a name in
    /// `folder`, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`PackageError::Unsupported`] if it is in no format that is read, [`PackageError::Damaged`],
    /// [`PackageError::TooManyMembers`], [`PackageError::Expansion`], [`PackageError::TooLargeUnpacked`], [`PackageError::Io`].
    pub fn open(file: File, folder: &Path, limit: Option<u64>) -> Result<Self, PackageError> {
        format::open(file, folder, limit).map(|archive| Self(Arc::new(archive)))
    }

    /// The same, where its entry in a dump states the URI of the manifest (`contents`): some formats find members by their URIs. No
    /// other clone exists yet.
    #[must_use]
    pub fn with_manifest_at(mut self, uri: Option<&Url>) -> Self {
        if let (Some(uri), Some(Archive::Warc(warc))) = (uri, Arc::get_mut(&mut self.0)) {
            warc.name_manifest(uri);
        }
        self
    }

    /// Opens its manifest, `manifest.xml` at the top, of at most `limit` bytes. Relative URIs are resolved against `base`, the
    /// URI of the package.
    ///
    /// An I/O error of the reader may be an error of the package: convert it with [`PackageError::from`].
    ///
    /// # Errors
    /// [`PackageError::NoManifest`], [`PackageError::TooLarge`], [`PackageError::Manifest`], and those of
    /// [`Package::member`].
    pub fn manifest<'a>(
        &self,
        base: impl Into<BaseUri<'a>>,
        limit: u64,
    ) -> Result<DocumentReader<Box<dyn BufRead + Send>>, PackageError> {
        let member = match &*self.0 {
            Archive::Files(files) => files.manifest()?,
            Archive::Warc(warc) => warc.manifest()?,
        };
        if member.length().is_some_and(|length| length > limit) {
            return Err(PackageError::TooLarge(limit));
        }
        Ok(DocumentReader::open(member.buffered(), base)?)
    }

    /// Opens the member that the `path` in a manifest refers to.
    ///
    /// # Errors
    /// [`PackageError::NoMember`], [`PackageError::AmbiguousMember`], [`PackageError::Encrypted`],
    /// [`PackageError::Compression`], [`PackageError::Expansion`], [`PackageError::BadMember`], [`PackageError::Io`].
    pub fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        match &*self.0 {
            Archive::Files(files) => files.member(path),
            Archive::Warc(warc) => warc.member(path),
        }
    }

    /// The path of the member with the bytes of a resource, if a manifest states this `path` of it, or none: some formats find members
    /// by the URI. `None` if there is no such member.
    pub fn path_of(&self, path: Option<String>, uri: &str) -> Option<String> {
        match &*self.0 {
            Archive::Files(_) => path,
            Archive::Warc(warc) => warc.path_of(path, uri),
        }
    }

    /// Whether it has no manifest of its own, and [`Package::manifest`] makes one of what the members state.
    pub fn makes_manifest(&self) -> bool {
        matches!(&*self.0, Archive::Warc(warc) if warc.manifest.is_none())
    }

    /// The number of members, including folders and the manifest.
    pub fn members(&self) -> usize {
        match &*self.0 {
            Archive::Files(files) => files.len(),
            Archive::Warc(warc) => warc.members,
        }
    }
}

impl fmt::Debug for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Package")
            .field("members", &self.members())
            .finish_non_exhaustive()
    }
}
