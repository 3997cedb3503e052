//! Requests through a proxy: it resolves the names, and no Source reaches a private address because of it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use resyncd_fetch::{Bounds, Client};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

use crate::hostile::source_auth::configuration;
use crate::hostile::tls_site::TlsSite;
use crate::support::site::{Site, ok};

/// A proxy for as long as the test runs. It connects to the servers that it knows, and answers other requests itself: `/to?URL`
/// with a redirect to the URL.
struct Proxy {
    address: SocketAddr,
    /// The heads of the requests.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// `servers`: the addresses behind names with ports.
    async fn start(servers: &[(&str, SocketAddr)]) -> Self {
        let servers: HashMap<String, SocketAddr> = servers
            .iter()
            .map(|(name, address)| ((*name).to_owned(), *address))
            .collect();
        let servers = Arc::new(servers);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&servers), Arc::clone(&noted)));
            }
        });
        Self { address, seen }
    }

    /// The heads of the requests since the last time, in lower case.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

async fn serve(
    mut stream: TcpStream,
    servers: Arc<HashMap<String, SocketAddr>>,
    seen: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    seen.lock().unwrap().push(head.clone());
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    if method == "connect" {
        match servers.get(target) {
            Some(server) => {
                let mut server = TcpStream::connect(server).await.unwrap();
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                let _ = copy_bidirectional(&mut stream, &mut server).await;
            }
            None => {
                let _ = stream
                    .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                    .await;
            }
        }
        return;
    }
    let answer = match target.split_once("/to?") {
        Some((_, to)) => format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0"),
        None => "HTTP/1.1 200 OK\r\ncontent-length: 7".to_owned(),
    };
    let body = if target.contains("/to?") {
        ""
    } else {
        "proxied"
    };
    let answer = format!("{answer}\r\nconnection: close\r\n\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// A client whose requests go through the proxy, with the bearer token of the Source at this URL.
fn client(proxy: &Proxy, more: &str, url: &str) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let http = format!("proxy = \"http://me:s3cr3t@{}\"\n{more}", proxy.address);
    let config = configuration(&folder, &http, url, "bearer = \"${TOKEN}\"");
    let client = config.client().unwrap();
    let once = Bounds {
        tries: 1,
        ..Bounds::DOCUMENT
    };
    let client = client.with_document_retries(once);
    config.sources[0].client(&client, 600)
}

async fn get(client: &Client, url: &str) -> Result<(), resyncd_fetch::FetchError> {
    let url = Url::parse(url).unwrap();
    client.get_document(&url, 1 << 20).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn source_behind_https_gets_its_credentials_through_a_tunnel_that_has_none() {
    let site = TlsSite::start().await;
    let proxy = Proxy::start(&[("source.example:443", site.address)]).await;
    let client = client(&proxy, "", "https://source.example/");
    get(&client, "https://source.example/a").await.unwrap();
    let seen = proxy.seen();
    assert_eq!(seen.len(), 1);
    assert!(
        seen[0].starts_with("connect source.example:443 "),
        "{seen:?}"
    );
    // "me:s3cr3t"
    assert!(
        seen[0].contains("proxy-authorization: basic bwu6cznjcjn0"),
        "{seen:?}"
    );
    assert!(!seen[0].contains("bearer"), "{seen:?}");
    let seen = site.seen();
    assert!(
        seen[0].headers["authorization"]
            .to_str()
            .unwrap()
            .starts_with("Bearer ")
    );
    assert!(!seen[0].headers.contains_key("proxy-authorization"));

    // What the proxy refuses says so, without its password.
    let error = get(&client, "https://elsewhere.example/")
        .await
        .unwrap_err();
    let message = format!("{error} {error:?}");
    assert_eq!(error.code(), "connect");
    assert!(
        message.contains(&format!("through the proxy {}", proxy.address)),
        "{message}"
    );
    assert!(!message.contains("s3cr3t"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_does_not_lead_to_private_addresses() {
    let proxy = Proxy::start(&[]).await;
    let client = client(&proxy, "", "http://source.example/");
    get(&client, "http://source.example/a").await.unwrap();
    get(&client, "http://foreign.example/b").await.unwrap();
    let seen = proxy.seen();
    assert!(
        seen[0].starts_with("get http://source.example/a "),
        "{seen:?}"
    );
    assert!(seen[0].contains("\r\nauthorization: bearer "), "{seen:?}");
    assert!(
        seen[1].starts_with("get http://foreign.example/b "),
        "{seen:?}"
    );
    assert!(!seen[1].contains("\r\nauthorization:"), "{seen:?}");
    for host in [
        "10.0.0.1",
        "169.254.169.254",
        "[::ffff:10.0.0.1]",
        "0x0a000001",
        "127.0.0.1",
        "localhost",
        "intranet",
        "metadata.google.internal",
        &proxy.address.to_string(),
    ] {
        for scheme in ["http", "https"] {
            let error = get(&client, &format!("{scheme}://{host}/")).await;
            assert_eq!(error.unwrap_err().code(), "forbidden-address", "{host}");
        }
    }
    assert_eq!(proxy.seen(), [""; 0]);
    let redirected = "http://source.example/to?http://169.254.169.254/";
    let error = get(&client, redirected).await.unwrap_err();
    assert_eq!(error.code(), "forbidden-address");
    assert_eq!(proxy.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn this_machine_is_requested_directly() {
    let proxy = Proxy::start(&[]).await;
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| |_: &str, _: &_| ok("direct")).await;
    let more = "allow_private_addresses = true";
    let client = client(&proxy, more, "http://source.example/");
    get(&client, site.url("/").as_str()).await.unwrap();
    assert_eq!(proxy.seen(), [""; 0]);
    get(&client, "http://intranet/").await.unwrap();
    assert_eq!(proxy.seen().len(), 1);
}
