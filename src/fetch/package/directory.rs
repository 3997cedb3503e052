//! The directory of a package: its members and their positions.
//!
//! Names are not stored: a member takes the same few bytes whatever its name, so that a package with a million members is
//! opened in about fifty megabytes. Members are found by a hash with a random key, so that collisions can't be prepared.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::PackageError;
use super::name;
use super::records::{CentralHeader, LOCAL_LENGTH, find_directory};
use super::section::Section;

/// The file type of a symbolic link, and the mask of file types, in a Unix mode.
const SYMLINK: u32 = 0o120_000;
const FILE_TYPE: u32 = 0o170_000;

/// How the bytes of a member are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    Encrypted,
    Folder,
    /// Not a file: its bytes are the path of another one.
    Symlink,
    Unknown(u16),
}

/// The entry of a member in the directory.
#[derive(Clone, Debug)]
pub(super) struct MemberEntry {
    name: u64,
    pub(super) header: u64,
    pub(super) packed: u64,
    pub(super) length: u64,
    pub(super) crc: u32,
    pub(super) method: Method,
}

/// The members of a package.
#[derive(Debug)]
pub(super) struct Directory {
    hashes: RandomState,
    /// By the hash of the name.
    entries: Vec<MemberEntry>,
    /// The hashes of the folders at the top.
    tops: Vec<u64>,
    /// The common folder of all members except the manifest, as its segments; `None` while there is no member.
    common: Option<Vec<String>>,
    manifest: ManifestEntry,
    /// A manifest with a name in another case.
    odd_manifest: ManifestEntry,
    members: usize,
}

/// The members that may be the manifest.
#[derive(Debug, Default)]
enum ManifestEntry {
    #[default]
    Missing,
    One(MemberEntry),
    /// Several with different content.
    Ambiguous,
}

impl Directory {
    /// Reads the directory of a package with at most `limit` members.
    pub(super) fn read(file: &Arc<File>, length: u64, limit: usize) -> Result<Self, PackageError> {
        let location = find_directory(file, length)?;
        let mut headers = Section::new(Arc::clone(file), location.start, location.length);
        let mut directory = Self {
            hashes: RandomState::new(),
            entries: Vec::new(),
            tops: Vec::new(),
            common: None,
            manifest: ManifestEntry::Missing,
            odd_manifest: ManifestEntry::Missing,
            members: 0,
        };
        while let Some(header) = CentralHeader::read(&mut headers)? {
            directory.members += 1;
            if directory.members > limit {
                return Err(PackageError::TooManyMembers { limit });
            }
            directory.add(header, location.prefix)?;
        }
        // Without ZIP64 the number has 16 bits, and some tools write more members than that.
        let count = directory.members as u64;
        if count != location.count && count % (1 << 16) != location.count {
            return Err(PackageError::Damaged(
                "the directory has another number of members than stated".to_owned(),
            ));
        }
        directory.check_overlaps(location.start)?;
        // A folder has a position but no bytes: after the check it is not needed.
        directory
            .entries
            .retain(|entry| entry.method != Method::Folder);
        directory.entries.sort_unstable_by_key(|entry| entry.name);
        directory.tops.sort_unstable();
        directory.tops.dedup();
        Ok(directory)
    }

    fn add(&mut self, header: CentralHeader, prefix: u64) -> Result<(), PackageError> {
        let method = method(&header);
        let decoded = name::decode(&header.name);
        let segments = name::segments(&decoded);
        let entry = MemberEntry {
            name: self.hash(&segments),
            header: header.header.checked_add(prefix).ok_or_else(|| {
                PackageError::Damaged("a position in the directory is too large".to_owned())
            })?,
            packed: header.packed,
            length: header.length,
            crc: header.crc,
            method,
        };
        let is_manifest = name::is_manifest(&segments) && method != Method::Folder;
        if is_manifest {
            let manifest = match segments[..] {
                ["manifest.xml"] => &mut self.manifest,
                _ => &mut self.odd_manifest,
            };
            manifest.add(&entry);
        }
        self.entries.push(entry);
        if let [top, _, ..] = segments[..] {
            let top = self.hash(&[top]);
            // Members of one folder are mostly adjacent.
            if self.tops.last() != Some(&top) {
                self.tops.push(top);
            }
        }
        if let [folder @ .., _] = &segments[..]
            && !is_manifest
            && method != Method::Folder
        {
            self.narrow_common(folder);
        }
        Ok(())
    }

