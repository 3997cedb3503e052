//! Errors of requests to Sources and hubs, and their classes.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use resyncd_core::{ErrorClass, Redaction};
use tokio::task::JoinError;
use tokio::time::error::Elapsed;
use url::Url;

/// How much of a text of the transport is shown and stored, in characters. Some of it is remote: names in certificates, and what a
/// server states when it ends a connection over HTTP/2, which may be 16 KiB for each request.
const LONGEST_TEXT: usize = 1000;

/// A maximum length, and what states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes ({stated_by})")]
pub struct SizeLimit {
    /// The length in bytes.
    pub bytes: u64,
    /// The key of the configuration, or what else states it, for a person.
    pub stated_by: &'static str,
}

impl SizeLimit {
    /// A limit, and what states it.
    pub fn new(bytes: u64, stated_by: &'static str) -> Self {
        Self { bytes, stated_by }
    }

    /// The limit of a document.
    pub fn document(bytes: u64) -> Self {
        Self::new(bytes, "[limits] document")
    }

    /// The limit of a notification.
    pub fn notification(bytes: u64) -> Self {
        Self::new(bytes, "[limits] notification")
    }

    /// The limit of a resource.
    pub fn resource(bytes: u64) -> Self {
        Self::new(bytes, "[limits] resource")
    }

    /// The limit of a package.
    pub fn package(bytes: u64) -> Self {
        Self::new(bytes, "[limits] package")
    }

    /// [`FetchError::TooLarge`] if a length is over a limit.
    pub(super) fn check(limit: Option<Self>, length: u64) -> Result<(), FetchError> {
        match limit {
            Some(limit) if length > limit.bytes => Err(FetchError::TooLarge(limit)),
            _ => Ok(()),
        }
    }
}

/// Why something could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The client can't be created.
    #[error("the HTTP client can't be set up: {0}")]
    Setup(String),
    /// The address, or every address of the name, is not allowed.
    #[error("{0} is not a public address, and [http] allow_private_addresses is false")]
    ForbiddenAddress(String),
    /// The configuration does not allow resources from this host.
    #[error("resources may not be fetched from {0}: it is not among the hosts of the Source")]
    ForbiddenHost(String),
    /// The robots.txt of a site without ResourceSync disallows the resource.
    #[error(
        "robots.txt of {host} disallows it for {agent}; `robots = false` in the configuration of the Source requests it nevertheless"
    )]
    Disallowed {
        /// The host.
        host: String,
        /// The product token of this client.
        agent: String,
    },
    /// A port of another protocol than HTTP, which the configuration does not state.
    #[error(
        "port {0} is one of another protocol than HTTP, and the configuration of the Source does not state it"
    )]
    ForbiddenPort(u16),
    /// Neither http nor https.
    #[error("the scheme {0:?} is neither http nor https")]
    Scheme(String),
    /// The name can't be resolved.
    #[error("the name can't be resolved: {0}")]
    Dns(String),
    /// The connection failed.
    #[error("connection failed: {0}")]
    Connect(String),
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(String),
    /// No answer, or no further bytes of it, within the time-out.
    #[error("timed out; see [http] timeout")]
    Timeout,
    /// The body is received too slowly.
    #[error("received less than {} KiB within {} seconds; see [http] timeout", least >> 10, within.as_secs())]
    TooSlow {
        /// The minimum number of bytes.
        least: u64,
        /// The time for it.
        within: Duration,
    },
    /// The server answers with an error, or with an unexpected status.
    #[error("the server answered with status {status}{}", hint_of_status(*status))]
    Status {
        /// The status code.
        status: u16,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// More than five redirects in a row.
    #[error("too many redirects")]
    TooManyRedirects,
    /// A redirect from https to http.
    #[error("redirected from https to {0}")]
    RedirectDowngrade(String),
    /// A redirect without a valid target.
    #[error("redirect without a valid Location")]
    RedirectWithoutLocation,
    /// A URI that is longer than accepted, perhaps after a redirect.
    #[error("the URI is too long; see [limits] uri")]
    LongUri,
    /// The Source has caused too many requests to a host that is not its own.
    #[error(
        "too many requests to {host}, which is not a host of the Source; see [limits] third_party_requests"
    )]
    ThirdPartyLimit {
        /// Host and port.
        host: String,
        /// When the next request is allowed.
        retry_after: Duration,
    },
    /// More bytes than allowed.
    #[error("larger than {0}")]
    TooLarge(SizeLimit),
    /// A compressed document that expands out of proportion.
    #[error("expands more than a hundredfold when decompressed")]
    Expansion,
    /// Damaged compressed data.
    #[error("damaged gzip data: {0}")]
    BadGzip(String),
    /// The body has content codings that can't be undone, and nothing proves that it is wanted so.
    #[error(
        "the server sent the content coding {0:?}, which can't be decoded and was not asked for"
    )]
    UnsupportedCoding(String),
    /// The connection ended before the body did.
    #[error("the body was cut short")]
    CutShort,
    /// A package, or a document that does not fit into memory, can't be written to the local disk.
    #[error("disk write error: {message}")]
    Disk {
        /// Whether the disk or a quota is full.
        is_full: bool,
        /// The error of the system.
        message: String,
    },
    /// What was received has made the program panic.
    #[error("resyncd panicked while it read the answer; see the log")]
    Panicked,
    /// Any other error of the transport, or of the local disk.
    #[error("I/O error: {0}")]
    Io(String),
}

