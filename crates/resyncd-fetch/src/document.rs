//! Documents: fetched completely, decompressed, and spooled so that they can be read several times.

use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, TRANSFER_ENCODING};
use reqwest::{StatusCode, Version};
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::BaseUri;
use resourcesync::{DocumentReader, ReadError, SourceTime};
use resyncd_core::{Redaction, Validators};
use tempfile::SpooledTempFile;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::client::{Answer, Client, Follow};
use super::coding::ContentCoding;
use super::error::on_blocking_thread;
use super::spool::{Spool, Spooled};
use super::validators::{last_modified, make_conditional, validators_of};
use super::{FetchError, SizeLimit};
use crate::HeaderLink;

/// How many bytes of a body are collected before they are decompressed and written.
const BATCH: usize = 256 << 10;

/// How many bytes of a body show whether it can be a document.
const FIRST_BYTES: usize = 4 << 10;

/// The maximum number of links of all `Link` headers.
const MAX_LINKS: usize = 100;

/// The maximum time for the body of a document in time-outs: a server that sends single bytes must not hold the connection forever.
const TIMEOUTS_PER_DOCUMENT: u32 = 30;

/// A reader that owns its document.
pub type OwnedReader = DocumentReader<Box<dyn BufRead + Send>>;

/// A document that was fetched completely.
#[derive(Debug)]
pub struct FetchedDocument {
    url: Url,
    /// The maximum length of a URI that it states, in bytes.
    max_uri_bytes: usize,
    validators: Validators,
    last_modified: Option<SourceTime>,
    links: Vec<HeaderLink>,
    digest: [u8; 32],
    len: u64,
    file: SpooledTempFile,
    redaction: Redaction,
    /// Whether the transport has shown where it ends: it was not cut on its way.
    is_whole: bool,
}

impl FetchedDocument {
    /// Its URL after redirects: the base of its relative URIs.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Removes the secrets of the request from what the document repeats of it.
    pub fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// The validators for a later conditional request.
    pub fn validators(&self) -> &Validators {
        &self.validators
    }

    /// The SHA-256 of the decompressed bytes.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The `Last-Modified` header.
    pub fn last_modified(&self) -> Option<SourceTime> {
        self.last_modified
    }

    /// The links of its `Link` headers, in their order.
    pub fn links(&self) -> &[HeaderLink] {
        &self.links
    }

    /// The length after decompression, in bytes.
    pub fn bytes_len(&self) -> u64 {
        self.len
    }

    /// Reads it from the beginning.
    pub fn reader(&mut self) -> Result<DocumentReader<impl BufRead>, ReadError> {
        let bytes = rewound(&mut self.file)?;
        open(bytes, (&self.url, self.max_uri_bytes), self.is_whole)
    }

    /// Whether it is a sitemap in XML: a list of URIs as plain text may be a resource like any other.
    pub(super) fn is_sitemap(&mut self) -> bool {
        let (uri, max_bytes) = (&self.url, self.max_uri_bytes);
        let bytes = rewound(&mut self.file);
        bytes.is_ok_and(|bytes| DocumentReader::open(bytes, BaseUri { uri, max_bytes }).is_ok())
    }

    /// As [`reader`](Self::reader), but the reader owns the document, so that it can be stored between two entries.
    pub fn into_reader(self) -> Result<OwnedReader, ReadError> {
        let bytes: Box<dyn BufRead + Send> = Box::new(rewound(self.file)?);
        open(bytes, (&self.url, self.max_uri_bytes), self.is_whole)
    }

    /// Its first bytes as text, if it is not a document. A byte order mark states that they are UTF-16.
    pub(super) fn text(&mut self, most: u64) -> Result<String, FetchError> {
        let mut bytes = Vec::new();
        rewound(&mut self.file)?
            .take(most)
            .read_to_end(&mut bytes)?;
        let (text, _, _) = encoding_rs::UTF_8.decode(&bytes);
        Ok(text.into_owned())
    }
}

/// The bytes of a file from the beginning.
fn rewound<F: Read + Seek>(mut file: F) -> io::Result<BufReader<F>> {
    file.seek(SeekFrom::Start(0))?;
    Ok(BufReader::with_capacity(64 << 10, file))
}

