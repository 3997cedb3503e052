//! Reading a mirror, also while another process has it open.

use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType};
use rustix::io::Errno;

use super::objects::{self, ObjectFiles};
use super::tree::{FolderTree, kind};
use super::{MirrorError, MirrorFile, MirrorPlace};
use crate::mirror_path::{BadPath, MirrorPath, OWN_FOLDER};

/// The files of a mirror.
pub type FoundFiles<'a> = Box<dyn Iterator<Item = Result<MirrorPath, MirrorError>> + 'a>;

/// A mirror that is open for reading only, without the lock.
pub struct MirrorReader(Reading);

enum Reading {
    Folder(FolderTree),
    Objects(Arc<dyn ObjectFiles>),
}

impl MirrorReader {
    /// Opens an existing mirror.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if there is none, others if it can't be read.
    pub fn open(place: impl Into<MirrorPlace>) -> Result<Self, MirrorError> {
        let root = place.into();
        if let Some(store) = root.objects() {
            return Ok(Self(Reading::Objects(objects::open(store)?)));
        }
        let failed =
            |errno| MirrorError::classify_lookup("opening", &root.display().to_string(), errno);
        let tree = FolderTree::open(&root, Arc::new(())).map_err(failed)?;
        Ok(Self(Reading::Folder(tree)))
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: &MirrorPath) -> Result<MirrorFile, MirrorError> {
        match &self.0 {
            Reading::Folder(tree) => open_file(tree, path),
            Reading::Objects(objects) => objects.open_file(path),
        }
    }

    /// All published files, in no order. Staged files, symlinks and invalid paths are left out. Memory grows with the widest
    /// folder, not with the mirror.
    pub fn files(&self) -> FoundFiles<'_> {
        match &self.0 {
            Reading::Folder(tree) => Box::new(Files::of(tree)),
            Reading::Objects(objects) => objects.files(),
        }
    }

    /// The same of a folder that is no mirror: also the files that are directly in it, but none with a name, or in a folder with one, that
    /// begins with a dot; those in its folder `below`, or empty: all.
    pub fn files_of_folder(&self, below: &str) -> FoundFiles<'_> {
        match &self.0 {
            Reading::Folder(tree) => Box::new(Files {
                folders: vec![below.to_owned()],
                parse: MirrorPath::parse_in_folder,
                skips_hidden: true,
                ..Files::of(tree)
            }),
            Reading::Objects(objects) => objects.files(),
        }
    }

    /// The names of the files in a folder, with their lengths in bytes, in no order; none if it does not exist. Other folders,
    /// symlinks and names that are no UTF-8 are left out.
    pub fn names_in(&self, folder: &MirrorPath) -> Result<Vec<(String, u64)>, MirrorError> {
        match &self.0 {
            Reading::Folder(tree) => names_in(tree, folder),
            Reading::Objects(objects) => objects.names_in(folder),
        }
    }
}

fn names_in(tree: &FolderTree, folder: &MirrorPath) -> Result<Vec<(String, u64)>, MirrorError> {
    let failed = |errno| MirrorError::classify_lookup("listing", folder.as_str(), errno);
    let opened = match tree.folder(folder.as_str()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        opened => opened.map_err(failed)?,
    };
    let mut names = Vec::new();
    for entry in Dir::read_from(&opened).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let found = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
        match found {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {
                let length = u64::try_from(found.st_size).unwrap_or_default();
                names.push((name.to_owned(), length));
            }
            // It may be gone by now.
            _ => {}
        }
    }
    Ok(names)
}

/// Opens a file without following symlinks.
pub(super) fn open_file(tree: &FolderTree, path: &MirrorPath) -> Result<MirrorFile, MirrorError> {
    let opened = tree.file(path.as_str());
    opened
        .map(MirrorFile::from)
        .map_err(|errno| MirrorError::classify_lookup("opening", path.as_str(), errno))
}

/// An iterator over the files of a mirror.
pub(super) struct Files<'a> {
    tree: &'a FolderTree,
    /// Folders that were not listed yet.
    folders: Vec<String>,
    /// Files of the folder that was listed last.
    files: Vec<MirrorPath>,
    parse: fn(&str) -> Result<MirrorPath, BadPath>,
    /// Whether what has a name that begins with a dot is left out.
    skips_hidden: bool,
}

impl<'a> Files<'a> {
    pub(super) fn of(tree: &'a FolderTree) -> Self {
        Self {
            tree,
            folders: vec![String::new()],
            files: Vec::new(),
            parse: MirrorPath::parse,
            skips_hidden: false,
        }
    }

    /// Lists one folder.
    fn list(&mut self, folder: &str) -> Result<(), Errno> {
        let opened = match self.tree.folder(folder) {
            // It was pruned or replaced since its parent was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !folder.is_empty() => return Ok(()),
            opened => opened?,
        };
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let path = match folder {
                "" => name.to_owned(),
                folder => format!("{folder}/{name}"),
            };
            let is_hidden = self.skips_hidden && name.starts_with('.');
            if matches!(name, "." | "..") || path == OWN_FOLDER || is_hidden {
                continue;
            }
            let file_type = match entry.file_type() {
                // Some file systems do not report it here.
                FileType::Unknown => kind(&opened, name)?,
                known => Some(known),
            };
            match file_type {
                Some(FileType::Directory) => self.folders.push(path),
                Some(FileType::RegularFile) => self.files.extend((self.parse)(&path)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Iterator for Files<'_> {
    type Item = Result<MirrorPath, MirrorError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(path) = self.files.pop() {
                return Some(Ok(path));
            }
            let folder = self.folders.pop()?;
            if let Err(errno) = self.list(&folder) {
                return Some(Err(MirrorError::classify("listing", &folder, errno)));
            }
        }
    }
}
