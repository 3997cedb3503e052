//! Documents: fetched whole, decompressed, and kept so that they can be read several times.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::{
    ACCEPT_ENCODING, ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LINK,
};
use serde::{Deserialize, Serialize};
use tempfile::SpooledTempFile;
use url::Url;

use super::client::{Answer, Client, Follow, Pool};
use super::http_date::parse_http_date;
use super::spool::{Spool, Spooled};
use super::{DocumentError, FetchError, retry};
use crate::protocol::{DocumentReader, HeaderLink, SourceTime, parse_link_header};

/// How much of a body is collected before it is decompressed and written, in bytes.
const BATCH: usize = 256 << 10;

/// A document may take so many time-outs in all: a server that sends a byte now and then must not hold us for ever.
const TIMEOUTS_A_DOCUMENT: u32 = 30;

/// What a server told of a version, to ask later whether it is still the same (RFC 9110, section 8.8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// The `ETag` header, as it was sent.
    pub etag: Option<String>,
    /// The `Last-Modified` header, as it was sent.
    pub last_modified: Option<String>,
}

impl Validators {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self {
            etag: text(ETAG),
            last_modified: text(LAST_MODIFIED),
        }
    }

    /// Whether there is nothing to ask with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// Makes a request conditional.
    pub(super) fn condition(
        known: Option<&Self>,
        request: reqwest::RequestBuilder,
    ) -> reqwest::RequestBuilder {
        let Some(known) = known else { return request };
        let mut request = request;
        if let Some(etag) = &known.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(time) = &known.last_modified {
            request = request.header(IF_MODIFIED_SINCE, time);
        }
        request
    }
}

/// When the server says that it was last modified.
pub(super) fn last_modified(headers: &HeaderMap) -> Option<SourceTime> {
    parse_http_date(headers.get(LAST_MODIFIED)?.to_str().ok()?).map(SourceTime::from)
}

/// What came of asking for a document.
#[derive(Debug)]
pub enum Fetched {
    /// It is the version that is known.
    NotModified,
    /// Here it is.
    Document(FetchedDocument),
}

/// A document that was fetched whole.
#[derive(Debug)]
pub struct FetchedDocument {
    url: Url,
    validators: Validators,
    last_modified: Option<SourceTime>,
    links: Vec<HeaderLink>,
    digest: [u8; 32],
    len: u64,
    file: SpooledTempFile,
}

impl FetchedDocument {
    /// Where it came from, after redirects: what its relative URIs are relative to.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// To ask later whether it is still the same.
    #[must_use]
    pub fn validators(&self) -> &Validators {
        &self.validators
    }

    /// The SHA-256 of the decompressed bytes.
    #[must_use]
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The `Last-Modified` header.
    #[must_use]
    pub fn last_modified(&self) -> Option<SourceTime> {
        self.last_modified
    }

    /// The links of its `Link` headers, in their order.
    #[must_use]
    pub fn links(&self) -> &[HeaderLink] {
        &self.links
    }

    /// The length after decompression, in bytes.
    #[must_use]
    pub fn bytes_len(&self) -> u64 {
        self.len
    }

    /// Reads it from the beginning; as often as one likes.
    ///
    /// # Errors
    /// [`DocumentError`], when it is not a ResourceSync document, or can't be read from disk.
    pub fn reader(&mut self) -> Result<DocumentReader<impl BufRead>, DocumentError> {
        let url = self.url.clone();
        Ok(DocumentReader::open(self.bytes()?, &url)?)
    }

    /// Its first bytes, as text, for what is not a document.
    pub(super) fn text(&mut self, most: u64) -> Result<String, FetchError> {
        let mut bytes = Vec::new();
        self.bytes()?.take(most).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn bytes(&mut self) -> Result<BufReader<&mut SpooledTempFile>, FetchError> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::with_capacity(64 << 10, &mut self.file))
    }
}

impl Client {
    /// Fetches a document, unless it still is the version that is `known`. Tries again what may pass by itself.
    ///
    /// At most `limit` bytes after decompression. Up to a mebibyte stays in memory, more goes to an unnamed file.
    ///
    /// # Errors
    /// [`FetchError`] of the last try.
    pub async fn get_document(
        &self,
        uri: &Url,
        known: Option<&Validators>,
        limit: u64,
    ) -> Result<Fetched, FetchError> {
        retry(self.retries(), async || {
            let whole = self.try_document(uri, known, limit);
            tokio::time::timeout(self.timeout() * TIMEOUTS_A_DOCUMENT, whole)
                .await
                .unwrap_or(Err(FetchError::Timeout))
        })
        .await
    }

    async fn try_document(
        &self,
        uri: &Url,
        known: Option<&Validators>,
        limit: u64,
    ) -> Result<Fetched, FetchError> {
        let known = known.filter(|known| !known.is_empty());
        let answer = self
            .ask(
                Pool::Documents,
                uri,
                Follow::All,
                |_| Ok(()),
                |http, url| {
                    Validators::condition(known, http.get(url).header(ACCEPT_ENCODING, "gzip"))
                },
            )
            .await?;
        match answer.response.status() {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {}
            StatusCode::NOT_MODIFIED if known.is_some() => return Ok(Fetched::NotModified),
            _ => return Err(answer.into_error().await),
        }
        let headers = answer.response.headers();
        let validators = Validators::of(headers);
        let last_modified = last_modified(headers);
        let links = headers
            .get_all(LINK)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| parse_link_header(value, &answer.url))
            .collect();
        let url = answer.url.clone();
        let spooled = spool_body(answer, limit).await?;
        Ok(Fetched::Document(FetchedDocument {
            url,
            validators,
            last_modified,
            links,
            digest: spooled.digest,
            len: spooled.len,
            file: spooled.file,
        }))
    }
}

/// Reads a body to its end. Decompressing and writing happen where they may block.
async fn spool_body(mut answer: Answer, limit: u64) -> Result<Spooled, FetchError> {
    let announced = answer.response.content_length();
    let mut received = 0;
    let mut spool = Spool::new(limit);
    let mut batch: Vec<Bytes> = Vec::new();
    let mut batched = 0;
    while let Some(chunk) = answer.chunk().await? {
        received += chunk.len() as u64;
        batched += chunk.len();
        batch.push(chunk);
        if batched >= BATCH {
            let full = std::mem::take(&mut batch);
            batched = 0;
            spool = off_the_runtime(move || spool.take(&full).map(|()| spool)).await?;
        }
    }
    if announced.is_some_and(|announced| announced != received) {
        return Err(FetchError::CutShort);
    }
    off_the_runtime(move || spool.take(&batch).and_then(|()| spool.finish())).await
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(FetchError::Io(error.to_string())))
}