impl FetchError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        self.kind().0
    }

    /// The class. Retrying an [unusable](ErrorClass::Unusable) one fails in the same way until something else changes. A local
    /// disk error fails a single package, and counts as temporary.
    pub fn class(&self) -> ErrorClass {
        self.kind().1
    }

    fn kind(&self) -> (&'static str, ErrorClass) {
        use ErrorClass::{Retry, Unusable};
        match self {
            Self::Setup(_) => ("http-client", Unusable),
            Self::ForbiddenAddress(_) => ("forbidden-address", Unusable),
            Self::ForbiddenHost(_) => ("forbidden-host", Unusable),
            Self::Disallowed { .. } => ("disallowed-by-robots", Unusable),
            Self::ForbiddenPort(_) => ("forbidden-port", Unusable),
            Self::Scheme(_) => ("scheme", Unusable),
            Self::Dns(_) => ("dns", Retry),
            Self::Connect(_) => ("connect", Retry),
            Self::Tls(_) => ("tls", Retry),
            Self::Timeout => ("timeout", Retry),
            Self::TooSlow { .. } => ("too-slow", Retry),
            Self::Status { status, .. } => match status {
                404 => ("not-found", Unusable),
                410 => ("gone", Unusable),
                408 | 425 | 429 | 500 | 502..=504 | 506..=599 => ("http-status", Retry),
                _ => ("http-status", Unusable),
            },
            Self::TooManyRedirects => ("too-many-redirects", Unusable),
            Self::RedirectDowngrade(_) => ("redirect-downgrade", Unusable),
            Self::RedirectWithoutLocation => ("redirect-without-location", Unusable),
            Self::LongUri => ("long-uri", Unusable),
            Self::ThirdPartyLimit { .. } => ("third-party-limit", Retry),
            Self::TooLarge(_) => ("too-large", Unusable),
            Self::Expansion => ("expansion", Unusable),
            Self::BadGzip(_) => ("bad-gzip", Retry),
            Self::UnsupportedCoding(_) => ("unsupported-coding", Retry),
            Self::CutShort => ("cut-short", Retry),
            Self::Panicked => ("panicked", Unusable),
            Self::Disk { is_full: true, .. } => ("disk-full", Retry),
            Self::Disk { .. } | Self::Io(_) => ("io", Retry),
        }
    }

    /// How long the server asks to wait before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } if self.class() == ErrorClass::Retry => *retry_after,
            Self::ThirdPartyLimit { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// Whether the server states that there is no such resource (404, 410).
    pub fn is_absent(&self) -> bool {
        matches!(self.status(), Some(404 | 410))
    }

    /// Whether the server refuses the request, or states that there is no such resource: a 4xx that does not pass by itself.
    pub fn is_refusal(&self) -> bool {
        matches!(self.status(), Some(400..=499)) && self.class() == ErrorClass::Unusable
    }

    /// Whether no server has answered.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Tls(_) | Self::Timeout)
    }

    /// The status of the answer, if that is the error.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The same, without secrets in what it repeats of an answer, and with no more than the beginning of a text of the transport.
    pub(super) fn redacted(mut self, secrets: &Redaction) -> Self {
        match &mut self {
            Self::ForbiddenAddress(text)
            | Self::ForbiddenHost(text)
            | Self::Scheme(text)
            | Self::BadGzip(text)
            | Self::UnsupportedCoding(text)
            | Self::RedirectDowngrade(text) => *text = secrets.redact(text),
            Self::Dns(text) | Self::Connect(text) | Self::Tls(text) | Self::Io(text) => {
                *text = secrets.excerpt(text, LONGEST_TEXT);
            }
            // Nothing of these is from an answer.
            Self::Setup(_)
            | Self::Disallowed { .. }
            | Self::ForbiddenPort(_)
            | Self::Timeout
            | Self::TooSlow { .. }
            | Self::Status { .. }
            | Self::TooManyRedirects
            | Self::RedirectWithoutLocation
            | Self::LongUri
            | Self::ThirdPartyLimit { .. }
            | Self::TooLarge(_)
            | Self::Expansion
            | Self::CutShort
            | Self::Panicked
            | Self::Disk { .. } => {}
        }
        self
    }

    /// The same of a request through a proxy: what failed may be the way to the proxy, or from there.
    pub(super) fn through(self, proxy: &Url) -> Self {
        let host = proxy.host_str().unwrap_or_default();
        let port = proxy.port_or_known_default().unwrap_or_default();
        let text = |text: String| format!("through the proxy {host}:{port}: {text}");
        match self {
            Self::Connect(message) => Self::Connect(text(message)),
            Self::Dns(message) => Self::Dns(text(message)),
            error => error,
        }
    }

    /// An error of writing a file in a folder.
    pub(super) fn from_disk(folder: &Path, error: &io::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        Self::Disk {
            is_full: full.contains(&error.kind()),
            message: format!("{}: {error}", folder.display()),
        }
    }
}

