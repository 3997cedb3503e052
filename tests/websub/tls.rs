//! A redirect never leads from https to http.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use resyncd::demo::{Hub, HubOptions, SampleSource};
use resyncd::protocol::HubUri;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::process::Home;
use crate::support::resources;

/// The certificate authority of these tests. Its key no longer exists.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----
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

/// A hub behind https that answers every request with a redirect. It lives as long as the process.
fn redirecting_to(target: &str) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("https://{}/hub", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = stream.unwrap();
            let mut tls = Stream::new(&mut connection, &mut stream);
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !String::from_utf8_lossy(&request).contains("hub.secret") {
                match tls.read(&mut part) {
                    Ok(read) if read > 0 => request.extend_from_slice(&part[..read]),
                    _ => break,
                }
            }
            // The client may have closed the connection.
            let _ = tls.write_all(answer.as_bytes());
            tls.conn.send_close_notify();
            let _ = tls.flush();
        }
    });
    uri
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_from_https_to_http_is_not_followed() {
    let plain = Hub::start(HubOptions::default()).await.unwrap();
    let hub = HubUri::parse(&redirecting_to(plain.uri().as_str())).unwrap();
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), &format!("hub = \"{hub}\""));
    let authority = home.folder().join("authority.pem");
    std::fs::write(&authority, AUTHORITY).unwrap();
    let _running = home.run_with([("SSL_CERT_FILE", &authority)]);
    home.until("refused", |set| {
        let mut errors = set.channels.iter().map(|channel| channel.error.as_ref());
        set.channels.len() == 2
            && errors.all(|error| error.is_some_and(|error| error.code == "redirect-downgrade"))
    })
    .await;
    assert_eq!(plain.counts().requested, 0);
}
