//! What can go wrong on the way to a Source or a hub, and what is to be done about it.

use std::error::Error;
use std::io;
use std::time::Duration;

use url::Url;

use super::guard::ResolveError;

/// Why something could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The client itself could not be made.
    #[error("the HTTP client can't be set up: {0}")]
    Setup(String),
    /// The address, or every address of the name, must not be contacted.
    #[error("{0} is not a public address, and [http] allow_private_addresses is false")]
    ForbiddenAddress(String),
    /// The configuration does not allow resources from that host.
    #[error("resources may not be fetched from {0}: it is not among the hosts of the source")]
    ForbiddenHost(String),
    /// Neither http nor https.
    #[error("the scheme {0:?} is neither http nor https")]
    Scheme(String),
    /// The name could not be resolved.
    #[error("the name can't be resolved: {0}")]
    Dns(String),
    /// No connection could be made.
    #[error("no connection: {0}")]
    Connect(String),
    /// No secure connection could be made.
    #[error("no secure connection: {0}")]
    Tls(String),
    /// No answer, or nothing more of it, within the time that is allowed.
    #[error("no answer in time")]
    Timeout,
    /// The body comes, but too slowly to be waited for.
    #[error("less than {} KiB came within {} seconds", least >> 10, within.as_secs())]
    TooSlow {
        /// What would have been enough, in bytes.
        least: u64,
        /// How long it had for that.
        within: Duration,
    },
    /// The server answers with an error, or with a status that makes no sense here.
    #[error("the server answers with status {status}")]
    Status {
        /// The status code.
        status: u16,
        /// How long the server asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// More than five redirects in a row.
    #[error("too many redirects")]
    TooManyRedirects,
    /// A redirect from https to http.
    #[error("redirected from https to {0}")]
    RedirectDowngrade(Url),
    /// A redirect that does not tell where to.
    #[error("redirected without a usable Location")]
    RedirectWithoutLocation,
    /// More bytes than are allowed.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// What would have been allowed, in bytes.
        limit: u64,
    },
    /// A compressed document that grows out of all proportion.
    #[error("it grows more than a hundredfold when it is decompressed")]
    Expansion,
    /// Compressed, but damaged.
    #[error("the gzip data are damaged: {0}")]
    BadGzip(String),
    /// The connection ended before the body did.
    #[error("the body was cut short")]
    CutShort,
    /// This machine's disk does not take a package.
    #[error("it can't be written: {message}")]
    Disk {
        /// Whether there is no room for it.
        is_full: bool,
        /// What the system says.
        message: String,
    },
    /// Anything else in transport, or on this machine's disk.
    #[error("input/output: {0}")]
    Io(String),
}

/// What the caller is to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// It may pass by itself.
    RetryLater {
        /// How long the server asks to be left alone.
        after: Option<Duration>,
    },
    /// Trying again would end in the same way, until something else changes.
    GiveUp,
}

impl FetchError {
    /// Its stable name.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setup(_) => "http-client",
            Self::ForbiddenAddress(_) => "forbidden-address",
            Self::ForbiddenHost(_) => "forbidden-host",
            Self::Scheme(_) => "scheme",
            Self::Dns(_) => "dns",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::TooSlow { .. } => "too-slow",
            Self::Status { status: 404, .. } => "not-found",
            Self::Status { status: 410, .. } => "gone",
            Self::Status { .. } => "http-status",
            Self::TooManyRedirects => "too-many-redirects",
            Self::RedirectDowngrade(_) => "redirect-downgrade",
            Self::RedirectWithoutLocation => "redirect-without-location",
            Self::TooLarge { .. } => "too-large",
            Self::Expansion => "expansion",
            Self::BadGzip(_) => "bad-gzip",
            Self::CutShort => "cut-short",
            Self::Disk { is_full: true, .. } => "disk-full",
            Self::Disk { .. } | Self::Io(_) => "io",
        }
    }

    /// Whether it is worth trying again.
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Status {
                status: 408 | 425 | 429 | 500 | 502..=504 | 506..=599,
                retry_after,
            } => Disposition::RetryLater {
                after: *retry_after,
            },
            Self::Dns(_)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::Timeout
            | Self::TooSlow { .. }
            | Self::BadGzip(_)
            | Self::CutShort
            | Self::Disk { .. }
            | Self::Io(_) => Disposition::RetryLater { after: None },
            Self::Setup(_)
            | Self::ForbiddenAddress(_)
            | Self::ForbiddenHost(_)
            | Self::Scheme(_)
            | Self::Status { .. }
            | Self::TooManyRedirects
            | Self::RedirectDowngrade(_)
            | Self::RedirectWithoutLocation
            | Self::TooLarge { .. }
            | Self::Expansion => Disposition::GiveUp,
        }
    }

    /// Whether the server says that there is nothing (404, 410).
    pub fn is_absent(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 404 | 410,
                ..
            }
        )
    }

    /// From what the system says of a package's file.
    pub(super) fn from_disk(error: &io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        Self::Disk {
            is_full: full.contains(&error.kind()),
            message: error.to_string(),
        }
    }

    /// From what the client reports: before the answer, or in the middle of it.
    pub(super) fn from_transport(error: &reqwest::Error) -> Self {
        if let Some(found) = find::<ResolveError>(error) {
            return match found {
                ResolveError::Forbidden(host) => Self::ForbiddenAddress(host.clone()),
                ResolveError::Lookup(..) => Self::Dns(found.to_string()),
            };
        }
        if error.is_timeout() {
            return Self::Timeout;
        }
        if let Some(found) = find::<rustls::Error>(error) {
            return Self::Tls(found.to_string());
        }
        if error.is_connect() {
            return Self::Connect(innermost(error));
        }
        let cut_short = find::<hyper::Error>(error)
            .is_some_and(hyper::Error::is_incomplete_message)
            || find::<io::Error>(error)
                .is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        if cut_short {
            return Self::CutShort;
        }
        Self::Io(innermost(error))
    }
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// Looks for a kind of error among the causes of another. An `io::Error` hides what it wraps from `source`.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        if let Some(wrapped) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            && let Some(found) = find::<E>(wrapped)
        {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// What lies at the bottom of it; the layers above only say "error sending request".
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
