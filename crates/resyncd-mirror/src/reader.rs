//! Reading a mirror, also while another process has it open.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::MirrorError;
use super::tree::{FolderTree, kind};
use crate::mirror_path::{BadPath, MirrorPath, OWN_FOLDER};

/// A mirror that is open for reading only, without the lock.
pub struct MirrorReader {
    pub(super) tree: FolderTree,
}

impl MirrorReader {
    /// Opens an existing mirror.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if there is none, others if it can't be read.
    pub fn open(root: &Path) -> Result<Self, MirrorError> {
        let failed =
            |errno| MirrorError::classify_lookup("opening", &root.display().to_string(), errno);
        let tree = FolderTree::open(root, Arc::new(())).map_err(failed)?;
        Ok(Self { tree })
    }

    /// Opens a file for reading.
    pub fn open_file(&self, path: &MirrorPath) -> Result<File, MirrorError> {
        open_file(&self.tree, path)
    }

    /// All published files, in no order. Staged files, symlinks and invalid paths are left out. Memory grows with the widest
    /// folder, not with the mirror.
    pub fn files(&self) -> Files<'_> {
        Files::of(&self.tree)
    }

    /// The same of a folder that is no mirror: also the files that are directly in it, but none with a name, or in a folder with one, that
    /// begins with a dot; those in its folder `below`, or empty: all.
    pub fn files_of_folder(&self, below: &str) -> Files<'_> {
        Files {
            folders: vec![below.to_owned()],
            parse: MirrorPath::parse_in_folder,
            skips_hidden: true,
            ..Files::of(&self.tree)
        }
    }
}

/// Opens a file without following symlinks.
pub(super) fn open_file(tree: &FolderTree, path: &MirrorPath) -> Result<File, MirrorError> {
    tree.file(path.as_str())
        .map_err(|errno| MirrorError::classify_lookup("opening", path.as_str(), errno))
}

/// An iterator over the files of a mirror.
pub struct Files<'a> {
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
