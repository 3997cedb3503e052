//! Packages whose members have the names of files, as those of ZIP and of tar: how the path in a manifest finds one.
//!
//! Names are not stored: a member takes the same few bytes whatever its name, so that a package with a million members is
//! opened in about fifty megabytes. Members are found by a hash with a random key, so that collisions can't be prepared.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::error::PackageError;
use super::member::MemberReader;
use super::section::Section;
use super::zip;

/// The name of the manifest (sections 11.2 and 13.2).
const MANIFEST: &str = "manifest.xml";

/// The maximum depth of a path that is also searched without some of its folders.
const MAX_REBASED_DEPTH: usize = 64;

/// How the bytes of a member are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// At the position of the member, and not verified.
    Plain,
    /// As in a ZIP file.
    Stored,
    /// As in a ZIP file.
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

/// The members by their names.
#[derive(Debug)]
pub(super) struct FileTree {
    file: Arc<File>,
    hashes: RandomState,
    /// By the hash of the name.
    entries: Vec<(u64, Stored)>,
    /// The hashes of the folders at the top.
    tops: Vec<u64>,
    /// The common folder of all members except the manifest, as its segments; `None` while there is no member.
    common: Option<Vec<String>>,
    /// The members that are manifests with a name in another case.
    odd_manifests: Vec<Stored>,
    members: usize,
    limit: usize,
}

impl FileTree {
    /// A tree for at most `limit` members of a file.
    pub(super) fn new(file: &Arc<File>, limit: usize) -> Self {
        Self {
            file: Arc::clone(file),
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
            return Err(PackageError::TooManyMembers(self.limit));
        }
        let segments = segments(name);
        if let [top, _, ..] = segments[..] {
            let top = self.hash(&[top]);
            // Members of one folder are mostly adjacent.
            if self.tops.last() != Some(&top) {
                self.tops.push(top);
            }
        }
        match &segments[..] {
            _ if stored.method == Method::Folder => {}
            [MANIFEST] => {}
            [only] if only.eq_ignore_ascii_case(MANIFEST) => {
                self.odd_manifests.push(stored.clone());
            }
            [folder @ .., _] => {
                let first = || folder.iter().copied().map(str::to_owned).collect();
                let common = self.common.get_or_insert_with(first);
                let both = common.iter().zip(folder);
                let same = both.take_while(|(own, its)| own == its).count();
                common.truncate(same);
            }
            [] => {}
        }
        self.entries.push((self.hash(&segments), stored));
        Ok(())
    }

    /// Rejects overlapping members: they unpack to more than the package could contain, and no honest tool creates them. `header`: the
    /// length of what precedes the bytes of a member, in bytes; `end`: where the last one ends.
    pub(super) fn check_overlaps(&mut self, header: u64, end: u64) -> Result<(), PackageError> {
        self.entries.sort_unstable_by_key(|(_, stored)| stored.at);
        let members = self.entries.iter().map(|(_, stored)| stored);
        let ends = members.clone().skip(1).map(|next| next.at).chain([end]);
        let fits = |(own, end): (&Stored, u64)| {
            let start = own.at.checked_add(header);
            let own_end = start.and_then(|start| start.checked_add(own.packed));
            own_end.is_some_and(|own_end| own_end <= end)
        };
        if members.zip(ends).all(fits) {
            Ok(())
        } else {
            Err(PackageError::damaged("members overlap"))
        }
    }

    /// Ends the tree: members can be searched from now on.
    pub(super) fn finish(&mut self) {
        // A folder has a position but no bytes.
        self.entries
            .retain(|(_, stored)| stored.method != Method::Folder);
        self.entries.sort_unstable_by_key(|(name, _)| *name);
        self.tops.sort_unstable();
        self.tops.dedup();
    }

    /// Opens the manifest at the top.
    pub(super) fn manifest(&self) -> Result<MemberReader, PackageError> {
        let manifest = match only(self.named(&[MANIFEST]), MANIFEST)? {
            None => only(&self.odd_manifests, MANIFEST)?,
            manifest => manifest,
        };
        self.open(manifest.ok_or(PackageError::NoManifest)?)
    }

    /// Opens the member at a path. Leading slashes, `./` and the direction of slashes are ignored. If no member has that name, it is
    /// searched without leading folders: see [`MemberReader::is_rebased`].
    pub(super) fn member(&self, path: &str) -> Result<MemberReader, PackageError> {
        let segments = segments(path);
        if let Some(stored) = only(self.named(&segments), path)? {
            return self.open(stored);
        }
        let names = self.rebased(&segments);
        let found = only(names.iter().flat_map(|name| self.named(name)), path)?;
        let stored = found.ok_or_else(|| PackageError::NoMember(path.to_owned()))?;
        let mut member = self.open(stored)?;
        member.is_rebased = true;
        Ok(member)
    }

    /// The number of members.
    pub(super) fn len(&self) -> usize {
        self.members
    }

    fn open(&self, stored: &Stored) -> Result<MemberReader, PackageError> {
        match stored.method {
            Method::Plain => {
                let section = Section::new(&self.file, stored.at, stored.length);
                Ok(MemberReader::new(section, Some(stored.length)))
            }
            Method::Stored | Method::Deflated => zip::member(&self.file, stored),
            Method::Encrypted => Err(PackageError::Encrypted),
            Method::Unknown(method) => Err(PackageError::Compression(method)),
            Method::Outside => Err(PackageError::bad_member(
                "its name leads out of the package",
            )),
            Method::Folder | Method::NotFile => Err(PackageError::bad_member("not a file")),
        }
    }

    /// The names that a path may stand for: the path without leading folders, as few of them as possible; and the path below leading
    /// folders that all members have in common.
    fn rebased<'a>(&'a self, path: &[&'a str]) -> Vec<Vec<&'a str>> {
        let common = self.common.as_deref().unwrap_or_default();
        let mut names = Vec::new();
        if path.is_empty() || path.len().max(common.len()) > MAX_REBASED_DEPTH {
            return names;
        }
        // If the package has the folder, the member is missing from it.
        if self.tops.binary_search(&self.hash(&path[..1])).is_err() {
            let mut shorter = (1..path.len()).map(|start| path[start..].to_vec());
            names.extend(shorter.find(|name| self.named(name).next().is_some()));
        }
        let common: Vec<&str> = common.iter().map(String::as_str).collect();
        let longer = (1..=common.len()).map(|length| [&common[..length], path].concat());
        names.extend(longer);
        names
    }

    /// The members of that name.
    fn named(&self, segments: &[&str]) -> impl Iterator<Item = &Stored> + use<'_> {
        let hash = self.hash(segments);
        let start = self.entries.partition_point(|(name, _)| *name < hash);
        let found = self.entries[start..].iter();
        let found = found.take_while(move |(name, _)| *name == hash);
        found.map(|(_, stored)| stored)
    }

    fn hash(&self, segments: &[&str]) -> u64 {
        self.hashes.hash_one(segments)
    }
}

/// The only one of the members, if there is any. Several with the same bytes count as one; others are ambiguous.
fn only<'a>(
    members: impl IntoIterator<Item = &'a Stored>,
    path: &str,
) -> Result<Option<&'a Stored>, PackageError> {
    let mut members = members.into_iter();
    let first = members.next();
    let bytes = |stored: &Stored| (stored.check, stored.length);
    if members.all(|other| first.map(bytes) == Some(bytes(other))) {
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
