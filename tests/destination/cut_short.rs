//! Resources whose connections break: the next request continues where the bytes ended, if what is received is proven to be of one
//! version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use resourcesync::{Algorithm, Digest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use url::Url;

use crate::support::site::{entry, urlset};
use crate::support::{Destination, eventually, files};

const LENGTH: usize = 6_000_000;
const CUT: usize = 1_500_000;
const STRONG: &str = "etag: \"one\"\r\n";
const WEAK: &str = "etag: W/\"one\"\r\n";

/// A request for a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    /// The first byte of `Range`.
    from: Option<usize>,
    if_range: Option<String>,
}

impl Asked {
    fn whole() -> Self {
        Self {
            from: None,
            if_range: None,
        }
    }

    fn rest(from: usize, if_range: Option<&str>) -> Self {
        Self {
            from: Some(from),
            if_range: if_range.map(str::to_owned),
        }
    }
}

/// An answer: status, headers, body, and how many bytes of the body are sent before the connection is closed.
struct Answer(u16, String, Vec<u8>, usize);

impl Answer {
    fn whole(headers: &str, bytes: &[u8], cut: usize) -> Self {
        Self(200, headers.to_owned(), bytes.to_vec(), cut)
    }

    fn rest(headers: &str, bytes: &[u8], from: usize, cut: usize) -> Self {
        let (last, length) = (bytes.len() - 1, bytes.len());
        let headers = format!("{headers}content-range: bytes {from}-{last}/{length}\r\n");
        Self(206, headers, bytes[from..].to_vec(), cut)
    }
}

/// A resource: its path, the attributes of its `rs:md`, and its answer to a request, which is the one of this number.
type Resource = (
    &'static str,
    String,
    Box<dyn Fn(usize, &Asked) -> Answer + Send + Sync>,
);

#[derive(Default)]
struct Log {
    asked: HashMap<String, Vec<Asked>>,
    /// The bytes of bodies.
    sent: usize,
}

/// A Source that closes each connection after one answer, until it is dropped.
struct Server {
    url: Url,
    log: Arc<Mutex<Log>>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(resources: Vec<Resource>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Log::default()));
        let listed = resources.iter().map(|(path, md, _)| {
            let more = format!("<lastmod>2024-01-01T00:00:00Z</lastmod><rs:md {md}/>");
            entry(&format!("{base}{path}"), &more)
        });
        let list = urlset("resourcelist", "", &listed.collect::<String>());
        let link = |path: &str, capability: &str| {
            let more = format!("<rs:md capability=\"{capability}\"/>");
            entry(&format!("{base}{path}"), &more)
        };
        let caps = urlset("capabilitylist", "", &link("/list.xml", "resourcelist"));
        let description = urlset("description", "", &link("/caps.xml", "capabilitylist"));
        let documents = HashMap::from([
            ("/.well-known/resourcesync", description),
            ("/caps.xml", caps),
            ("/list.xml", list),
        ]);
        let shared = Arc::new((documents, resources, Arc::clone(&log)));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let (documents, resources, log) = &*shared;
                    // The peer may have closed it.
                    let _ = serve(stream, documents, resources, log).await;
                });
            }
        });
        Self {
            url: Url::parse(&base).unwrap(),
            log,
            serving,
        }
    }

    /// Follows it until these are the bytes of its resources.
    async fn until_mirrored(&self, expected: &[(&str, &[u8])]) {
        let destination = Destination::start(self.url.clone(), |config| {
            config.http.connections_per_host = 1;
        })
        .await;
        let mirror = &destination.config.sources[0].mirror;
        eventually("all mirrored", Some(destination.wakes()), async || {
            let found = files(mirror);
            let is_whole = |(path, bytes): &(&str, &[u8])| {
                let mut found = found.iter();
                found.any(|(name, found)| name.ends_with(path) && found == bytes)
            };
            if expected.iter().all(is_whole) {
                return Ok(());
            }
            Err(format!("{:?}", self.log.lock().unwrap().asked))
        })
        .await;
        assert_eq!(files(mirror).len(), expected.len());
    }

    fn asked(&self, path: &str) -> Vec<Asked> {
        let log = self.log.lock().unwrap();
        log.asked.get(path).cloned().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    documents: &HashMap<&str, String>,
    resources: &[Resource],
    log: &Mutex<Log>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        let found = headers.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_owned())
    };
    let Answer(status, headers, body, cut) = if let Some(document) = documents.get(path) {
        Answer::whole("", document.as_bytes(), usize::MAX)
    } else if let Some((.., answer)) = resources.iter().find(|(of, ..)| *of == path) {
        let from = header("range").map(|range| {
            let from = range.strip_prefix("bytes=").unwrap();
            from.strip_suffix('-').unwrap().parse().unwrap()
        });
        let asked = Asked {
            from,
            if_range: header("if-range"),
        };
        let mut log = log.lock().unwrap();
        let all = log.asked.entry(path.to_owned()).or_default();
        all.push(asked.clone());
        let answer = answer(all.len(), &asked);
        log.sent += answer.2.len().min(answer.3);
        answer
    } else {
        Answer(404, String::new(), Vec::new(), 0)
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} Of Test\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body[..length.min(cut)]).await?;
    stream.shutdown().await
}

