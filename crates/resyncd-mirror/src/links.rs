//! Files of another mirror: as hard links, or as copies.
//!
//! A file that is published is never changed, but replaced by another one: so two paths may share it. (Its time may be set anew, where
//! the Source states another one for the same bytes.)

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Result as IoResult};

use rustix::fs::{AtFlags, FileType, linkat};
use rustix::io::Errno;

use super::disk::DiskCall;
use super::staged::{CompletedFile, source_time};
use super::tree::kind;
use super::{Mirror, MirrorError, MirrorFile};
use crate::mirror_path::MirrorPath;

/// How much is copied at once, in bytes.
const CHUNK: usize = 256 * 1024;

impl Mirror {
    /// Stages a published file of another mirror: a hard link to it or, where that is not possible, a copy. It blocks.
    ///
    /// # Errors
    /// [`MirrorError::Missing`] if there is no such file.
    pub fn stage_file_of(
        &self,
        other: &Self,
        path: &MirrorPath,
    ) -> Result<CompletedFile, MirrorError> {
        match self.link_file_of(other, path)? {
            Some(file) => Ok(file),
            None => self.stage_copy_of(other.open_file(path)?, path),
        }
    }

    /// Stages a hard link to a published file of another mirror; `None`: that is not possible. It blocks.
    fn link_file_of(
        &self,
        other: &Self,
        path: &MirrorPath,
    ) -> Result<Option<CompletedFile>, MirrorError> {
        if self.objects.is_some() || other.objects.is_some() {
            return Ok(None);
        }
        let failed = |errno| MirrorError::classify_lookup("linking", path.as_str(), errno);
        let folder = other.tree.folder(path.folder()).map_err(failed)?;
        if kind(&folder, path.name()).map_err(failed)? == Some(FileType::RegularFile) {
            let linking = |staging: &rustix::fd::OwnedFd, name: &str| {
                self.tree.disk.before(DiskCall::Create, b"")?;
                linkat(&folder, path.name(), staging, name, AtFlags::empty())
            };
            match CompletedFile::linked(&self.staging, linking) {
                Ok(file) => return Ok(Some(file)),
                // Another file system, one without hard links, too many of them, or a file of somebody else.
                Err(
                    Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK | Errno::ACCESS,
                ) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(None)
    }

    /// As [`stage_file_of`](Self::stage_file_of), but copies no more than `most` bytes, and lowers that; `None`: it is longer. It blocks.
    pub fn stage_short_file_of(
        &self,
        other: &Self,
        path: &MirrorPath,
        most: &mut u64,
    ) -> Result<Option<CompletedFile>, MirrorError> {
        if let Some(file) = self.link_file_of(other, path)? {
            return Ok(Some(file));
        }
        let file = other.open_file(path)?;
        let length = file.metadata().map_or(u64::MAX, |found| found.length);
        let Some(left) = most.checked_sub(length) else {
            return Ok(None);
        };
        *most = left;
        self.stage_copy_of(file, path).map(Some)
    }

    fn stage_copy_of(
        &self,
        mut file: MirrorFile,
        path: &MirrorPath,
    ) -> Result<CompletedFile, MirrorError> {
        let failed = |error: std::io::Error| MirrorError::reading(path.as_str(), &error);
        let modified = source_time(file.metadata().map_err(failed)?.modified);
        let (mut staged, mut chunk) = (self.stage()?, vec![0; CHUNK]);
        loop {
            let read = file.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                return staged.finish(Some(modified));
            }
            staged.write(&chunk[..read])?;
        }
    }

    /// Whether the file at a path is that of another mirror: one file with two paths.
    pub fn shares_file_with(&self, path: &MirrorPath, other: &Self, of: &MirrorPath) -> bool {
        let identity = |file: Result<MirrorFile, MirrorError>| file.ok()?.identity();
        let own = identity(self.open_file(path));
        own.is_some() && own == identity(other.open_file(of))
    }
}

impl CompletedFile {
    /// Opens the file for reading.
    pub fn open(&self) -> IoResult<File> {
        self.open_staged().map_err(Into::into)
    }

