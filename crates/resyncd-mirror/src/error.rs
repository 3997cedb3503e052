//! Why a file could not be staged, published, removed or opened.

use std::io;
use std::path::PathBuf;

use resyncd_core::ErrorClass;
use rustix::io::Errno;

use crate::mirror_path::BadPath;

/// Why a file could not be staged, published, removed or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// An error of the operating system: also that the file system is full or read-only.
    #[error("{}", io_text(doing, path, *source))]
    Io {
        /// The operation that failed, such as `writing`.
        doing: &'static str,
        /// The file or folder.
        path: String,
        /// The error of the operating system.
        source: Errno,
    },
    /// Another process, or another [`Mirror`](super::Mirror) in this one, has the mirror open.
    #[error("the mirror {} is in use by another process", root.display())]
    Locked {
        /// The mirror's folder.
        root: PathBuf,
    },
    /// The folder is not the mirror that was used so far.
    #[error("{} is not the mirror that was used so far: {}", root.display(), found(*is_other))]
    NotMounted {
        /// The mirror's folder.
        root: PathBuf,
        /// Whether it is another mirror, instead of none.
        is_other: bool,
    },
    /// The folder at the mirror's path is not, or no longer, the one that is open.
    #[error("the folder of the mirror is no longer at {}: it was moved, replaced, deleted or unmounted", root.display())]
    Moved {
        /// The mirror's folder, as it was opened.
        root: PathBuf,
    },
    /// The file system, or the folder, does not distinguish names by case: two resources would share a file.
    #[error("the file system of {} does not distinguish upper from lower case: two resources could share a file", root.display())]
    CaseInsensitive {
        /// The mirror's folder.
        root: PathBuf,
    },
    /// The path is occupied by something that must not be replaced: a folder or a symlink in place of the file, a file or a
    /// symlink in place of a folder, a mount point; or the file system does not support the name. Another path may work.
    #[error("the path {path} is blocked by something else")]
    Blocked {
        /// The path.
        path: String,
    },
    /// There is a file already, which must not be replaced.
    #[error("{path} is stored already, with other bytes; it stays as it is")]
    Exists {
        /// The path.
        path: String,
    },
    /// There is no such file.
    #[error("{path} is not in the mirror")]
    Missing {
        /// The path.
        path: String,
    },
    /// Not a valid path.
    #[error(transparent)]
    BadPath(#[from] BadPath),
    /// An object store can't be reached, or answers with an error.
    #[error("{message}")]
    Objects {
        /// What failed, and the error of the client or of the service.
        message: String,
    },
    /// The program was built without object stores.
    #[error("{url} is in an object store, and this program was built without them")]
    NotBuilt {
        /// The URL of the mirror.
        url: String,
    },
}

