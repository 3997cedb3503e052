//! Servers behind https that ask for a certificate of the client.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// The certificate authority of these tests. Its key no longer exists.
pub(crate) const NAMING_AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
MIIBeTCCAR+gAwIBAgIBATAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhyZXN5bmNk
IHRlc3RzIG9mIGNsaWVudHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAw
MDBaMCMxITAfBgNVBAMMGHJlc3luY2QgdGVzdHMgb2YgY2xpZW50czBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABGg9gLIr58wOtd7M69q2Q+roPhqyvCqtR1T/FKfP
6w4Ytr0aml8K3B/uVjK+2EzSn6Zqa5Wxk/uxLMc0uNfcRfujQjBAMA8GA1UdEwEB
/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgIEMB0GA1UdDgQWBBS+A+oyMy6QTycm0RTF
rV4GHIk8RzAKBggqhkjOPQQDAgNIADBFAiBXy+RsKuDxjWkaWki43n35EpWy/2+t
8ruk/hMaCyyh1wIhAMauWe+hn8oj58A9mLn0shAgetzwKgl/jWyMM79by5bl
-----END CERTIFICATE-----";

/// Its certificate for `source.example`, `elsewhere.example` and 127.0.0.1, valid until 2120.
const NAMED_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIB3jCCAYOgAwIBAgIBAjAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhyZXN5bmNk
IHRlc3RzIG9mIGNsaWVudHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAw
MDBaMB4xHDAaBgNVBAMME3Jlc3luY2QgdGVzdCBzZXJ2ZXIwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAATnS/JqsFd1t/73XHusHHoZtCXBhZzhdfxAAziic3bkQ4Pe
1Ai/rufD1dwV140P1oYlNQLhYKj/yUjV9AtXHgOlo4GqMIGnMDIGA1UdEQQrMCmC
DnNvdXJjZS5leGFtcGxlghFlbHNld2hlcmUuZXhhbXBsZYcEfwAAATAMBgNVHRMB
Af8EAjAAMBMGA1UdJQQMMAoGCCsGAQUFBwMBMA4GA1UdDwEB/wQEAwIHgDAdBgNV
HQ4EFgQUdanzoiCcBhkl3hraKVLhcquB7bgwHwYDVR0jBBgwFoAUvgPqMjMukE8n
JtEUxa1eBhyJPEcwCgYIKoZIzj0EAwIDSQAwRgIhAJtI2/tjzBig3ID/n32AJGol
y/8EZqPLrMzRddRIHPxzAiEA6HaqELjzr2fwKptCfl3frPZLNt+sEWYVl+6pNigj
gpk=
-----END CERTIFICATE-----";

/// The key of that certificate.
const NAMED_KEY: &str = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgAHlwAdkcIO1gHsa/
t0scCMypKwo8ybQq/9nkB5hOawWhRANCAATnS/JqsFd1t/73XHusHHoZtCXBhZzh
dfxAAziic3bkQ4Pe1Ai/rufD1dwV140P1oYlNQLhYKj/yUjV9AtXHgOl
-----END PRIVATE KEY-----";

/// Its certificate of a client, valid until 2120, with its key.
pub(crate) const CLIENT_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBpzCCAU2gAwIBAgIBAzAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhyZXN5bmNk
IHRlc3RzIG9mIGNsaWVudHMwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAw
MDBaMB4xHDAaBgNVBAMME3Jlc3luY2QgdGVzdCBjbGllbnQwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAASLP+jkOdpmEK0Szqxtnk3Cpo821rztHi368PGCHKtzDnTz
Dg8pjtzgpW5aRQVyqXVOFOW8zIFfZ6EfaYjk1wKOo3UwczAMBgNVHRMBAf8EAjAA
MBMGA1UdJQQMMAoGCCsGAQUFBwMCMA4GA1UdDwEB/wQEAwIHgDAdBgNVHQ4EFgQU
LHh7cYQm9sixgImKKDvAJuW83pIwHwYDVR0jBBgwFoAUvgPqMjMukE8nJtEUxa1e
BhyJPEcwCgYIKoZIzj0EAwIDSAAwRQIgRh0/yXRNSOLo2235WPz7keBckPW3a5+2
JaYrZgTC3rwCIQCjVvWckiWGDaAympKvOwS5yzgpQ1rahyZt8/28UQT3JQ==
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRaSFyNhhrhSWKRQs
wsGfWDE5YHXxhdXzcqVbr11uq6yhRANCAASLP+jkOdpmEK0Szqxtnk3Cpo821rzt
Hi368PGCHKtzDnTzDg8pjtzgpW5aRQVyqXVOFOW8zIFfZ6EfaYjk1wKO
-----END PRIVATE KEY-----";

/// The configuration of a server with the named certificate, which asks clients for a certificate and does not insist.
pub(crate) fn asking_tls_server() -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut authorities = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(NAMING_AUTHORITY.as_bytes()).unwrap();
    authorities.add(authority).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(NAMED_CERTIFICATE.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(NAMED_KEY.as_bytes()).unwrap(),
        )
        .unwrap()
}
