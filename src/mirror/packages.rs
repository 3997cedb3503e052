//! The folder where packages are until they have been read.

use std::path::PathBuf;

use rustix::io::Errno;

use super::beneath::{make, sweep};
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
        make(&own, "packages", 0o700).map_err(fault)?;
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
        let keeps = |name: &[u8]| {
            let stem = name.split(|byte| *byte == b'.').next();
            std::str::from_utf8(stem.unwrap_or_default()).is_ok_and(keep)
        };
        sweep(&folder, keeps).map_err(fault)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn packages_stay_when_the_mirror_is_opened_anew_until_nobody_wants_them() {
        let base = tempfile::tempdir().unwrap();
        let mirror = Mirror::open(base.path()).unwrap();
        assert_eq!(mirror.sweep_packages(&|_| false), Ok(0), "there is none");
        let folder = mirror.package_folder().unwrap();
        assert_eq!(folder, base.path().join(".resyncd/packages"));
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        for name in ["one.part", "one.json", "two.part", "two.json", "two.new"] {
            fs::write(folder.join(name), name).unwrap();
        }
        fs::create_dir(folder.join("somebody's")).unwrap();
        drop(mirror);

        let mirror = Mirror::open(base.path()).unwrap();
        assert_eq!(mirror.package_folder().unwrap(), folder);
        assert_eq!(mirror.sweep_packages(&|_| true), Ok(0));
        assert_eq!(mirror.sweep_packages(&|name| name == "one"), Ok(3));
        let left = fs::read_dir(&folder).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["one.json", "one.part", "somebody's"]);
        assert!(mirror.files().next().is_none(), "they are not resources");
    }

    #[test]
    fn a_symlink_in_place_of_the_folder_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("file"), "").unwrap();
        let mirror = Mirror::open(base.path()).unwrap();
        symlink(outside.path(), base.path().join(PACKAGES)).unwrap();
        assert_eq!(mirror.package_folder().unwrap_err().code(), "path-blocked");
        assert!(mirror.sweep_packages(&|_| false).is_err());
        assert!(outside.path().join("file").exists());
    }
}
