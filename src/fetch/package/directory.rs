//! What members a package has, and where.
//!
//! Names are not kept: a member takes the same few bytes whatever its name, so that a package with a million members
//! is opened in some fifty megabytes. They are found by a hash with a random key, which nobody can aim at.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use super::PackageError;
use super::name;
use super::records::{CentralHeader, LOCAL_LENGTH, find_directory};
use super::section::Section;

/// The file type of a symbolic link, and what tells file types, in a mode of Unix.
const SYMLINK: u32 = 0o120_000;
const FILE_TYPE: u32 = 0o170_000;

/// How a member's bytes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    Encrypted,
    Folder,
    /// Not a file: its bytes are the name of something else.
    Symlink,
    Unknown(u16),
}

/// Where a member is, and what the directory says of it.
#[derive(Clone, Debug)]
pub(super) struct Place {
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
    places: Vec<Place>,
    /// The hashes of the folders at the top.
    tops: Vec<u64>,
    /// The folder that all members but the manifest are in, as its segments; `None` while there is no member.
    common: Option<Vec<String>>,
    manifest: Found,
    /// The same, with a name in another case.
    odd_manifest: Found,
    members: usize,
}

/// What was found under a name.
#[derive(Debug, Default)]
enum Found {
    #[default]
    Nothing,
    One(Place),
    /// Several, of different content.
    Several,
}

impl Directory {
    /// Reads the directory of a package, of `most` members at most.
    pub(super) fn read(file: &Arc<File>, length: u64, most: usize) -> Result<Self, PackageError> {
        let extent = find_directory(file, length)?;
        let mut headers = Section::new(Arc::clone(file), extent.start, extent.length);
        let mut directory = Self {
            hashes: RandomState::new(),
            places: Vec::new(),
            tops: Vec::new(),
            common: None,
            manifest: Found::Nothing,
            odd_manifest: Found::Nothing,
            members: 0,
        };
        while let Some(header) = CentralHeader::read(&mut headers)? {
            directory.members += 1;
            if directory.members > most {
                return Err(PackageError::TooManyMembers { limit: most });
            }
            directory.add(header, extent.shift)?;
        }
        // Without ZIP64 the number has 16 bits, and some write more members than that.
        let count = directory.members as u64;
        if count != extent.count && count % (1 << 16) != extent.count {
            return Err(PackageError::Damaged(
                "its directory has another number of members than it says".to_owned(),
            ));
        }
        directory.check_overlaps(extent.start)?;
        // A folder has no bytes, but it lies somewhere; from here on it only is in the way of files.
        directory
            .places
            .retain(|place| place.method != Method::Folder);
        directory.places.sort_unstable_by_key(|place| place.name);
        directory.tops.sort_unstable();
        directory.tops.dedup();
        Ok(directory)
    }

    fn add(&mut self, header: CentralHeader, shift: u64) -> Result<(), PackageError> {
        let method = method(&header);
        let written = name::decode(&header.name);
        let segments = name::segments(&written);
        let place = Place {
            name: self.hash(&segments),
            header: header.header.checked_add(shift).ok_or_else(|| {
                PackageError::Damaged("a position in its directory is too large".to_owned())
            })?,
            packed: header.packed,
            length: header.length,
            crc: header.crc,
            method,
        };
        let is_manifest = name::is_manifest(&segments) && method != Method::Folder;
        if is_manifest {
            let found = match segments[..] {
                ["manifest.xml"] => &mut self.manifest,
                _ => &mut self.odd_manifest,
            };
            found.add(&place);
        }
        self.places.push(place);
        if let [top, _, ..] = segments[..] {
            let top = self.hash(&[top]);
            // Members of one folder mostly stand together.
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

    /// Members that share bytes unpack to more than the package could hold; nobody makes them by honest means.
    fn check_overlaps(&mut self, directory: u64) -> Result<(), PackageError> {
        self.places.sort_unstable_by_key(|place| place.header);
        let ends = self.places.iter().skip(1).map(|next| next.header);
        for (place, end) in self.places.iter().zip(ends.chain([directory])) {
            let own_end = place
                .header
                .checked_add(LOCAL_LENGTH)
                .and_then(|at| at.checked_add(place.packed));
            if own_end.is_none_or(|own_end| own_end > end) {
                return Err(PackageError::Damaged("its members overlap".to_owned()));
            }
        }
        Ok(())
    }

    /// The manifest at the top.
    pub(super) fn manifest(&self) -> Result<&Place, PackageError> {
        let found = match &self.manifest {
            Found::Nothing => &self.odd_manifest,
            found => found,
        };
        match found {
            Found::Nothing => Err(PackageError::NoManifest),
            Found::One(place) => Ok(place),
            Found::Several => Err(PackageError::AmbiguousMember("manifest.xml".to_owned())),
        }
    }

    /// The members that have that name.
    pub(super) fn named(&self, segments: &[&str]) -> &[Place] {
        let hash = self.hash(segments);
        let start = self.places.partition_point(|place| place.name < hash);
        let found = self.places[start..].partition_point(|place| place.name == hash);
        &self.places[start..start + found]
    }

    /// Whether any member is in the folder at the top of that name.
    pub(super) fn has_folder(&self, top: &str) -> bool {
        self.tops.binary_search(&self.hash(&[top])).is_ok()
    }

    /// The segments of the folder that all members but the manifest are in.
    pub(super) fn common_folder(&self) -> &[String] {
        self.common.as_deref().unwrap_or_default()
    }

    /// How many members it has.
    pub(super) fn len(&self) -> usize {
        self.members
    }

    fn hash(&self, segments: &[&str]) -> u64 {
        self.hashes.hash_one(segments)
    }
}

impl Found {
    fn add(&mut self, place: &Place) {
        *self = match std::mem::take(self) {
            Self::Nothing => Self::One(place.clone()),
            Self::One(known) if known.same_bytes(place) => Self::One(known),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

impl Place {
    /// Whether two members have the same content, as far as the directory tells.
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
