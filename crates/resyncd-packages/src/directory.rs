//! The directory of a package whose members have the names of files: the members and their positions.
//!
//! Names are not stored: a member takes the same few bytes whatever its name, so that a package with a million members is
//! opened in about fifty megabytes. Members are found by a hash with a random key, so that collisions can't be prepared.

use std::hash::{BuildHasher, RandomState};

use super::error::PackageError;

/// How the bytes of a member are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    Encrypted,
    Folder,
    /// A link, or a device.
    NotFile,
    /// A file whose name leads out of the package.
    Outside,
    Unknown(u16),
}

/// Where the bytes of a member are, and how they are stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// The position of the member in the file.
    pub(super) at: u64,
    pub(super) packed: u64,
    pub(super) length: u64,
    /// A checksum, or in a format without checksums a number of its own: members with the same one and of the same length have the
    /// same bytes.
    pub(super) check: u32,
    pub(super) method: Method,
}

/// The entry of a member in the directory.
#[derive(Clone, Debug)]
struct MemberEntry {
    name: u64,
    stored: Stored,
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
    /// The members that are manifests with a name in another case.
    odd_manifests: Vec<Stored>,
    members: usize,
    limit: usize,
}

impl Directory {
    /// A directory for at most `limit` members.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            hashes: RandomState::new(),
            entries: Vec::new(),
            tops: Vec::new(),
            common: None,
            odd_manifests: Vec::new(),
            members: 0,
            limit,
        }
    }

    /// Adds a member.
    pub(super) fn add(&mut self, name: &str, stored: Stored) -> Result<(), PackageError> {
        self.members += 1;
        if self.members > self.limit {
            return Err(PackageError::TooManyMembers { limit: self.limit });
        }
        let method = stored.method;
        let segments = segments(name);
        let is_manifest = is_manifest(&segments) && method != Method::Folder;
        if is_manifest && segments != ["manifest.xml"] {
            self.odd_manifests.push(stored.clone());
        }
        let name = self.hash(&segments);
        self.entries.push(MemberEntry { name, stored });
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

    /// Ends the directory: members can be searched from now on.
    pub(super) fn finish(&mut self) {
        // A folder has a position but no bytes.
        self.entries
            .retain(|entry| entry.stored.method != Method::Folder);
        self.entries.sort_unstable_by_key(|entry| entry.name);
        self.tops.sort_unstable();
        self.tops.dedup();
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

    /// Rejects overlapping members: they unpack to more than the package could contain, and no honest tool creates them. `header`: the
    /// length of what precedes the bytes of a member, in bytes; `end`: where the last one ends.
    pub(super) fn check_overlaps(&mut self, header: u64, end: u64) -> Result<(), PackageError> {
        self.entries.sort_unstable_by_key(|entry| entry.stored.at);
        let ends = self.entries.iter().skip(1).map(|next| next.stored.at);
        for (entry, end) in self.entries.iter().zip(ends.chain([end])) {
            let own_end = entry
                .stored
                .at
                .checked_add(header)
                .and_then(|at| at.checked_add(entry.stored.packed));
            if own_end.is_none_or(|own_end| own_end > end) {
                return Err(PackageError::Damaged("members overlap".to_owned()));
            }
        }
        Ok(())
    }

    /// The manifest at the top.
    pub(super) fn manifest(&self) -> Result<&Stored, PackageError> {
        let manifest = only(self.named(&["manifest.xml"]), "manifest.xml")?;
        let manifest = match manifest {
            None => only(&self.odd_manifests, "manifest.xml")?,
            manifest => manifest,
        };
        manifest.ok_or(PackageError::NoManifest)
    }

    /// The members of that name.
    pub(super) fn named(&self, segments: &[&str]) -> impl Iterator<Item = &Stored> + use<'_> {
        let hash = self.hash(segments);
        let start = self.entries.partition_point(|entry| entry.name < hash);
        let found = self.entries[start..].iter();
        let found = found.take_while(move |entry| entry.name == hash);
        found.map(|entry| &entry.stored)
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

/// The only one of the members, if there is any. Several with the same bytes count as one; others are ambiguous.
pub(super) fn only<'a>(
    members: impl IntoIterator<Item = &'a Stored>,
    path: &str,
) -> Result<Option<&'a Stored>, PackageError> {
    let mut members = members.into_iter();
    let first = members.next();
    let is_same = |other: &Stored| {
        first.is_some_and(|first| (first.check, first.length) == (other.check, other.length))
    };
    if members.all(is_same) {
        Ok(first)
    } else {
        Err(PackageError::AmbiguousMember(path.to_owned()))
    }
}

/// The segments of a name, without empty ones and `.`. A backslash separates them as well.
pub(super) fn segments(name: &str) -> Vec<&str> {
    name.split(['/', '\\'])
        .filter(|segment| !matches!(*segment, "" | "."))
        .collect()
}

/// Whether it is the name of a folder.
pub(super) fn is_folder(name: &str) -> bool {
    name.ends_with(['/', '\\'])
}

/// Whether it is the name of the manifest (sections 11.2 and 13.2), in any case.
fn is_manifest(segments: &[&str]) -> bool {
    matches!(segments, [only] if only.eq_ignore_ascii_case("manifest.xml"))
}