/// A reader. `is_whole`: the document came whole, so that a damaged end is tolerated.
fn open<R: BufRead>(
    bytes: R,
    (uri, max_bytes): (&Url, usize),
    is_whole: bool,
) -> Result<DocumentReader<R>, ReadError> {
    let reader = DocumentReader::open_sitemap(bytes, BaseUri { uri, max_bytes })?;
    if is_whole {
        Ok(reader.tolerating_damaged_end())
    } else {
        Ok(reader)
    }
}

impl Client {
    /// Fetches a document. Retries temporary errors; returns the error of the last try.
    ///
    /// At most `limit` bytes after decompression. Up to a mebibyte is stored in memory, more in an unnamed file.
    pub async fn get_document(
        &self,
        uri: &Url,
        limit: u64,
    ) -> Result<Box<FetchedDocument>, FetchError> {
        self.retry(|| self.try_document(uri, limit, u64::MAX)).await
    }

    /// As [`get_document`](Self::get_document); `None` if it is still the `known` version.
    pub async fn get_document_if_changed(
        &self,
        uri: &Url,
        known: &Validators,
        limit: u64,
    ) -> Result<Option<Box<FetchedDocument>>, FetchError> {
        self.retry(|| self.try_document_if_changed(uri, known, limit, u64::MAX))
            .await
    }

    /// As [`get_document`](Self::get_document), without retries; of what is clearly no document only about `page` bytes are read.
    pub(super) async fn try_document(
        &self,
        uri: &Url,
        limit: u64,
        page: u64,
    ) -> Result<Box<FetchedDocument>, FetchError> {
        let answer = self.ask_for_document(uri, None).await?;
        self.receive_document(answer, limit, page).await
    }

    /// As [`try_document`](Self::try_document); `None` if it is still the `known` version.
    pub(super) async fn try_document_if_changed(
        &self,
        uri: &Url,
        known: &Validators,
        limit: u64,
        page: u64,
    ) -> Result<Option<Box<FetchedDocument>>, FetchError> {
        let answer = self.ask_for_document(uri, Some(known)).await?;
        if answer.response.status() == StatusCode::NOT_MODIFIED && !known.is_empty() {
            return Ok(None);
        }
        let received = self.receive_document(answer, limit, page).await;
        received.map(Some)
    }

    async fn ask_for_document(
        &self,
        uri: &Url,
        known: Option<&Validators>,
    ) -> Result<Answer, FetchError> {
        self.ask_document(uri, Follow::All, |http, url| {
            make_conditional(known, http.get(url).header(ACCEPT_ENCODING, "gzip"))
        })
        .await
    }

    async fn receive_document(
        &self,
        answer: Answer,
        limit: u64,
        page: u64,
    ) -> Result<Box<FetchedDocument>, FetchError> {
        match answer.response.status() {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {}
            _ => return Err(answer.into_error().await),
        }
        let stated = answer.content_coding();
        let codings = stated.as_deref().map(ContentCoding::parse_list);
        let is_deflated = codings
            .transpose()?
            .is_some_and(|codings| codings.contains(&ContentCoding::Deflate));
        // Compressed bytes may be a little more than the content, not twice as much.
        let most = limit.saturating_mul(2);
        if answer
            .response
            .content_length()
            .is_some_and(|length| length > most)
        {
            return Err(FetchError::TooLarge(SizeLimit::document(limit)));
        }
        let headers = answer.response.headers();
        let is_whole = answer.response.content_length().is_some()
            || headers.contains_key(TRANSFER_ENCODING)
            || answer.response.version() >= Version::HTTP_2;
        let validators = validators_of(headers);
        let last_modified = last_modified(headers);
        let links = answer.links().take(MAX_LINKS).collect();
        let url = answer.url.clone();
        // A task of its own is woken for each part that arrives, however short: the caller may be woken at a high price, as the main
        // thread of the program is. Dropping it ends the request.
        let spooling =
            AbortOnDropHandle::new(tokio::spawn(spool_body(answer, limit, page, is_deflated)));
        // The wait for its turn does not count, however slow the Source may be requested.
        let longest = self.timeout().saturating_mul(TIMEOUTS_PER_DOCUMENT);
        // It takes too long, its task ends, or the body has an error.
        let spooled = tokio::time::timeout(longest, spooling).await???;
        Ok(Box::new(FetchedDocument {
            url,
            validators,
            last_modified,
            links,
            digest: spooled.digest,
            len: spooled.len,
            file: spooled.file,
            redaction: self.redaction().clone(),
            is_whole,
            max_uri_bytes: self.max_uri_bytes,
        }))
    }
}

