//! Downloads that are cut short and resumed, or too slow.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use resyncd_core::ResourceUri;
use resyncd_packages::Package;

use super::*;
use crate::test_site::{self, Received, TestSite};
use crate::{AllowedHosts, Client, FetchError, HttpSettings, SizeLimit};

/// Opens what is on disk of a package once it is closed: the last write of a dropped download may be under way, and a process that
/// another test starts has a copy of every descriptor for a moment.
fn open(folder: &Path, uri: &Url) -> PartialPackage {
    for _ in 0..180_000 {
        match PartialPackage::open(folder, uri) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            opened => return opened.unwrap(),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{uri} is still open");
}

/// The package on the server, and how the server behaves.
#[derive(Clone)]
struct ServedPackage {
    bytes: Vec<u8>,
    etag: Option<&'static str>,
    last_modified: Option<&'static str>,
    /// Whether the length is announced.
    announces_length: bool,
    /// The number of bytes of an answer before the connection breaks.
    breaks_after: Option<usize>,
    ranges: Ranges,
}

#[derive(Clone, Copy)]
enum Ranges {
    Served,
    Ignored,
    /// 206 with this `Content-Range`.
    Wrong(&'static str),
    /// 206 from the correct byte of another version.
    OtherVersion,
    /// 206 with at most this number of bytes.
    Short(usize),
    /// 416.
    Rejected,
}

impl Default for ServedPackage {
    fn default() -> Self {
        Self {
            bytes: b"of 17 characters ".repeat(200_000)[..3_000_000].to_vec(),
            etag: Some("\"one\""),
            last_modified: None,
            announces_length: true,
            breaks_after: None,
            ranges: Ranges::Served,
        }
    }
}

impl ServedPackage {
    fn answer(&self, request: &Received) -> Response {
        let condition = request.header("if-none-match");
        if !condition.is_empty() && self.etag == Some(condition) {
            return test_site::status(304);
        }
        let is_same = [self.etag, self.last_modified].contains(&Some(request.header("if-range")));
        let from = request
            .header("range")
            .strip_prefix("bytes=")
            .filter(|_| is_same);
        let from = from.map(|range| range.trim_end_matches('-').parse::<usize>().unwrap());
        let length = self.bytes.len();
        let (from, to) = match (from, self.ranges) {
            (None, _) | (_, Ranges::Ignored) => return self.send(200, &[], 0..length),
            (_, Ranges::Rejected) => return test_site::status(416),
            (Some(from), Ranges::Short(most)) => (from, length.min(from + most)),
            (Some(from), _) => (from, length),
        };
        let range = match self.ranges {
            Ranges::Wrong(range) => range.to_owned(),
            _ => format!("bytes {from}-{}/{length}", to - 1),
        };
        self.send(206, &[("content-range", &range)], from..to)
    }

    fn send(
        &self,
        status: u16,
        headers: &[(&'static str, &str)],
        part: std::ops::Range<usize>,
    ) -> Response {
        let length = part.len().to_string();
        let mut headers = headers.to_vec();
        headers.extend(
            self.announces_length
                .then_some(("content-length", length.as_str())),
        );
        let etag = match (status, self.ranges) {
            (206, Ranges::OtherVersion) => Some("\"other\""),
            _ => self.etag,
        };
        headers.extend(etag.map(|etag| ("etag", etag)));
        headers.extend(self.last_modified.map(|date| ("last-modified", date)));
        headers.push(("date", "Sun, 06 Nov 1994 08:49:37 GMT"));
        let sent = self.breaks_after.unwrap_or(part.len()).min(part.len());
        let bytes = self.bytes[part.start..part.start + sent].to_vec();
        let mut pieces = vec![Ok(bytes)];
        if self.breaks_after.is_some() {
            pieces.push(Err(std::io::Error::other("cut on purpose")));
        }
        // The pause lets the first piece be sent.
        let pieces = stream::unfold(pieces.into_iter(), async |mut pieces| {
            tokio::task::yield_now().await;
            pieces.next().map(|piece| (piece, pieces))
        });
        let mut response = test_site::ok_with(&headers, Body::from_stream(pieces));
        *response.status_mut() = status.try_into().unwrap();
        response
    }
}

struct Rig {
    site: TestSite,
    package: Arc<Mutex<ServedPackage>>,
    /// The `Range` of each request.
    asked: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Rig {
    async fn start(package: ServedPackage) -> Self {
        let package = Arc::new(Mutex::new(package));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (serving, recording) = (Arc::clone(&package), Arc::clone(&asked));
        let site = TestSite::start(move |request| {
            assert_eq!(request.header("accept-encoding"), "identity");
            recording
                .lock()
                .unwrap()
                .push(request.header("range").to_owned());
            serving.lock().unwrap().answer(&request)
        })
        .await;
        Self {
            site,
            package,
            asked,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn uri(&self) -> Url {
        Url::parse(&self.site.url("/dump.zip")).unwrap()
    }

    fn partial(&self) -> PartialPackage {
        open(self.folder.path(), &self.uri())
    }

    async fn get(&self) -> Result<PartialPackage, FetchError> {
        self.get_up_to(None).await
    }

    async fn get_up_to(&self, limit: Option<u64>) -> Result<PartialPackage, FetchError> {
        let client = test_site::client();
        client
            .get_package(
                &self.uri(),
                &AllowedHosts::any(),
                limit.map(SizeLimit::package),
                self.partial(),
            )
            .await
    }

    fn change(&self, change: impl FnOnce(&mut ServedPackage)) {
        change(&mut self.package.lock().unwrap());
    }

    /// The `Range` of each request since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    fn assert_complete(&self, partial: &PartialPackage) {
        let mut file = partial.file().unwrap().unwrap();
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == self.package.lock().unwrap().bytes);
        assert_eq!(partial.length(), Some(bytes.len() as u64));
    }

    /// A download that was cut short after a million bytes; then the server is changed.
    async fn cut_short(package: ServedPackage, change: impl FnOnce(&mut ServedPackage)) -> Self {
        let rig = Self::start(ServedPackage {
            breaks_after: Some(1_000_000),
            ..package
        })
        .await;
        assert_eq!(rig.get().await.unwrap_err(), FetchError::CutShort);
        assert_eq!(rig.asked(), [""]);
        assert!(rig.partial().file().unwrap().is_none());
        rig.change(|package| package.breaks_after = None);
        rig.change(change);
        rig
    }
}

const LONG_AGO: Option<&str> = Some("Sat, 05 Nov 1994 08:49:37 GMT");
const JUST_NOW: Option<&str> = Some("Sun, 06 Nov 1994 08:49:30 GMT");

#[tokio::test]
async fn a_download_is_resumed_where_it_was_cut_short() {
    for (etag, last_modified) in [
        (Some("\"one\""), None),
        (Some("\"one\""), JUST_NOW),
        (None, LONG_AGO),
    ] {
        let package = ServedPackage {
            etag,
            last_modified,
            ..ServedPackage::default()
        };
        let rig = Rig::cut_short(package, |_| {}).await;
        assert_eq!(rig.partial().received(), 1_000_000);
        assert_eq!(rig.partial().length(), Some(3_000_000));
        rig.change(|package| package.breaks_after = Some(500_000));
        assert_eq!(rig.get().await.unwrap_err(), FetchError::CutShort);
        rig.change(|package| package.breaks_after = None);
        let whole = rig.get().await.unwrap();
        assert_eq!(rig.asked(), ["bytes=1000000-", "bytes=1500000-"]);
        rig.assert_complete(&whole);
    }
}

#[tokio::test]
async fn an_unannounced_length_is_known_after_the_download() {
    for ranges in [Ranges::Served, Ranges::Short(600_000)] {
        let package = ServedPackage {
            announces_length: false,
            ranges,
            ..ServedPackage::default()
        };
        let rig = Rig::cut_short(package, |_| {}).await;
        assert_eq!(rig.partial().length(), None);
        rig.change(|package| package.breaks_after = Some(500_000));
        assert_eq!(rig.get().await.unwrap_err(), FetchError::CutShort);
        assert_eq!(rig.partial().length(), Some(3_000_000));
        rig.change(|package| package.breaks_after = None);
        rig.assert_complete(&rig.get().await.unwrap());
    }
}

#[tokio::test]
async fn without_a_strong_validator_a_download_is_restarted() {
    for (etag, last_modified) in [
        (None, None),
        (Some("W/\"one\""), None),
        (Some("W/\"one\""), LONG_AGO),
        (None, JUST_NOW),
    ] {
        let package = ServedPackage {
            etag,
            last_modified,
            ..ServedPackage::default()
        };
        let rig = Rig::cut_short(package, |_| {}).await;
        let whole = rig.get().await.unwrap();
        assert_eq!(rig.asked(), [""], "{etag:?} {last_modified:?}");
        rig.assert_complete(&whole);
    }
}

#[tokio::test]
async fn another_version_restarts_the_download() {
    let other = |package: &mut ServedPackage| {
        package.etag = Some("\"two\"");
        package.bytes = b"another, shorter one".to_vec();
    };
    let rig = Rig::cut_short(ServedPackage::default(), other).await;
    let whole = rig.get().await.unwrap();
    assert_eq!(rig.asked(), ["bytes=1000000-"]);
    rig.assert_complete(&whole);
}

#[tokio::test]
async fn an_invalid_answer_to_a_range_restarts_the_download() {
    for (ranges, requests) in [
        (Ranges::Ignored, 1),
        (Ranges::Rejected, 2),
        (Ranges::OtherVersion, 2),
        (Ranges::Wrong("bytes 0-2999999/3000000"), 2),
        (Ranges::Wrong("bytes 1000001-2999999/3000000"), 2),
        (Ranges::Wrong("bytes 1000000-2999999/3000001"), 2),
        (Ranges::Wrong("bytes 1000000-3000000/3000000"), 2),
        (Ranges::Wrong("bytes 1000000-999999/3000000"), 2),
        (Ranges::Wrong("bytes */3000000"), 2),
        (Ranges::Wrong("bytes 1000000-2999999/*"), 2),
        (Ranges::Wrong("nonsense"), 2),
        (Ranges::Short(1_500_000), 2),
        (Ranges::Short(300_000), 7),
    ] {
        let rig = Rig::cut_short(ServedPackage::default(), |package| package.ranges = ranges).await;
        let whole = rig.get().await.unwrap();
        assert_eq!(rig.asked().len(), requests);
        rig.assert_complete(&whole);
    }
    // A server that sends the rest in very small pieces is abandoned for now; the bytes are retained.
    let rig = Rig::cut_short(ServedPackage::default(), |package| {
        package.ranges = Ranges::Short(100)
    })
    .await;
    assert_eq!(rig.get().await.unwrap_err(), FetchError::CutShort);
    assert_eq!(rig.partial().received(), 1_000_400);
}

#[tokio::test]
async fn a_rest_of_another_length_than_its_range_is_rejected() {
    let too_much = Ranges::Wrong("bytes 1000000-1499999/3000000");
    let rig = Rig::cut_short(ServedPackage::default(), |package| {
        package.ranges = too_much
    })
    .await;
    assert_eq!(rig.get().await.unwrap_err(), FetchError::CutShort);
}

#[tokio::test]
async fn a_complete_package_is_fetched_again_only_if_it_has_changed() {
    for etag in [Some("\"one\""), Some("W/\"one\""), None] {
        let package = ServedPackage {
            etag,
            ..ServedPackage::default()
        };
        let rig = Rig::start(package).await;
        drop(rig.get().await.unwrap());
        rig.asked();
        assert!(rig.partial().is_complete());
        rig.assert_complete(&rig.get().await.unwrap());
        let expected = usize::from(etag.is_some());
        assert_eq!(
            rig.asked().len(),
            expected,
            "another version can't be recognized without an etag"
        );
    }
    let rig = Rig::start(ServedPackage::default()).await;
    drop(rig.get().await.unwrap());
    rig.change(|package| {
        package.etag = Some("\"two\"");
        package.bytes.truncate(10);
    });
    rig.assert_complete(&rig.get().await.unwrap());
    rig.partial().remove().unwrap();
    assert_eq!(rig.folder.path().read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn all_bytes_without_a_record_of_their_sync_are_fetched_again() {
    let rig = Rig::start(ServedPackage::default()).await;
    drop(rig.get().await.unwrap());
    let note = rig
        .folder
        .path()
        .join(format!("{}.json", PartialPackage::name(&rig.uri())));
    let text = std::fs::read_to_string(&note).unwrap();
    std::fs::write(&note, text.replace("\"whole\":true", "\"whole\":false")).unwrap();
    assert!(!rig.partial().is_complete());
    rig.asked();
    rig.assert_complete(&rig.get().await.unwrap());
    assert_eq!(rig.asked(), [""]);
}

#[tokio::test]
async fn bytes_without_a_record_are_discarded() {
    let rig = Rig::cut_short(ServedPackage::default(), |_| {}).await;
    let name = PartialPackage::name(&rig.uri());
    let note = rig.folder.path().join(format!("{name}.json"));
    let good = std::fs::read_to_string(&note).unwrap();
    for bad in [
        String::new(),
        "{".to_owned(),
        good.replace("dump.zip", "other.zip"),
        good.replace("\"whole\":false", "\"whole\":true"),
    ] {
        std::fs::write(rig.folder.path().join(format!("{name}.part")), "bytes").unwrap();
        std::fs::write(&note, bad).unwrap();
        let partial = rig.partial();
        assert_eq!((partial.received(), partial.is_complete()), (0, false));
    }
    rig.assert_complete(&rig.get().await.unwrap());
}

#[tokio::test]
async fn a_package_can_be_opened_only_once() {
    let rig = Rig::start(ServedPackage::default()).await;
    let first = rig.partial();
    let second = PartialPackage::open(rig.folder.path(), &rig.uri());
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    rig.partial();
}

#[tokio::test]
async fn packages_over_the_limit_are_rejected() {
    for announces_length in [true, false] {
        let rig = Rig::start(ServedPackage {
            announces_length,
            ..ServedPackage::default()
        })
        .await;
        let error = rig.get_up_to(Some(2_999_999)).await.unwrap_err();
        assert_eq!(error, FetchError::TooLarge(SizeLimit::package(2_999_999)));
        rig.assert_complete(&rig.get_up_to(Some(3_000_000)).await.unwrap());
    }
    let rig = Rig::cut_short(ServedPackage::default(), |_| {}).await;
    let error = rig.get_up_to(Some(2_000_000)).await.unwrap_err();
    assert_eq!(error.code(), "too-large");
}

#[tokio::test]
async fn hosts_and_errors_are_handled_as_for_resources() {
    let rig = Rig::cut_short(ServedPackage::default(), |_| {}).await;
    let hosts = ["example.com".to_owned()];
    let client = test_site::client();
    let got = client
        .get_package(&rig.uri(), &AllowedHosts::new(&hosts), None, rig.partial())
        .await;
    assert_eq!(got.unwrap_err().code(), "forbidden-host");
    let site = TestSite::start(|_| test_site::status(503)).await;
    let uri = Url::parse(&site.url("/")).unwrap();
    let partial = open(rig.folder.path(), &uri);
    let got = client
        .get_package(&uri, &AllowedHosts::any(), None, partial)
        .await;
    assert_eq!(got.unwrap_err().code(), "http-status");
    assert_eq!(rig.partial().received(), 1_000_000, "it is still there");
}

/// A client with this time-out.
fn client(timeout: Duration, connections_per_host: usize) -> Client {
    Client::new(
        &HttpSettings {
            timeout,
            connections_per_host,
            ..test_site::http()
        },
        test_site::now,
    )
    .unwrap()
}

#[tokio::test]
async fn a_stall_ends_the_try_and_the_bytes_are_retained() {
    let site = TestSite::start(|_| {
        let drops = stream::iter([Ok::<_, std::io::Error>("drop")]).chain(stream::pending());
        test_site::ok_with(&[("etag", "\"one\"")], Body::from_stream(drops))
    })
    .await;
    let uri = Url::parse(&site.url("/")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let partial = || open(folder.path(), &uri);
    let got = client(Duration::from_secs(15), 1)
        .get_package(&uri, &AllowedHosts::any(), None, partial())
        .await;
    assert_eq!(got.unwrap_err(), FetchError::Timeout);
    assert_eq!(partial().received(), 4);
}

#[tokio::test]
async fn a_package_does_not_delay_resources_and_documents() {
    let (began, mut begun) = tokio::sync::watch::channel(0);
    let site = TestSite::start(move |request| match request.path() {
        "/dump.zip" => {
            began.send_modify(|count| *count += 1);
            test_site::ok(Body::from_stream(stream::pending::<std::io::Result<&str>>()))
        }
        _ => test_site::ok("text"),
    })
    .await;
    let client = client(Duration::from_secs(3600), 1);
    let folder = tempfile::tempdir().unwrap();
    let uri = Url::parse(&site.url("/dump.zip")).unwrap();
    let partial = open(folder.path(), &uri);
    let fetching = tokio::spawn({
        let (client, uri) = (client.clone(), uri.clone());
        async move {
            let any = AllowedHosts::any();
            client
                .get_package(&uri, &any, None, partial)
                .await
                .map(|_| ())
        }
    });
    begun.wait_for(|count| *count == 1).await.unwrap();
    let resource = ResourceUri::parse(&site.url("/resource")).unwrap();
    let any = AllowedHosts::any();
    let got = client.get_content(&resource, &any, None, None).await;
    assert!(got.is_ok());
    let document = Url::parse(&site.url("/document")).unwrap();
    assert!(client.get_document(&document, 100).await.is_ok());
    // A dropped download frees its permit, and the file once its last write has ended.
    fetching.abort();
    assert!(fetching.await.unwrap_err().is_cancelled());
    let partial = open(folder.path(), &uri);
    tokio::select! {
        _ = client.get_package(&uri, &any, None, partial) => panic!("it never ends"),
        begun = begun.wait_for(|count| *count == 2) => assert!(begun.is_ok()),
    }
}

#[tokio::test]
async fn a_package_of_the_sample_source_is_fetched_and_read() {
    use resyncd_testkit::{DumpOptions, Fault, SampleOptions, SampleSource};

    let source = SampleSource::start(SampleOptions {
        resource_size: 100_000,
        dumps: DumpOptions {
            resource_dump: true,
            ..DumpOptions::default()
        },
        ..SampleOptions::default()
    })
    .await
    .unwrap();
    let uri = source.document_uri("set1", "resourcedump-0000.zip");
    source.fail(uri.path(), Fault::Truncated, 2);
    let folder = tempfile::tempdir().unwrap();
    let client = test_site::client();
    let get = async || {
        let partial = open(folder.path(), &uri);
        client
            .get_package(&uri, &AllowedHosts::any(), None, partial)
            .await
    };
    assert_eq!(get().await.unwrap_err(), FetchError::CutShort);
    assert_eq!(get().await.unwrap_err(), FetchError::CutShort);
    let package = Package::open(
        get().await.unwrap().file().unwrap().unwrap(),
        folder.path(),
        None,
    )
    .unwrap();
    let mut manifest = package.manifest(&uri, 1 << 20).unwrap();
    let mut found = 0;
    while let Some(entry) = manifest.next_entry().unwrap() {
        let mut member = package.member(entry.md.path.as_deref().unwrap()).unwrap();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).unwrap();
        assert!(source.state("set1")[entry.loc.as_str()] == bytes);
        found += 1;
    }
    assert_eq!((found, source.hits(uri.path())), (3, 3));
}

#[tokio::test]
async fn a_trickle_is_an_error_and_a_flow_is_not() {
    let site = TestSite::start(|request| {
        let first = match request.path() {
            "/flow" => vec![0; LEAST as usize],
            _ => Vec::new(),
        };
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((vec![0; 4], ()))
        });
        let body = stream::once(std::future::ready(first)).chain(drops);
        test_site::ok(Body::from_stream(body.map(Ok::<_, io::Error>)))
    })
    .await;
    let client = test_site::client();
    // The flow may take as long as a busy machine needs; the trickle never reaches the minimum.
    let (unreached, at_once) = (Duration::from_secs(3600), Duration::from_millis(1));
    for (path, timeout, expected) in [
        ("/flow", unreached, Ok(())),
        ("/trickle", at_once, Err("too-slow")),
    ] {
        let uri = Url::parse(&site.url(path)).unwrap();
        let ask = client.ask(
            Pool::Packages,
            &uri,
            Follow::All,
            |_| Ok(()),
            |http, url| http.get(url),
        );
        let mut answer = ask.await.unwrap();
        let (mut pace, mut received) = (ThroughputGuard::new(LEAST, timeout), 0);
        let ended = loop {
            match pace.chunk(&mut answer).await {
                Ok(chunk) => received += chunk.unwrap().len() as u64,
                Err(error) => break Err(error.code()),
            }
            if received > LEAST {
                break Ok(());
            }
        };
        assert_eq!(ended, expected, "{path}");
    }
}
