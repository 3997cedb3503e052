//! Servers behind https on 127.0.0.1.

#![allow(clippy::unwrap_used, reason = "the certificates are valid")]

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate authority of these tests. Its key no longer exists.
pub const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBYzCCAQmgAwIBAgIBATAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1yZXN5bmNk
IHRlc3RzMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAYMRYwFAYD
VQQDDA1yZXN5bmNkIHRlc3RzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVbY6
mzwRZOMI/jfrDcT2bWsc2K8r/pmH44ELZR+2/7KWcsPNA3Y7f4bSTrnN4YipxXyt
uStx3hCvvzcSLvfaoqNCMEAwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMC
AgQwHQYDVR0OBBYEFIugGY2WhOX8TnBzh59AozfboHYPMAoGCCqGSM49BAMCA0gA
MEUCIQCWeoNSNgk1YNStmp0KYlzBbykBMaJppLZmefDjkEcaQwIgE46KSp2QHLVD
uoauT4iGboD8vEF9zZfUc8zyTWhG2fc=
-----END CERTIFICATE-----";

/// Its only certificate, for 127.0.0.1, valid until 2120.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBpTCCAUugAwIBAgIBAjAKBggqhkjOPQQDAjAYMRYwFAYDVQQDDA1yZXN5bmNk
IHRlc3RzMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAwMDAwWjAUMRIwEAYD
VQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQEU6fJWdxp
l3Ix4FJ+hSu35bkvkaO7oGN4EThoZw3hJlynLuDRtA/uT+l3mu6CQ8ut2F7kTY2G
sAbNfb7xfcomo4GHMIGEMA8GA1UdEQQIMAaHBH8AAAEwDAYDVR0TAQH/BAIwADAT
BgNVHSUEDDAKBggrBgEFBQcDATAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0OBBYEFC2L
QHkhlB+LpvrTiuZaMRiU1/FWMB8GA1UdIwQYMBaAFIugGY2WhOX8TnBzh59Aozfb
oHYPMAoGCCqGSM49BAMCA0gAMEUCIQD4KfTEFAgkynstceNw9UbKociN/7ai/cy7
2AY11uyHhgIgDokZthBCvajlOXquY2h/xr5NmaTIUY/uUAAPA6iEdSA=
-----END CERTIFICATE-----";

/// The key of that certificate. It is no secret: only these tests trust it.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgk1sVODujNBoqtIDX
rf4BT/lgrvHqt+Ba1zg4QOlRf9ihRANCAAQEU6fJWdxpl3Ix4FJ+hSu35bkvkaO7
oGN4EThoZw3hJlynLuDRtA/uT+l3mu6CQ8ut2F7kTY2GsAbNfb7xfcom
-----END PRIVATE KEY-----";

/// The configuration of a server with that certificate. Clients must trust [`AUTHORITY`].
#[must_use]
pub fn tls_server() -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap(),
        )
        .unwrap()
}
