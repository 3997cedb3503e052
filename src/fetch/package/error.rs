//! Why a package, or a member of it, is of no use.

use std::io;

use crate::protocol::ReadError;

/// Why a package, or a member of it, is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// Not a ZIP file, but something else.
    #[error("the package is not a ZIP file, but {0}")]
    Unsupported(&'static str),
    /// A ZIP file, but damaged, cut short, or made to harm.
    #[error("the package is damaged: {0}")]
    Damaged(String),
    /// More members than any package needs.
    #[error("the package has more than {limit} members")]
    TooManyMembers {
        /// What would have been allowed.
        limit: usize,
    },
    /// There is no manifest at the top of it.
    #[error("the package has no manifest.xml")]
    NoManifest,
    /// There is no member of that path.
    #[error("the package has no member {0:?}")]
    NoMember(String),
    /// The path may mean several members.
    #[error("the package has several members that {0:?} may mean")]
    AmbiguousMember(String),
    /// The member can't be read without a password.
    #[error("the member is encrypted")]
    Encrypted,
    /// The member is compressed in a way that is not understood.
    #[error("the member is compressed by an unknown method, {0}")]
    Compression(u16),
    /// The member is not what the package's directory says of it.
    #[error("the member is damaged: {0}")]
    BadMember(String),
    /// The member grows out of all proportion when it is decompressed.
    #[error("the member grows more than a hundredfold when it is decompressed")]
    Expansion,
    /// The manifest is longer than is allowed.
    #[error("the manifest is larger than {limit} bytes")]
    TooLarge {
        /// What would have been allowed, in bytes.
        limit: u64,
    },
    /// The manifest is not a ResourceSync document.
    #[error("the manifest: {0}")]
    Manifest(ReadError),
    /// The package could not be read from this machine's disk.
    #[error("could not be read: {0}")]
    Io(io::Error),
}

impl PackageError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "unsupported-package",
            Self::Damaged(_) => "bad-package",
            Self::TooManyMembers { .. } => "too-many-members",
            Self::NoManifest => "no-manifest",
            Self::NoMember(_) => "no-member",
            Self::AmbiguousMember(_) => "ambiguous-member",
            Self::Encrypted => "encrypted-member",
            Self::Compression(_) => "unsupported-compression",
            Self::BadMember(_) => "bad-member",
            Self::Expansion => "expansion",
            Self::TooLarge { .. } => "too-large",
            Self::Manifest(error) => error.code(),
            Self::Io(_) => "io",
        }
    }
}

/// A [`Member`](super::Member) tells its errors as `io::Error`s; this finds them again.
impl From<io::Error> for PackageError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => Self::Io(error),
        }
    }
}

/// What a manifest's reader says may be the package's fault.
impl From<ReadError> for PackageError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::from(error),
            error => Self::Manifest(error),
        }
    }
}

impl From<PackageError> for io::Error {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Io(error) => error,
            error => Self::other(error),
        }
    }
}
