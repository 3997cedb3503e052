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

/// How many members a package may have.
pub(super) const MOST_MEMBERS: usize = 1_000_000;

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
    last: u64,
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
    /// Indexes of places, by the hash of the last segment of the name.
    by_last: Vec<u32>,
    manifest: Option<Result<Place, ()>>,
}

impl Directory {
    /// Reads the directory of a package.
    pub(super) fn read(file: &Arc<File>, length: u64) -> Result<Self, PackageError> {
        let extent = find_directory(file, length)?;
        let mut headers = Section::new(Arc::clone(file), extent.start, extent.length);
        let mut directory = Self {
            hashes: RandomState::new(),
            places: Vec::new(),
            by_last: Vec::new(),
            manifest: None,
        };
        let mut count = 0_u64;
        while let Some(header) = CentralHeader::read(&mut headers)? {
            count += 1;
            if count > MOST_MEMBERS as u64 {
                return Err(PackageError::TooManyMembers {
                    limit: MOST_MEMBERS,
                });
            }
            directory.add(header, extent.shift)?;
        }
        // Without ZIP64 the number has 16 bits, and some write more members than that.
        if count != extent.count && count % (1 << 16) != extent.count {
            return Err(PackageError::Damaged(
                "its directory has another number of members than it says".to_owned(),
            ));
        }
        directory.check_overlaps(extent.start)?;
        directory.places.sort_unstable_by_key(|place| place.name);
        let count = u32::try_from(directory.places.len()).unwrap_or(u32::MAX);
        directory.by_last = (0..count).collect();
        let places = &directory.places;
        directory
            .by_last
            .sort_unstable_by_key(|index| places[*index as usize].last);
        Ok(directory)
    }

    fn add(&mut self, header: CentralHeader, shift: u64) -> Result<(), PackageError> {
        let method = method(&header);
        let written = name::decode(&header.name);
        let segments = name::segments(&written);
        let place = Place {
            name: self.hash(&segments),
            last: self.hash(&segments[segments.len().saturating_sub(1)..]),
            header: header.header.checked_add(shift).ok_or_else(|| {
                PackageError::Damaged("a position in its directory is too large".to_owned())
            })?,
            packed: header.packed,
            length: header.length,
            crc: header.crc,
            method,
        };
        if name::is_manifest(&segments) && method != Method::Folder {
            self.manifest = Some(match self.manifest.take() {
                None => Ok(place.clone()),
                Some(Ok(known)) if known.same_bytes(&place) => Ok(known),
                Some(_) => Err(()),
            });
        }
        self.places.push(place);
        Ok(())
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
        match &self.manifest {
            None => Err(PackageError::NoManifest),
            Some(Ok(place)) => Ok(place),
            Some(Err(())) => Err(PackageError::AmbiguousMember("manifest.xml".to_owned())),
        }
    }

    /// The members that have that name.
    pub(super) fn named(&self, segments: &[&str]) -> &[Place] {
        let hash = self.hash(segments);
        let start = self.places.partition_point(|place| place.name < hash);
        let found = self.places[start..].partition_point(|place| place.name == hash);
        &self.places[start..start + found]
    }

    /// The members whose names end in that segment.
    pub(super) fn ending_in(&self, segment: &str) -> impl Iterator<Item = &Place> {
        let hash = self.hash(&[segment]);
        let of = |index: &u32| &self.places[*index as usize];
        let start = self.by_last.partition_point(|index| of(index).last < hash);
        self.by_last[start..]
            .iter()
            .map(of)
            .take_while(move |place| place.last == hash)
    }

    /// How many members it has.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn hash(&self, segments: &[&str]) -> u64 {
        self.hashes.hash_one(segments)
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
