//! The folder where packages are until they have been read.

use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, Mode, mkdirat, unlinkat};
use rustix::io::Errno;

use super::path::OWN_FOLDER;
use super::{Mirror, MirrorError};

const PACKAGES: &str = ".resyncd/packages";

impl Mirror {
    /// The folder for packages, in the mirror's own file system; makes it if need be. What is in it stays when the mirror is
    /// opened anew: a download goes on where it was.
    ///
    /// # Errors
    /// [`MirrorError`], when it can't be made, or something else is in its place.
    pub fn package_folder(&self) -> Result<PathBuf, MirrorError> {
        let fault = |errno| MirrorError::sort("making", PACKAGES, errno);
        let own = self.tree.folder(OWN_FOLDER).map_err(fault)?;
        // Whoever may read the mirror has no business with what is not part of it.
        match mkdirat(&own, "packages", Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fault(errno)),
        }
        self.tree.folder(PACKAGES).map_err(fault)?;
        Ok(self.root.join(PACKAGES))
    }

    /// Removes the packages that are not wanted any more: all files whose name, up to its first dot, `keep` does not agree
    /// to. How many files were removed.
    ///
    /// # Errors
    /// [`MirrorError`], when the folder can't be read, or a file not be removed.
    pub fn sweep_packages(&self, keep: &dyn Fn(&str) -> bool) -> Result<usize, MirrorError> {
        let fault = |errno| MirrorError::sort("sweeping", PACKAGES, errno);
        let folder = match self.tree.folder(PACKAGES) {
            Err(Errno::NOENT) => return Ok(0),
            folder => folder.map_err(fault)?,
        };
        let mut removed = 0;
        for entry in Dir::read_from(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stem = name.to_bytes().split(|byte| *byte == b'.').next();
            let stem = std::str::from_utf8(stem.unwrap_or_default());
            if stem.is_ok_and(keep) {
                continue;
            }
            match unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) => removed += 1,
                // Somebody's folder is not ours to remove. (PERM: what POSIX says instead of ISDIR.)
                Err(Errno::ISDIR | Errno::PERM | Errno::NOENT) => {}
                Err(errno) => return Err(fault(errno)),
            }
        }
        Ok(removed)
    }
}
