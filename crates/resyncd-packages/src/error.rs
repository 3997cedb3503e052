//! Why a package, or a member of it, is unusable.

use std::io;

use resourcesync::ReadError;

/// Why a package, or a member of it, is unusable.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// In none of the formats that are read.
    #[error("the package is in a format that is not read: {0}")]
    Unsupported(&'static str),
    /// A file that is damaged, cut short, or hostile.
    #[error("the package is damaged: {0}")]
    Damaged(String),
    /// More members than this maximum.
    #[error("the package has more than {0} members")]
    TooManyMembers(usize),
    /// There is no manifest at its top.
    #[error("the package has no manifest.xml")]
    NoManifest,
    /// There is no member at that path.
    #[error("the package has no member {0:?}")]
    NoMember(String),
    /// The path may refer to several members.
    #[error("the package has several members for {0:?}")]
    AmbiguousMember(String),
    /// The member can't be read without a password.
    #[error("the member is encrypted")]
    Encrypted,
    /// The member is compressed with an unsupported method.
    #[error("the member is compressed with the unsupported method {0}")]
    Compression(u16),
    /// The member is coded in a way that can't be undone.
    #[error("the member has the unsupported content coding {0:?}")]
    Coding(String),
    /// The member contradicts its entry in the directory.
    #[error("the member is damaged: {0}")]
    BadMember(String),
    /// A member, or the package, expands out of proportion.
    #[error("it expands more than a hundredfold when decompressed")]
    Expansion,
    /// The package is longer than this maximum, in bytes, when it is decompressed.
    #[error("the package is larger than {0} bytes when decompressed; see [limits] package")]
    TooLargeUnpacked(u64),
    /// The manifest is longer than this maximum, in bytes.
    #[error("the manifest is larger than {0} bytes; see [limits] document")]
    TooLarge(u64),
    /// The manifest is not a valid ResourceSync document.
    #[error("the manifest: {0}")]
    Manifest(ReadError),
    /// The package can't be read from disk, or not be decompressed there.
    #[error("I/O error: {0}")]
    Io(io::Error),
}

impl PackageError {
    pub(super) fn damaged(reason: impl ToString) -> Self {
        Self::Damaged(reason.to_string())
    }

    pub(super) fn bad_member(reason: impl ToString) -> Self {
        Self::BadMember(reason.to_string())
    }

    /// The error of a decoder: of the file that it reads, or of what that contains.
    pub(super) fn of_decoder(error: io::Error) -> Self {
        match Self::from(error) {
            Self::Io(error) if error.raw_os_error().is_none() => Self::damaged(error),
            error => error,
        }
    }

    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported(_) => "unsupported-package",
            Self::Damaged(_) => "bad-package",
            Self::TooManyMembers(_) => "too-many-members",
            Self::NoManifest => "no-manifest",
            Self::NoMember(_) => "no-member",
            Self::AmbiguousMember(_) => "ambiguous-member",
            Self::Encrypted => "encrypted-member",
            Self::Compression(_) | Self::Coding(_) => "unsupported-compression",
            Self::BadMember(_) => "bad-member",
            Self::Expansion => "expansion",
            Self::TooLarge(_) | Self::TooLargeUnpacked(_) => "too-large",
            Self::Manifest(error) => error.code(),
            Self::Io(error) if is_full(error) => "disk-full",
            Self::Io(_) => "io",
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind())
}

/// Unwraps an error of a [`MemberReader`](super::MemberReader), which returns its errors within `io::Error`s.
impl From<io::Error> for PackageError {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => Self::Io(error),
        }
    }
}

/// An I/O error of the reader of a manifest may be an error of the package.
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