fn bytes(of: u8) -> Vec<u8> {
    (0..LENGTH).map(|n| of ^ (n % 251) as u8).collect()
}

fn digest(bytes: &[u8]) -> String {
    format!("hash=\"{}\"", Digest::of(Algorithm::Sha256, bytes))
}

/// What the server has may be proven by its validator, or by the digest of the entry.
#[tokio::test(flavor = "multi_thread")]
async fn resource_is_continued_where_each_connection_breaks() {
    for (headers, md, if_range) in [
        (STRONG, String::new(), Some("\"one\"")),
        (WEAK, digest(&bytes(1)), None),
        ("", digest(&bytes(1)), None),
    ] {
        let whole = bytes(1);
        let answer = move |_, asked: &Asked| match asked.from {
            Some(from) => Answer::rest(headers, &whole, from, CUT),
            None => Answer::whole(headers, &whole, CUT),
        };
        let server = Server::start(vec![("/a", md, Box::new(answer))]).await;
        server.until_mirrored(&[("/a", &bytes(1))]).await;
        let mut expected = vec![Asked::whole()];
        expected.extend([1, 2, 3].map(|n| Asked::rest(n * CUT, if_range)));
        assert_eq!(server.asked("/a"), expected);
        assert_eq!(server.log.lock().unwrap().sent, LENGTH);
    }
}

/// Another version, or an answer that does not continue the received bytes, is not joined to them: the next try begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_continue_a_resource_are_rejected() {
    let (one, two) = (&*bytes(1).leak(), &*bytes(2).leak());
    // The first answer is cut short, the third one is whole.
    let resource = |path, md, headers, last: &'static [u8], second: fn(usize) -> Answer| {
        let answer = move |number, asked: &Asked| match number {
            1 => Answer::whole(headers, &bytes(1), CUT),
            2 => second(asked.from.expect("the rest is asked for")),
            _ => Answer::whole("etag: \"last\"\r\n", last, LENGTH),
        };
        let resource: Resource = (path, md, Box::new(answer));
        resource
    };
    let none = String::new;
    let server = Server::start(vec![
        resource("/changed", none(), STRONG, two, |_| {
            Answer::whole("etag: \"two\"\r\n", &bytes(2), LENGTH)
        }),
        resource("/changed-unnoticed", digest(two), "", two, |from| {
            Answer::rest("", &bytes(2), from, LENGTH)
        }),
        resource("/without-ranges", none(), STRONG, one, |_| {
            Answer::whole(STRONG, &bytes(1), LENGTH)
        }),
        resource("/from-elsewhere", none(), STRONG, one, |from| {
            Answer::rest(STRONG, &bytes(1), from - 1, LENGTH)
        }),
        resource("/other-length", none(), STRONG, one, |from| {
            Answer::rest(STRONG, &bytes(1)[..LENGTH - 1], from, LENGTH)
        }),
        resource("/other-version", none(), STRONG, one, |from| {
            Answer::rest("etag: \"two\"\r\n", &bytes(2), from, LENGTH)
        }),
        resource("/coded", none(), STRONG, one, |from| {
            let headers = format!("{STRONG}content-encoding: gzip\r\n");
            Answer::rest(&headers, &bytes(1), from, LENGTH)
        }),
    ])
    .await;
    let expected = [
        ("/changed", two),
        ("/changed-unnoticed", two),
        ("/without-ranges", one),
        ("/from-elsewhere", one),
        ("/other-length", one),
        ("/other-version", one),
        ("/coded", one),
    ];
    server.until_mirrored(&expected).await;
    for (path, _) in expected {
        let if_range = (path != "/changed-unnoticed").then_some("\"one\"");
        let asked = [Asked::whole(), Asked::rest(CUT, if_range), Asked::whole()];
        assert_eq!(server.asked(path), asked, "{path}");
    }
}

/// Neither what nothing proves, nor coded bytes, nor the few bytes of a server that would have a connection for each.
#[tokio::test(flavor = "multi_thread")]
async fn other_resources_begin_anew() {
    let whole = bytes(1);
    let resource = |path, md, headers: &'static str, cut| {
        let answer = move |number, _: &Asked| match number {
            1 => Answer::whole(headers, &bytes(1), cut),
            _ => Answer::whole("", &bytes(1), LENGTH),
        };
        let resource: Resource = (path, md, Box::new(answer));
        resource
    };
    let coded = "etag: \"one\"\r\ncontent-encoding: gzip\r\n";
    let server = Server::start(vec![
        resource("/unproven", String::new(), WEAK, CUT),
        resource("/coded", digest(&whole), coded, CUT),
        resource("/few", digest(&whole), STRONG, 60_000),
    ])
    .await;
    let expected = ["/unproven", "/coded", "/few"].map(|path| (path, &*whole));
    server.until_mirrored(&expected).await;
    for (path, _) in expected {
        assert_eq!(
            server.asked(path),
            [Asked::whole(), Asked::whole()],
            "{path}"
        );
    }
}
