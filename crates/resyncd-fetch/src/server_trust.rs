//! Which certificates of servers are trusted: those of the authorities of the system, and of those that are configured. They are read
//! once, at the start, for all connections.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

use crate::certificates::{Authorities, ClientCertificate};

/// How the certificates of servers are verified. Cheap to clone.
#[derive(Clone)]
pub(super) struct ServerTrust {
    provider: Arc<CryptoProvider>,
    /// `None`: no certificate is trusted.
    verifier: Option<Arc<dyn ServerCertVerifier>>,
}

impl ServerTrust {
    /// Reads the certificates of the system. Where there are none, and none are configured, every connection over TLS fails.
    pub(super) fn read(authorities: &Authorities) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let configured = authorities.iter().cloned();
        let verifier = Verifier::new_with_extra_roots(configured, Arc::clone(&provider))
            .inspect_err(
                |error| tracing::warn!(%error, "no CA certificates found; https will fail"),
            )
            .ok();
        Self {
            provider,
            verifier: verifier.map(|verifier| Arc::new(verifier) as Arc<dyn ServerCertVerifier>),
        }
    }

    /// TLS for connections on which that certificate is shown to servers that ask for one.
    ///
    /// # Errors
    /// If the certificate can't be used.
    pub(super) fn tls(
        &self,
        certificate: Option<&ClientCertificate>,
    ) -> Result<ClientConfig, rustls::Error> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?;
        let config = match &self.verifier {
            Some(verifier) => config
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(verifier)),
            None => config.with_root_certificates(RootCertStore::empty()),
        };
        match certificate {
            Some(certificate) => {
                let (chain, key) = (certificate.chain().to_vec(), certificate.key().clone_key());
                config.with_client_auth_cert(chain, key)
            }
            None => Ok(config.with_no_client_auth()),
        }
    }
}

/// TLS for connections that are none of HTTP: what trusts the authorities of the system, and these.
///
/// # Errors
/// If TLS can't be set up.
pub fn tls(authorities: &Authorities) -> Result<ClientConfig, rustls::Error> {
    ServerTrust::read(authorities).tls(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_can_be_made_where_no_certificate_is_trusted() {
        let trust = ServerTrust {
            verifier: None,
            ..ServerTrust::read(&Authorities::default())
        };
        assert!(trust.tls(None).is_ok());
    }
}