/// Reads a body to its end; a body shorter than announced is an error of the transport. Decompresses and writes on blocking
/// threads. Of what is clearly no document, about `page` bytes are enough.
async fn spool_body(
    mut answer: Answer,
    limit: u64,
    page: u64,
    is_deflated: bool,
) -> Result<Spooled, FetchError> {
    let mut spool = Spool::new(limit, is_deflated);
    let mut batch: Vec<Bytes> = Vec::new();
    let mut batched = 0;
    let mut first = Vec::new();
    let mut received = 0;
    while let Some(chunk) = answer.chunk().await? {
        batched += chunk.len();
        received += chunk.len() as u64;
        let missing = FIRST_BYTES - first.len();
        first.extend(chunk.iter().take(missing));
        batch.push(chunk);
        if received >= page && !is_deflated && !may_be_document(&first) {
            break;
        }
        if batched >= BATCH {
            let full = std::mem::take(&mut batch);
            batched = 0;
            spool = on_blocking_thread(move || spool.add(&full).map(|()| spool)).await??;
        }
    }
    on_blocking_thread(move || spool.add(&batch).and_then(|()| spool.finish())).await?
}

/// Whether a body that begins so can be a document, compressed or not: XML, or a list of URIs.
fn may_be_document(first: &[u8]) -> bool {
    // UTF-16 has zeros between the characters.
    let skipped =
        |byte: &&u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf\xff\xfe\0".contains(*byte);
    match first.iter().find(|byte| !skipped(byte)) {
        Some(b'<' | b'h' | b'H') | None => true,
        Some(_) => first.starts_with(&GZIP_MAGIC),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resyncd_core::Now;
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::test_site::{self, TestSite};
    use crate::{HttpNetwork, PaceLimits};

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    async fn get(site: &TestSite, path: &str) -> Result<FetchedDocument, FetchError> {
        let url = Url::parse(&site.url(path)).unwrap();
        let document = test_site::client().get_document(&url, 8 << 20).await?;
        Ok(*document)
    }

    /// Answers at once.
    struct Answering;

    impl HttpNetwork for Answering {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            let response = axum::http::Response::new("http://example.com/");
            std::future::ready(Ok(response.into())).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_of_a_document_for_its_turn_does_not_count_as_a_time_out() {
        let paused = || Now {
            mono: tokio::time::Instant::now().into_std(),
            ..test_site::now()
        };
        let pace = PaceLimits {
            requests_per_second: Some(0.001),
            ..PaceLimits::default()
        };
        let client = Client::new(&test_site::http(), paused).unwrap();
        let client = client.with_network(Arc::new(Answering)).with_pace(&pace);
        let began = tokio::time::Instant::now();
        let url = Url::parse("https://example.com/sitemap.txt").unwrap();
        for _ in 0..2 {
            client.get_document(&url, 1000).await.unwrap();
        }
        let longest = client.timeout() * TIMEOUTS_PER_DOCUMENT;
        assert!(began.elapsed() > longest);
    }

    #[tokio::test]
    async fn gzip_is_recognized_by_its_bytes_not_by_headers() {
        let site = TestSite::start(|request| {
            assert_eq!(request.header("accept-encoding"), "gzip");
            let encoded = &[("content-encoding", "gzip")];
            match request.path() {
                "/plain" => test_site::ok("text"),
                "/by-header" => test_site::ok_with(encoded, gzip(b"text")),
                "/by-name.gz" => test_site::ok(gzip(b"text")),
                "/twice.gz" => test_site::ok_with(encoded, gzip(&gzip(b"text"))),
                "/left-on" => test_site::ok_with(encoded, "text"),
                _ => test_site::ok_with(encoded, ""),
            }
        })
        .await;
        for path in [
            "/plain",
            "/by-header",
            "/by-name.gz",
            "/twice.gz",
            "/left-on",
        ] {
            let mut document = get(&site, path).await.unwrap();
            assert_eq!(document.text(99).unwrap(), "text", "{path}");
            assert_eq!(document.text(2).unwrap(), "te", "can be read again");
            assert_eq!(document.bytes_len(), 4);
            assert_eq!(document.digest()[..], Sha256::digest("text")[..]);
        }
        assert_eq!(get(&site, "/empty").await.unwrap().bytes_len(), 0);
    }

    #[tokio::test]
    async fn long_documents_are_complete_and_too_long_ones_are_rejected() {
        let body = |len: usize| -> Vec<u8> { (0..len).map(|n| (n * 31 % 251) as u8).collect() };
        let site = TestSite::start(move |request| match request.path() {
            "/long" => test_site::ok(body(3 << 20)),
            "/long.gz" => test_site::ok(gzip(&body(3 << 20))),
            "/too-long" => test_site::ok(body((8 << 20) + 1)),
            _ => test_site::ok(gzip(&body((8 << 20) + 1))),
        })
        .await;
        for path in ["/long", "/long.gz"] {
            let mut document = get(&site, path).await.unwrap();
            let mut bytes = Vec::new();
            rewound(&mut document.file)
                .unwrap()
                .read_to_end(&mut bytes)
                .unwrap();
            assert!(bytes == body(3 << 20), "{path}");
        }
        for path in ["/too-long", "/too-long.gz"] {
            let error = get(&site, path).await.unwrap_err();
            assert_eq!(
                error,
                FetchError::TooLarge(SizeLimit::document(8 << 20)),
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn a_known_version_is_not_fetched_again() {
        let site = TestSite::start(|request| {
            let known = request.header("if-none-match") == "W/\"7\""
                && request.header("if-modified-since") == "Sun, 06 Nov 1994 08:49:37 GMT";
            if known {
                return test_site::status(304);
            }
            let headers = [
                ("etag", "W/\"7\""),
                ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ];
            test_site::ok_with(&headers, "text")
        })
        .await;
        let document = get(&site, "/").await.unwrap();
        assert_eq!(
            document.last_modified(),
            Some(SourceTime::from_micros(784_111_777_000_000))
        );
        let client = test_site::client();
        let known = document.validators();
        let again = client.get_document_if_changed(document.url(), known, 99);
        assert!(again.await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_document_published_twice_within_a_second_is_not_missed() {
        let second = Arc::new(AtomicUsize::new(0));
        let published = second.clone();
        // A server without ETags.
        let site = TestSite::start(move |request| {
            let date = ["37", "37", "38"][published.load(Ordering::SeqCst)];
            let date = format!("Sun, 06 Nov 1994 08:49:{date} GMT");
            let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
            if request.header("if-modified-since") == modified {
                return test_site::status(304);
            }
            let text = ["first", "second", "second"][published.load(Ordering::SeqCst)];
            test_site::ok_with(&[("date", &date), ("last-modified", modified)], text)
        })
        .await;
        let client = test_site::client();
        let url = Url::parse(&site.url("/")).unwrap();
        let mut known = Validators::default();
        for (expected, text) in [(0, "first"), (1, "second"), (2, "second")] {
            second.store(expected, Ordering::SeqCst);
            let fetched = client.get_document_if_changed(&url, &known, 99).await;
            let mut document = fetched.unwrap().unwrap();
            assert_eq!(document.text(99).unwrap(), text, "{expected}");
            known = document.validators().clone();
        }
        // The second is over: the date is a validator.
        let again = client.get_document_if_changed(&url, &known, 99).await;
        assert!(again.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_unrequested_304_is_an_error() {
        let site = TestSite::start(|_| test_site::status(304)).await;
        assert_eq!(get(&site, "/").await.unwrap_err().code(), "http-status");
    }

    #[tokio::test]
    async fn a_document_that_is_cut_short_is_an_error() {
        for raw in [
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n<urlset/>",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\n<urlset/>\r\n",
        ] {
            let site = TestSite::start_raw(raw).await;
            assert_eq!(get(&site, "/").await.unwrap_err(), FetchError::CutShort);
        }
    }

    #[tokio::test]
    async fn damaged_end_is_tolerated_only_of_a_body_that_is_known_to_be_whole() {
        let body = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>/a</loc></url>"#;
        let length = format!("content-length: {}\r\n", body.len());
        let chunked = "transfer-encoding: chunked\r\n".to_owned();
        for (header, is_whole) in [(String::new(), false), (length, true), (chunked, true)] {
            let framed = if header.starts_with('t') {
                format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
            } else {
                body.to_owned()
            };
            let site =
                TestSite::start_raw(format!("HTTP/1.1 200 OK\r\n{header}\r\n{framed}")).await;
            let mut document = get(&site, "/").await.unwrap();
            let of_reader = document.reader().unwrap().map(|entry| entry.is_ok());
            assert_eq!(
                of_reader.collect::<Vec<_>>().last(),
                Some(&is_whole),
                "{header}"
            );
            let of_owned = document.into_reader().unwrap().map(|entry| entry.is_ok());
            assert_eq!(
                of_owned.collect::<Vec<_>>().last(),
                Some(&is_whole),
                "{header}"
            );
        }
    }

    #[test]
    fn beginning_shows_what_can_not_be_a_document() {
        for first in [
            &b"<urlset"[..],
            b"\n\t <?xml",
            b"\xef\xbb\xbf<urlset",
            b"\xff\xfe<\0u\0",
            b"\xfe\xff\0<\0u",
            b"https://example.com/",
            &GZIP_MAGIC,
            b"",
            b"  ",
        ] {
            assert!(may_be_document(first), "{first:?}");
        }
        for first in [
            &b"%PDF-1.7"[..],
            b"PK\x03\x04",
            b"User-agent: *",
            b"{}",
            b"\x89PNG",
        ] {
            assert!(!may_be_document(first), "{first:?}");
        }
    }

    #[tokio::test]
    async fn temporary_errors_are_retried_and_absence_is_not() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let site = TestSite::start(move |request| {
            let before = counter.fetch_add(1, Ordering::SeqCst);
            match request.path() {
                "/third-time" if before == 2 => test_site::ok("text"),
                "/gone" => test_site::status(410),
                _ => test_site::status(502),
            }
        })
        .await;
        assert!(get(&site, "/third-time").await.is_ok());
        assert_eq!(asked.swap(0, Ordering::SeqCst), 3);
        assert_eq!(get(&site, "/gone").await.unwrap_err().code(), "gone");
        assert_eq!(asked.swap(0, Ordering::SeqCst), 1);
        assert_eq!(get(&site, "/502").await.unwrap_err().code(), "http-status");
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn link_headers_resolve_against_where_the_document_was_found() {
        let site = TestSite::start(|request| match request.path() {
            "/old/list" => test_site::redirect(301, "/new/list"),
            _ => test_site::ok_with(
                &[
                    ("link", "<hub>; rel=\"hub\", <//example.com/self>; rel=self"),
                    ("link", "<../up>; rel=up"),
                ],
                "text",
            ),
        })
        .await;
        let document = get(&site, "/old/list").await.unwrap();
        let found: Vec<_> = document
            .links()
            .iter()
            .map(|link| (link.rel.as_str(), link.href.as_str().to_owned()))
            .collect();
        assert_eq!(
            found,
            [
                ("hub", site.url("/new/hub")),
                ("self", "http://example.com/self".into()),
                ("up", site.url("/up")),
            ]
        );
        assert_eq!(document.url().as_str(), site.url("/new/list"));
    }

    #[tokio::test]
    async fn a_document_can_be_read_several_times() {
        let site = TestSite::start(|_| {
            test_site::ok(gzip(
                br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
                    xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="resourcelist"/>
                    <url><loc>/a</loc></url><url><loc>b</loc></url></urlset>"#,
            ))
        })
        .await;
        let mut document = get(&site, "/lists/1.xml.gz").await.unwrap();
        for _ in 0..2 {
            let mut reader = document.reader().unwrap();
            let mut found = Vec::new();
            while let Some(entry) = reader.next_entry().unwrap() {
                found.push(entry.loc.to_string());
            }
            assert_eq!(found, [site.url("/a"), site.url("/lists/b")]);
        }
        let html = TestSite::start(|_| test_site::ok("<html>")).await;
        let mut page = get(&html, "/").await.unwrap();
        assert!(matches!(
            page.reader().err(),
            Some(ReadError::HtmlPage(None))
        ));
    }

    #[test]
    fn futures_of_the_client_are_send() {
        fn check<T: Send>(_: T) {}
        let client = test_site::client();
        let url = Url::parse("http://127.0.0.1/").unwrap();
        check(client.get_document(&url, 1));
        check(client.discover(&url, 1));
        check(client.capability_list(&url, None, 1));
    }
}