/// Runs work on a blocking thread, and fails if it has returned nothing.
pub(super) async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, FetchError> {
    let working = tokio::task::spawn_blocking(work);
    working.await.map_err(FetchError::from)
}

impl From<reqwest::Error> for FetchError {
    /// An error that reqwest reports, before the answer or during the body.
    fn from(error: reqwest::Error) -> Self {
        let error = &error;
        if let Some(found) = find::<ResolveError>(error) {
            return match found {
                ResolveError::Forbidden(host) => Self::ForbiddenAddress(host.clone()),
                ResolveError::Lookup(..) => Self::Dns(found.to_string()),
                ResolveError::Limited(limited) => limited.clone(),
            };
        }
        if error.is_timeout() {
            return Self::Timeout;
        }
        if let Some(found) = find::<rustls::Error>(error) {
            return Self::Tls(tls_text(found));
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

impl From<Elapsed> for FetchError {
    fn from(_: Elapsed) -> Self {
        Self::Timeout
    }
}

impl From<JoinError> for FetchError {
    fn from(error: JoinError) -> Self {
        if error.is_panic() {
            Self::Panicked
        } else {
            Self::Io(error.to_string())
        }
    }
}

impl From<io::Error> for FetchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// The text of an error of a connection over TLS, with advice where a key of the configuration may help.
pub fn tls_text(error: &(dyn Error + 'static)) -> String {
    let Some(error) = find::<rustls::Error>(error) else {
        return error.to_string();
    };
    let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    if *error == unknown {
        format!(
            "{error}; if the authority is your own, name the file of its certificate in [http] ca_file"
        )
    } else {
        error.to_string()
    }
}

/// What to do about a status.
fn hint_of_status(status: u16) -> &'static str {
    match status {
        401 | 403 => {
            ": credentials belong in [source.auth], or as https://USER:PASSWORD@HOST/ in `url`; they are sent to the origins of the \
             Source only, and if they were sent here the server does not accept them"
        }
        407 => {
            ": the proxy wants a user name and a password: `[http] proxy = \"http://USER:PASSWORD@HOST:PORT\"`"
        }
        _ => "",
    }
}

/// Searches the causes of an error for a type. An `io::Error` hides the error that it wraps from `source`.
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

/// The innermost cause; the outer ones only state "error sending request".
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// Why a name has no allowed address; it is the cause of an error of reqwest.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    /// All its addresses are forbidden.
    #[error("{0} has no public address")]
    Forbidden(String),
    /// It can't be resolved.
    #[error("{0}: {1}")]
    Lookup(String, io::Error),
    /// The Source has caused too many requests to its addresses.
    #[error(transparent)]
    Limited(FetchError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_full_disk_names_the_folder() {
        for (kind, code) in [
            (io::ErrorKind::StorageFull, "disk-full"),
            (io::ErrorKind::QuotaExceeded, "disk-full"),
            (io::ErrorKind::PermissionDenied, "io"),
        ] {
            let error = FetchError::from_disk(Path::new("/srv/mirror"), &kind.into());
            assert_eq!(error.code(), code);
            assert!(error.to_string().contains("/srv/mirror"), "{error}");
        }
    }

    #[test]
    fn texts_of_the_transport_are_limited_in_length() {
        let text = || "x".repeat(1 << 16);
        for error in [
            FetchError::Dns(text()),
            FetchError::Connect(text()),
            FetchError::Tls(text()),
            FetchError::Io(text()),
        ] {
            let code = error.code();
            let shown = error.redacted(&Redaction::default()).to_string();
            assert!(shown.len() < 2 * LONGEST_TEXT, "{code}: {}", shown.len());
            assert!(shown.len() > LONGEST_TEXT, "{code}: {}", shown.len());
        }
    }

    #[test]
    fn classes() {
        use ErrorClass::{Retry, Unusable};
        let text = String::new;
        let status = |status| FetchError::Status {
            status,
            retry_after: Some(Duration::from_secs(17)),
        };
        let slow = FetchError::TooSlow {
            least: 1,
            within: Duration::from_secs(1),
        };
        let disk = FetchError::Disk {
            is_full: true,
            message: text(),
        };
        let disallowed = FetchError::Disallowed {
            host: text(),
            agent: text(),
        };
        for (error, class) in [
            (FetchError::Setup(text()), Unusable),
            (FetchError::ForbiddenAddress(text()), Unusable),
            (FetchError::ForbiddenHost(text()), Unusable),
            (FetchError::ForbiddenPort(25), Unusable),
            (disallowed, Unusable),
            (FetchError::Scheme(text()), Unusable),
            (FetchError::Dns(text()), Retry),
            (FetchError::Connect(text()), Retry),
            (FetchError::Tls(text()), Retry),
            (FetchError::Timeout, Retry),
            (slow, Retry),
            (status(204), Unusable),
            (status(403), Unusable),
            (status(404), Unusable),
            (status(408), Retry),
            (status(425), Retry),
            (status(429), Retry),
            (status(500), Retry),
            (status(501), Unusable),
            (status(503), Retry),
            (status(505), Unusable),
            (status(599), Retry),
            (FetchError::TooManyRedirects, Unusable),
            (FetchError::RedirectDowngrade(text()), Unusable),
            (FetchError::RedirectWithoutLocation, Unusable),
            (FetchError::LongUri, Unusable),
            (FetchError::TooLarge(SizeLimit::document(1)), Unusable),
            (FetchError::Expansion, Unusable),
            (FetchError::Panicked, Unusable),
            (FetchError::BadGzip(text()), Retry),
            (FetchError::UnsupportedCoding(text()), Retry),
            (FetchError::CutShort, Retry),
            (disk, Retry),
            (FetchError::Io(text()), Retry),
        ] {
            assert_eq!(error.class(), class, "{error:?}");
            let is_asked = matches!(error, FetchError::Status { .. }) && class == Retry;
            assert_eq!(error.retry_after().is_some(), is_asked, "{error:?}");
        }
    }
}
