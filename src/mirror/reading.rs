//! Reading a mirror: what a look at it needs, also while another process has it open.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use super::beneath::{Beneath, kind};
use super::path::OWN_FOLDER;
use super::{MirrorError, MirrorPath};

/// A mirror that is only looked at: it takes no lock and changes nothing.
pub struct MirrorReader {
    tree: Beneath,
}

impl MirrorReader {
    /// Opens a mirror that is there.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] when it is not, others when it can't be read.
    pub fn open(root: &Path) -> Result<Self, MirrorError> {
        let fault =
            |errno| MirrorError::sort_looking("opening", &root.display().to_string(), errno);
        let tree = Beneath::open(root).map_err(fault)?;
        Ok(Self { tree })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`Mirror::open_file`](super::Mirror::open_file).
    pub fn open_file(&self, path: &MirrorPath) -> Result<File, MirrorError> {
        open_file(&self.tree, path)
    }

    /// All files that have a path of ours, in no order. Working files, symlinks, and names that this room never makes
    /// are passed over; memory grows with the widest folder, not with the mirror.
    pub fn files(&self) -> Files<'_> {
        Files::of(&self.tree)
    }
}

/// Opens a file, symlinks not followed.
pub(super) fn open_file(tree: &Beneath, path: &MirrorPath) -> Result<File, MirrorError> {
    tree.file(path.folder(), path.name())
        .map_err(|errno| MirrorError::sort_looking("opening", path.as_str(), errno))
}

/// The files of a mirror, one after the other.
pub struct Files<'a> {
    tree: &'a Beneath,
    /// Folders that were not looked at yet.
    folders: Vec<String>,
    /// What the folder that was looked at last holds.
    found: Vec<MirrorPath>,
}

impl<'a> Files<'a> {
    pub(super) fn of(tree: &'a Beneath) -> Self {
        Self {
            tree,
            folders: vec![String::new()],
            found: Vec::new(),
        }
    }

    /// Looks into one folder.
    fn look(&mut self, folder: &str) -> Result<(), Errno> {
        let opened = match self.tree.folder(folder) {
            // It was pruned, or replaced, since its parent was looked at.
            Err(Errno::NOENT | Errno::NOTDIR) if !folder.is_empty() => return Ok(()),
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
            if matches!(name, "." | "..") || path == OWN_FOLDER {
                continue;
            }
            let found = match entry.file_type() {
                // Some file systems don't tell.
                FileType::Unknown => kind(&opened, name)?,
                known => Some(known),
            };
            match found {
                Some(FileType::Directory) => self.folders.push(path),
                Some(FileType::RegularFile) => self.found.extend(MirrorPath::parse(&path)),
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
            if let Some(path) = self.found.pop() {
                return Some(Ok(path));
            }
            let folder = self.folders.pop()?;
            if let Err(errno) = self.look(&folder) {
                return Some(Err(MirrorError::sort("listing", &folder, errno)));
            }
        }
    }
}
