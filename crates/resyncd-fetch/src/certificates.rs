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

/// The certificates of authorities that are trusted besides those of the system. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Authorities(Arc<Vec<CertificateDer<'static>>>);

impl Authorities {
    /// Parses the certificates of a text (PEM).
    pub fn parse(text: &str) -> Result<Self, String> {
        let certificates = certificates_of(text)?;
        for (index, certificate) in certificates.iter().enumerate() {
            let added = RootCertStore::empty().add(certificate.clone());
            added.map_err(|error| {
                let number = index + 1;
                format!("certificate {number} is not one of an authority: {error}")
            })?;
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
    pub fn parse(text: &str, key: Option<&str>) -> Result<Self, String> {
        let chain = certificates_of(text)?;
        let key = key_of(key.unwrap_or(text))?;
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &default_provider())
            .map_err(|error| format!("the certificate and the private key do not fit: {error}"))?;
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

fn certificates_of(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err("there is no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned())
        }
        Ok(found) => Ok(found),
        // The error may repeat the text.
        Err(_) => Err("it is damaged: not PEM".to_owned()),
    }
}

fn key_of(text: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        if text.contains("ENCRYPTED PRIVATE KEY") {
            "the private key is encrypted: remove its passphrase with `openssl pkey`"
        } else {
            "there is no private key (-----BEGIN PRIVATE KEY-----)"
        }
        .to_owned()
    })
}