    /// Whether it has the same bytes as another file. It blocks.
    pub fn has_bytes_of(&self, other: MirrorFile) -> IoResult<bool> {
        let own = MirrorFile::from(self.open()?);
        if own.identity() == other.identity() {
            return Ok(true);
        }
        if own.metadata()?.length != other.metadata()?.length {
            return Ok(false);
        }
        let (mut own, mut other) = (
            BufReader::with_capacity(CHUNK, own),
            BufReader::with_capacity(CHUNK, other),
        );
        loop {
            let (left, right) = (own.fill_buf()?, other.fill_buf()?);
            let common = left.len().min(right.len());
            if common == 0 {
                return Ok(left.len() == right.len());
            }
            if left[..common] != right[..common] {
                return Ok(false);
            }
            own.consume(common);
            other.consume(common);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tests::planned_faults::{FaultPlan, open_faulty};

    fn path(text: &str) -> MirrorPath {
        MirrorPath::parse(text).unwrap()
    }

    #[test]
    fn file_of_another_mirror_is_linked_and_stays_when_that_one_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let [mirror, versions] =
            ["mirror", "versions"].map(|name| Mirror::open(folder.path().join(name)).unwrap());
        let publish = |bytes: &[u8]| {
            let mut staged = mirror.stage().unwrap();
            staged.write(bytes).unwrap();
            let file = staged.finish(None).unwrap();
            let published = mirror.publish(vec![(file, path("h/a"))]);
            assert!(published.iter().all(Result::is_ok));
        };
        publish(b"first");
        let file = versions.stage_file_of(&mirror, &path("h/a")).unwrap();
        let mut bytes = String::new();
        file.open().unwrap().read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "first");
        let published = versions.publish(vec![(file, path("h/a/1"))]);
        assert!(published.iter().all(Result::is_ok));
        assert!(versions.shares_file_with(&path("h/a/1"), &mirror, &path("h/a")));
        publish(b"second");
        assert!(!versions.shares_file_with(&path("h/a/1"), &mirror, &path("h/a")));
        let root = folder.path();
        assert_eq!(fs::read(root.join("versions/h/a/1")).unwrap(), b"first");
        assert_eq!(fs::read(root.join("mirror/h/a")).unwrap(), b"second");
        let reader = crate::MirrorReader::open(root.join("versions")).unwrap();
        assert_eq!(
            reader.names_in(&path("h/a")).unwrap(),
            [("1".to_owned(), 5)]
        );
        assert!(reader.names_in(&path("h/b")).unwrap().is_empty());
        let absent = versions.stage_file_of(&mirror, &path("h/b"));
        assert!(matches!(absent, Err(MirrorError::Missing { .. })));
        assert!(
            fs::read_dir(root.join("versions/.resyncd/work"))
                .unwrap()
                .next()
                .is_none()
        );
    }

    #[test]
    fn file_that_is_reached_by_a_symlink_is_not_linked() {
        let folder = tempfile::tempdir().unwrap();
        let [mirror, versions] =
            ["mirror", "versions"].map(|name| Mirror::open(folder.path().join(name)).unwrap());
        let secret = folder.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::create_dir(folder.path().join("mirror/h")).unwrap();
        std::os::unix::fs::symlink(&secret, folder.path().join("mirror/h/a")).unwrap();
        assert!(versions.stage_file_of(&mirror, &path("h/a")).is_err());
    }

    #[test]
    fn copies_are_bounded_where_files_cannot_be_linked() {
        let folder = tempfile::tempdir().unwrap();
        let [mirror, versions] =
            ["mirror", "versions"].map(|name| open_faulty(&folder.path().join(name)).unwrap());
        fs::create_dir(folder.path().join("mirror/h")).unwrap();
        fs::write(folder.path().join("mirror/h/a"), "bytes").unwrap();
        let mut most = 9;
        let mut staged = |is_linked: bool| {
            let on_another = FaultPlan {
                of: &[DiskCall::Create],
                after: 0,
                errno: Errno::XDEV,
                lasting: false,
                injected: 0,
            };
            if !is_linked {
                on_another.begin();
            }
            let staged = versions.stage_short_file_of(&mirror, &path("h/a"), &mut most);
            FaultPlan::end();
            (staged.unwrap().is_some(), most)
        };
        assert_eq!(staged(true), (true, 9));
        assert_eq!(staged(false), (true, 4));
        assert_eq!(staged(false), (false, 4));
        assert_eq!(staged(true), (true, 4));
    }

    #[test]
    fn published_file_stays_where_only_new_ones_are_published() {
        let folder = tempfile::tempdir().unwrap();
        let versions = Mirror::open(folder.path()).unwrap();
        let publish = |bytes: &str| {
            let mut staged = versions.stage().unwrap();
            staged.write(bytes.as_bytes()).unwrap();
            let file = staged.finish(None).unwrap();
            let mut published = versions.publish_new(vec![(file, path("h/a/1"))]);
            published.remove(0)
        };
        publish("first").unwrap();
        let stored = || File::open(folder.path().join("h/a/1")).unwrap();
        for (bytes, is_same) in [("first", true), ("other", false), ("longer", false)] {
            let failed = publish(bytes).unwrap_err();
            assert_eq!(failed.error.code(), "version-conflict");
            let file = failed.file.unwrap();
            assert_eq!(
                file.has_bytes_of(stored().into()).unwrap(),
                is_same,
                "{bytes}"
            );
        }
        let mut bytes = String::new();
        stored().read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "first");
    }

    #[test]
    fn copy_has_the_bytes_and_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let versions = Mirror::open(folder.path().join("versions")).unwrap();
        let original = folder.path().join("original");
        fs::write(&original, vec![7; CHUNK + 1]).unwrap();
        let file = File::open(&original).unwrap();
        let time = resourcesync::SourceTime::from_micros(1_600_000_000_000_000);
        file.set_modified(super::super::file_time(time)).unwrap();
        let copied = versions.stage_copy_of(file.into(), &path("h/a")).unwrap();
        assert!(
            versions
                .publish(vec![(copied, path("h/a/1"))])
                .iter()
                .all(Result::is_ok)
        );
        let copy = folder.path().join("versions/h/a/1");
        assert_eq!(fs::read(&copy).unwrap(), vec![7; CHUNK + 1]);
        let modified = fs::metadata(&copy).unwrap().modified().unwrap();
        assert_eq!(modified, super::super::file_time(time));
    }
}
