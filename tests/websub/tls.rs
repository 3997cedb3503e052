//! A redirect never leads from https to http.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use resyncd_core::HubUri;
use resyncd_testkit::{Hub, HubOptions, SampleSource};
use rustls::{ServerConnection, Stream};

use crate::support::process::Home;
use crate::support::{AUTHORITY, resources, tls_server};

/// A hub behind https that answers every request with a redirect. It lives as long as the process.
fn redirecting_to(target: &str) -> String {
    let config = Arc::new(tls_server());
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