    fn narrow_common(&mut self, folder: &[&str]) {
        match &mut self.common {
            None => self.common = Some(folder.iter().copied().map(str::to_owned).collect()),
            Some(common) => {
                let same = common
                    .iter()
                    .zip(folder)
                    .take_while(|(own, its)| own == its);
                let length = same.count();
                common.truncate(length);
            }
        }
    }

    /// Rejects overlapping members: they unpack to more than the package could contain, and no honest tool creates them.
    fn check_overlaps(&mut self, directory: u64) -> Result<(), PackageError> {
        self.entries.sort_unstable_by_key(|entry| entry.header);
        let ends = self.entries.iter().skip(1).map(|next| next.header);
        for (entry, end) in self.entries.iter().zip(ends.chain([directory])) {
            let own_end = entry
                .header
                .checked_add(LOCAL_LENGTH)
                .and_then(|at| at.checked_add(entry.packed));
            if own_end.is_none_or(|own_end| own_end > end) {
                return Err(PackageError::Damaged("members overlap".to_owned()));
            }
        }
        Ok(())
    }

    /// The manifest at the top.
    pub(super) fn manifest(&self) -> Result<&MemberEntry, PackageError> {
        let manifest = match &self.manifest {
            ManifestEntry::Missing => &self.odd_manifest,
            manifest => manifest,
        };
        match manifest {
            ManifestEntry::Missing => Err(PackageError::NoManifest),
            ManifestEntry::One(entry) => Ok(entry),
            ManifestEntry::Ambiguous => {
                Err(PackageError::AmbiguousMember("manifest.xml".to_owned()))
            }
        }
    }

    /// The members of that name.
    pub(super) fn named(&self, segments: &[&str]) -> &[MemberEntry] {
        let hash = self.hash(segments);
        let start = self.entries.partition_point(|entry| entry.name < hash);
        let count = self.entries[start..].partition_point(|entry| entry.name == hash);
        &self.entries[start..start + count]
    }

    /// Whether any member is in the top-level folder of that name.
    pub(super) fn has_folder(&self, top: &str) -> bool {
        self.tops.binary_search(&self.hash(&[top])).is_ok()
    }

    /// The segments of the common folder of all members except the manifest.
    pub(super) fn common_folder(&self) -> &[String] {
        self.common.as_deref().unwrap_or_default()
    }

    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.members
    }

    fn hash(&self, segments: &[&str]) -> u64 {
        self.hashes.hash_one(segments)
    }
}

impl ManifestEntry {
    fn add(&mut self, entry: &MemberEntry) {
        *self = match std::mem::take(self) {
            Self::Missing => Self::One(entry.clone()),
            Self::One(known) if known.same_bytes(entry) => Self::One(known),
            Self::One(_) | Self::Ambiguous => Self::Ambiguous,
        };
    }
}

impl MemberEntry {
    /// Whether two members have the same content according to the directory.
    pub(super) fn same_bytes(&self, other: &Self) -> bool {
        self.crc == other.crc && self.length == other.length
    }
}

fn method(header: &CentralHeader) -> Method {
    if name::is_folder(&name::decode(&header.name)) {
        return Method::Folder;
    }
    let is_symlink = |mode: u32| mode & FILE_TYPE == SYMLINK;
    if header.unix_mode.is_some_and(is_symlink) {
        return Method::Symlink;
    }
    match (header.flags & 1, header.method) {
        (1, _) => Method::Encrypted,
        (_, 0) => Method::Stored,
        (_, 8) => Method::Deflated,
        (_, other) => Method::Unknown(other),
    }
}
