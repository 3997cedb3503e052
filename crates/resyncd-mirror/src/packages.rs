//! The folder of packages that are being downloaded or read.

use std::path::PathBuf;

use rustix::io::Errno;

use super::tree::{create_folder, sweep};
use super::{Mirror, MirrorError};
use crate::mirror_path::OWN_FOLDER;

const PACKAGES: &str = ".resyncd/packages";

impl Mirror {
    /// The folder for packages, in the file system of the mirror; created if necessary. Its files survive a restart, so that
    /// downloads are resumed.
    pub fn package_folder(&self) -> Result<PathBuf, MirrorError> {
        let failed = |errno| MirrorError::classify("creating", PACKAGES, errno);
        let own = self.tree.folder(OWN_FOLDER).map_err(failed)?;
        // Not readable by those who may read the mirror: packages are not part of it.
        create_folder(&own, "packages", 0o700, &*self.tree.disk).map_err(failed)?;
        self.tree.folder(PACKAGES).map_err(failed)?;
        Ok(self.root.join(PACKAGES))
    }

    /// Removes the files of packages whose name, up to its first dot, is rejected by `retain`; returns their number.
    pub fn sweep_packages(&self, retain: &dyn Fn(&str) -> bool) -> Result<usize, MirrorError> {
        let failed = |errno| MirrorError::classify("sweeping", PACKAGES, errno);
        let folder = match self.tree.folder(PACKAGES) {
            Err(Errno::NOENT) => return Ok(0),
            folder => folder.map_err(failed)?,
        };
        let retained = |name: &[u8]| {
            let stem = name.split(|byte| *byte == b'.').next();
            std::str::from_utf8(stem.unwrap_or_default()).is_ok_and(retain)
        };
        sweep(&folder, retained, &*self.tree.disk).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn packages_survive_reopening_until_they_are_swept() {
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
    fn a_symlink_in_place_of_the_folder_is_rejected() {
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