impl MirrorError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Io { source, .. } => match *source {
                Errno::NOSPC | Errno::DQUOT => "disk-full",
                Errno::ROFS => "read-only",
                _ => "io",
            },
            Self::Locked { .. } => "mirror-locked",
            Self::NotMounted { .. } | Self::Moved { .. } => "mirror-missing",
            Self::CaseInsensitive { .. } => "mirror-case-insensitive",
            Self::Blocked { .. } => "path-blocked",
            Self::Exists { .. } => "version-conflict",
            Self::Missing { .. } => "missing-file",
            Self::BadPath(error) => error.code(),
            Self::Objects { .. } => "object-store",
            Self::NotBuilt { .. } => "no-object-stores",
        }
    }

    /// The message for an operator whose mirror can't be opened: the error, and what to do about it.
    pub fn of_opening(&self) -> String {
        let step = match self {
            Self::Io { source, .. } => match *source {
                Errno::NOSPC | Errno::DQUOT => {
                    "free some space on its disk, or some inodes (`df -i`)"
                }
                Errno::ROFS => {
                    "mount it writable; a systemd unit needs it among its ReadWritePaths"
                }
                Errno::ACCESS | Errno::PERM => "the user of resyncd needs write access to it",
                Errno::EXIST => NO_FOLDER,
                _ => "check the disk and the path",
            },
            Self::Blocked { .. }
            | Self::Exists { .. }
            | Self::Missing { .. }
            | Self::BadPath(_) => NO_FOLDER,
            Self::Locked { .. } => "stop the other process, or give each its own mirror",
            Self::NotMounted { .. } | Self::Moved { .. } => NOT_MOUNTED,
            Self::CaseInsensitive { .. } => CASE_INSENSITIVE,
            Self::Objects { .. } => {
                "check its URL, the credentials, and whether this machine reaches it"
            }
            Self::NotBuilt { .. } => "use a program with the feature `objects`, or a folder",
        };
        format!("the mirror can't be used: {self}; {step}")
    }

    /// The class. After a [fatal](ErrorClass::Fatal) one the same call may succeed when the operator or the machine has recovered;
    /// after an [unusable](ErrorClass::Unusable) one only another path does.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. }
            | Self::NotMounted { .. }
            | Self::Moved { .. }
            | Self::Objects { .. }
            | Self::NotBuilt { .. } => ErrorClass::Fatal,
            Self::Locked { .. } | Self::CaseInsensitive { .. } => ErrorClass::Retry,
            Self::Blocked { .. }
            | Self::Exists { .. }
            | Self::Missing { .. }
            | Self::BadPath { .. } => ErrorClass::Unusable,
        }
    }

    /// An error while an open file was read.
    #[must_use]
    pub fn reading(path: &str, error: &io::Error) -> Self {
        Self::classify_io("reading", path, error)
    }

    /// Classifies an error of the operating system.
    pub(super) fn classify(doing: &'static str, path: &str, source: Errno) -> Self {
        let path = path.to_owned();
        match source {
            // NAMETOOLONG: some file systems (encrypting ones) limit names to less than 255 bytes.
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

    /// As [`classify`](Self::classify), for a lookup: ENOENT means that the file is missing.
    pub(super) fn classify_lookup(doing: &'static str, path: &str, source: Errno) -> Self {
        match source {
            Errno::NOENT => Self::Missing {
                path: path.to_owned(),
            },
            source => Self::classify(doing, path, source),
        }
    }

    /// As [`classify`](Self::classify), for an error of the standard library.
    pub(super) fn classify_io(doing: &'static str, path: &str, error: &io::Error) -> Self {
        Self::classify(doing, path, errno(error))
    }
}

/// The message of an error of the operating system.
fn io_text(doing: &str, path: &str, source: Errno) -> String {
    match source {
        Errno::NOSPC | Errno::DQUOT => format!("no space or no inodes left: {doing} {path}"),
        Errno::ROFS => format!("the file system is read-only: {doing} {path}"),
        source => format!("{doing} {path}: {source}"),
    }
}

/// What to do about something else at the path of a mirror.
const NO_FOLDER: &str = "`mirror` must be a folder, or a path where one can be created";

/// What to do about a mirror that is not there.
pub const NOT_MOUNTED: &str = "mount its disk; if the files were moved, set `mirror` to where they are; if they are lost for good, \
                               stop resyncd and run `resyncd audit --repair --new-mirror` with the name of the Source";

/// What to do about a file system that does not distinguish names by case.
pub const CASE_INSENSITIVE: &str =
    "put it on a file system that does, such as ext4 without `casefold`, XFS or Btrfs";

/// What is at the path of a mirror instead of it.
fn found(is_other: bool) -> &'static str {
    if is_other {
        "there is another mirror"
    } else {
        "there is none"
    }
}

/// The error number of the system; an error without one (a write of no bytes) counts as an input/output error.
pub(super) fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror_path::MirrorPath;

    #[test]
    fn message_of_a_mirror_that_cannot_be_opened_states_what_to_do() {
        let message = |errno| MirrorError::classify("creating", "/srv/m", errno).of_opening();
        for (errno, step) in [
            (Errno::ACCESS, "write access"),
            (Errno::ROFS, "ReadWritePaths"),
            (Errno::NOSPC, "free some space"),
            (Errno::NOTDIR, "must be a folder"),
            (Errno::EXIST, "must be a folder"),
        ] {
            let message = message(errno);
            assert!(
                message.contains("/srv/m") && message.contains(step),
                "{message}"
            );
        }
    }

    #[test]
    fn errors_of_the_system_are_classified() {
        use ErrorClass::{Fatal, Unusable};
        let classify = |errno| MirrorError::classify("writing", "h/a", errno);
        for (errno, code, class) in [
            (Errno::NOSPC, "disk-full", Fatal),
            (Errno::DQUOT, "disk-full", Fatal),
            (Errno::ROFS, "read-only", Fatal),
            (Errno::IO, "io", Fatal),
            (Errno::NOTDIR, "path-blocked", Unusable),
            (Errno::LOOP, "path-blocked", Unusable),
            (Errno::NAMETOOLONG, "path-blocked", Unusable),
            (Errno::NOENT, "io", Fatal),
        ] {
            let error = classify(errno);
            assert_eq!((error.code(), error.class()), (code, class));
        }
        let path = || "h/a".to_owned();
        let bad_path = MirrorPath::parse("").unwrap_err();
        for (error, class) in [
            (MirrorError::Missing { path: path() }, Unusable),
            (
                MirrorError::Locked {
                    root: path().into(),
                },
                ErrorClass::Retry,
            ),
            (bad_path.into(), Unusable),
        ] {
            assert_eq!(error.class(), class, "{error:?}");
        }
    }
}
