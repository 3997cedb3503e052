//! Certificates of files: those of further authorities, and those with which a client shows who it is.
//!
//! Invariant: what is here can be used for TLS; `Debug` does not show keys.

use std::fmt;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Why certificates, or a key, can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CertificateError {
    /// There is none.
    #[error("there is no certificate in it (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// What can't be parsed. The error of the parser may repeat the text.
    #[error("it is damaged: not PEM")]
    NotPem,
    /// One, counted from 1, that authorities don't have.
    #[error("certificate {0} is not one of an authority: {1}")]
    NoAuthority(usize, #[source] rustls::Error),
    /// The key of another certificate.
    #[error("the certificate and the private key do not fit: {0}")]
    OtherKey(#[source] rustls::Error),
    /// A key with a passphrase.
    #[error("the private key is encrypted: remove its passphrase with `openssl pkey`")]
    EncryptedKey,
    /// There is no key.
    #[error("there is no private key (-----BEGIN PRIVATE KEY-----)")]
    NoKey,
}

/// The certificates of authorities that are trusted besides those of the system. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Authorities(Arc<Vec<CertificateDer<'static>>>);

impl Authorities {
    /// Parses the certificates of a text (PEM).
    pub fn parse(text: &str) -> Result<Self, CertificateError> {
        let certificates = certificates_of(text)?;
        for (index, certificate) in certificates.iter().enumerate() {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|error| CertificateError::NoAuthority(index + 1, error))?;
        }
        Ok(Self(Arc::new(certificates)))
    }

    /// Each certificate.
    pub fn iter(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} certificates", self.0.len())
    }
}

/// A certificate with its chain and its private key, with which a client shows who it is. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The client's own certificate first.
    chain: Arc<Vec<CertificateDer<'static>>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl ClientCertificate {
    /// Parses the certificates of a text, and the key of that or another text (PEM), and checks that they belong together.
    pub fn parse(text: &str, key: Option<&str>) -> Result<Self, CertificateError> {
        let chain = certificates_of(text)?;
        let key = key_of(key.unwrap_or(text))?;
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &default_provider())
            .map_err(CertificateError::OtherKey)?;
        Ok(Self {
            chain: Arc::new(chain),
            key: Arc::new(key),
        })
    }

    /// The certificates, the client's own first.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The private key.
    #[must_use]
    pub fn key(&self) -> &PrivateKeyDer<'static> {
        &self.key
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(…)")
    }
}

fn certificates_of(text: &str) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err(CertificateError::NoCertificate),
        Ok(found) => Ok(found),
        Err(_) => Err(CertificateError::NotPem),
    }
}

fn key_of(text: &str) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        if text.contains("ENCRYPTED PRIVATE KEY") {
            CertificateError::EncryptedKey
        } else {
            CertificateError::NoKey
        }
    })
}
