//! Why a file could not be staged, published, removed or opened.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a file could not be staged, published, removed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The file system or a quota is full; it may go on when there is room again.
    #[error("no space left: {doing} {path}")]
    DiskFull {
        /// What was being done, as `writing`.
        doing: &'static str,
        /// The file or folder it was done to.
        path: String,
    },
    /// The file system is mounted read-only.
    #[error("the file system is read-only: {doing} {path}")]
    ReadOnly {
        /// What was being done, as `writing`.
        doing: &'static str,
        /// The file or folder it was done to.
        path: String,
    },
    /// Anything else that the operating system refused.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done, as `writing`.
        doing: &'static str,
        /// The file or folder it was done to.
        path: String,
        /// What the operating system said.
        source: Errno,
    },
    /// Another process, or another [`Mirror`](super::Mirror) in this one, has the mirror open.
    #[error("the mirror {} is in use by another process", root.display())]
    Locked {
        /// The mirror's folder.
        root: PathBuf,
    },
    /// Something that is not ours to replace is in the way: a folder or a symlink at the file's name, a file or a
    /// symlink where a folder should be, a mount point, or a name that this file system can't hold. Another path helps.
    #[error("something is in the way of {path}")]
    Blocked {
        /// The path that can't be had.
        path: String,
    },
    /// There is no such file.
    #[error("{path} is not in the mirror")]
    Missing {
        /// The path that was asked for.
        path: String,
    },
    /// Not a path that this room makes: it could lead out of the mirror, or into its working files.
    #[error("{path:?} is not a path in a mirror: {reason}")]
    BadPath {
        /// What should have been a path.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl MirrorError {
    /// A stable name, for status, logs and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DiskFull { .. } => "disk-full",
            Self::ReadOnly { .. } => "read-only",
            Self::Io { .. } => "io",
            Self::Locked { .. } => "mirror-locked",
            Self::Blocked { .. } => "path-blocked",
            Self::Missing { .. } => "missing-file",
            Self::BadPath { .. } => "bad-path",
        }
    }

    /// Whether the same call may succeed later, when the operator or the machine has recovered. If not, only another
    /// path or another mirror helps.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::DiskFull { .. } | Self::ReadOnly { .. } | Self::Io { .. }
        )
    }

    /// What went wrong while an open file was read.
    #[must_use]
    pub fn reading(path: &str, error: &io::Error) -> Self {
        Self::sort_io("reading", path, error)
    }

    /// Sorts what the operating system said.
    pub(super) fn sort(doing: &'static str, path: &str, source: Errno) -> Self {
        let path = path.to_owned();
        match source {
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull { doing, path },
            Errno::ROFS => Self::ReadOnly { doing, path },
            // NAMETOOLONG: some file systems (encrypting ones) hold less than 255 bytes.
            Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::NAMETOOLONG | Errno::XDEV => {
                Self::Blocked { path }
            }
            source => Self::Io {
                doing,
                path,
                source,
            },
        }
    }

    /// The same where something was looked for: what is not there is not trouble, but an answer.
    pub(super) fn sort_looking(doing: &'static str, path: &str, source: Errno) -> Self {
        match source {
            Errno::NOENT => Self::Missing {
                path: path.to_owned(),
            },
            source => Self::sort(doing, path, source),
        }
    }

    /// The same for an error of the standard library.
    pub(super) fn sort_io(doing: &'static str, path: &str, error: &io::Error) -> Self {
        Self::sort(doing, path, errno(error))
    }
}

/// The system's number; what has none (a write of no bytes) counts as an input/output error.
pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disks_and_quotas_wait_and_blocked_paths_do_not() {
        let sort = |errno| MirrorError::sort("writing", "h/a", errno);
        for (errno, code, transient) in [
            (Errno::NOSPC, "disk-full", true),
            (Errno::DQUOT, "disk-full", true),
            (Errno::ROFS, "read-only", true),
            (Errno::IO, "io", true),
            (Errno::NOTDIR, "path-blocked", false),
            (Errno::LOOP, "path-blocked", false),
            (Errno::NAMETOOLONG, "path-blocked", false),
            (Errno::NOENT, "io", true),
        ] {
            let error = sort(errno);
            assert_eq!((error.code(), error.is_transient()), (code, transient));
        }
    }
}
