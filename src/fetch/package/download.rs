//! Fetching a package: to disk, and on from where it was cut short (RFC 9110, sections 13.1.5 and 14).

use std::io;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, DATE, HeaderMap, IF_RANGE, RANGE};
use reqwest::{RequestBuilder, StatusCode};
use url::Url;

use super::partial::{Note, PartialPackage};
use crate::fetch::client::{Answer, Client, Follow};
use crate::fetch::http_date::parse_http_date;
use crate::fetch::permits::Pool;
use crate::fetch::validators::{last_modified, make_conditional, validators_of};
use crate::fetch::{AllowedHosts, FetchError};
use crate::protocol::SourceTime;

/// How much is collected before it is written, in bytes.
const BATCH: usize = 1 << 20;

/// What has to come within so many time-outs, in bytes: a server that sends a byte now and then must not hold us for ever.
const LEAST: usize = 256 << 10;
const TIMEOUTS: u32 = 30;

/// How many answers within one call may bring less than [`LEAST`]: one that fits nothing, and more than one that is small.
const MOST_FRUITLESS: u32 = 4;

/// How much older than the answer its `Last-Modified` has to be, to tell one version from the next, in microseconds
/// (RFC 9110, section 8.8.2.2).
const DATED_AFTER: i64 = 60 * 1_000_000;

impl Client {
    /// Fetches a package to disk, on from where it was cut short if the server still has the same version. One that is
    /// there as a whole is fetched again only if the server says that it is another one by now.
    ///
    /// Every redirect must lead to an allowed host too. `limit` is in bytes, `None` for no limit. The bytes are taken as
    /// they are served. It may take as long as it likes, but not pause for longer than the time-out, nor be slower than 256 KiB in
    /// thirty of them. One try only; what has come stays on disk, whatever happens, for the next one.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn get_package(
        &self,
        uri: &Url,
        hosts: &AllowedHosts<'_>,
        limit: Option<u64>,
        mut partial: PartialPackage,
    ) -> Result<PartialPackage, FetchError> {
        let mut fruitless = 0;
        while fruitless < MOST_FRUITLESS {
            let plan = Plan::of(&partial);
            if plan == Plan::Keep {
                return Ok(partial);
            }
            let before = partial.received();
            partial = match self.try_package(plan, uri, hosts, limit, partial).await? {
                Got::Whole(partial) => return Ok(partial),
                Got::Part(partial) => partial,
            };
            if partial.received() < before.saturating_add(LEAST as u64) {
                fruitless += 1;
            }
        }
        // It answers every request for the rest with something else, or with crumbs.
        Err(FetchError::CutShort)
    }

    async fn try_package(
        &self,
        plan: Plan,
        uri: &Url,
        hosts: &AllowedHosts<'_>,
        limit: Option<u64>,
        partial: PartialPackage,
    ) -> Result<Got, FetchError> {
        let answer = self
            .ask(
                Pool::Packages,
                uri,
                Follow::All,
                |url| hosts.check(url),
                |http, url| {
                    let request = http.get(url).header(ACCEPT_ENCODING, "identity");
                    plan.condition(request, &partial)
                },
            )
            .await?;
        let headers = answer.response.headers();
        match answer.response.status() {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {
                let length = answer.response.content_length();
                refuse_too_long(length, limit)?;
                let note = Note::of(headers, length);
                let partial = off_the_runtime(partial, |partial| partial.begin(note)).await?;
                self.take_body(answer, length, limit, partial).await
            }
            StatusCode::PARTIAL_CONTENT if plan == Plan::Resume => {
                let range = ContentRange::of(headers);
                let Some(range) = range.filter(|range| partial.goes_on_with(*range, headers))
                else {
                    return start_anew(answer, partial).await;
                };
                refuse_too_long(Some(range.total), limit)?;
                let partial =
                    off_the_runtime(partial, move |partial| partial.note_length(range.total))
                        .await?;
                self.take_body(answer, Some(range.last + 1), limit, partial)
                    .await
            }
            StatusCode::NOT_MODIFIED if plan == Plan::Revalidate => Ok(Got::Whole(partial)),
            StatusCode::RANGE_NOT_SATISFIABLE if plan == Plan::Resume => {
                start_anew(answer, partial).await
            }
            _ => Err(answer.into_error().await),
        }
    }

    /// Writes a body to the end of what there is, which is `expected` bytes long then.
    async fn take_body(
        &self,
        mut answer: Answer,
        expected: Option<u64>,
        limit: Option<u64>,
        mut partial: PartialPackage,
    ) -> Result<Got, FetchError> {
        let longest = self.timeout().saturating_mul(TIMEOUTS);
        loop {
            let mut batch = Batch::default();
            let ended = batch.fill(&mut answer, longest).await;
            refuse_too_long(Some(partial.received() + batch.length as u64), limit)?;
            // Also what came before it broke: the next try goes on from there.
            let chunks = batch.chunks;
            partial = off_the_runtime(partial, move |partial| partial.append(&chunks)).await?;
            if ended? {
                break;
            }
        }
        let received = partial.received();
        if expected.is_some_and(|expected| expected != received) {
            return Err(FetchError::CutShort);
        }
        // A server may send less of the rest than it was asked for.
        if partial.length().is_some_and(|length| received < length) {
            return Ok(Got::Part(partial));
        }
        let whole = off_the_runtime(partial, PartialPackage::finish).await?;
        Ok(Got::Whole(whole))
    }
}

/// What there is after an answer.
enum Got {
    Whole(PartialPackage),
    Part(PartialPackage),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// All of it.
    Whole,
    /// What is missing, if it is still the same version.
    Resume,
    /// Whether it is still the same version.
    Revalidate,
    /// Nothing: all of it is here, and nobody could tell whether there is another version.
    Keep,
}

impl Plan {
    fn of(partial: &PartialPackage) -> Self {
        let note = partial.note();
        if partial.is_whole() {
            return if note.validators.is_empty() {
                Self::Keep
            } else {
                Self::Revalidate
            };
        }
        let is_missing = note.length.is_none_or(|length| partial.received() < length);
        if partial.received() > 0 && is_missing && note.strong_validator().is_some() {
            Self::Resume
        } else {
            Self::Whole
        }
    }

    fn condition(self, request: RequestBuilder, partial: &PartialPackage) -> RequestBuilder {
        let note = partial.note();
        match (self, note.strong_validator()) {
            (Self::Revalidate, _) => make_conditional(Some(&note.validators), request),
            (Self::Resume, Some(validator)) => request
                .header(RANGE, format!("bytes={}-", partial.received()))
                .header(IF_RANGE, validator),
            _ => request,
        }
    }
}

impl PartialPackage {
    /// Whether an answer is what comes next of the version that is here.
    fn goes_on_with(&self, range: ContentRange, headers: &HeaderMap) -> bool {
        let same = validators_of(headers).etag;
        range.continues(self.received(), self.length())
            && (same.is_none() || same == self.note().validators.etag)
    }
}

impl Note {
    fn of(headers: &HeaderMap, length: Option<u64>) -> Self {
        Self {
            validators: validators_of(headers),
            is_dated: is_dated(headers),
            length,
            whole: false,
        }
    }

    /// What tells this version from every other one, byte by byte.
    fn strong_validator(&self) -> Option<&str> {
        match &self.validators.etag {
            Some(etag) => Some(etag.as_str()).filter(|etag| !etag.starts_with("W/")),
            None => self
                .validators
                .last_modified
                .as_deref()
                .filter(|_| self.is_dated),
        }
    }
}

/// Whether a version's `Last-Modified` was long past when it was served, so that no other one can have the same.
fn is_dated(headers: &HeaderMap) -> bool {
    let served = headers.get(DATE).and_then(|date| date.to_str().ok());
    let served = served.and_then(parse_http_date).map(SourceTime::from);
    match (served, last_modified(headers)) {
        (Some(served), Some(modified)) => served.micros() - modified.micros() >= DATED_AFTER,
        _ => false,
    }
}

/// The `Content-Range` header (RFC 9110, section 14.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ContentRange {
    first: u64,
    last: u64,
    total: u64,
}

impl ContentRange {
    fn of(headers: &HeaderMap) -> Option<Self> {
        Self::parse(headers.get(CONTENT_RANGE)?.to_str().ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        let (range, total) = rest.trim().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        Some(Self {
            first: first.trim().parse().ok()?,
            last: last.trim().parse().ok()?,
            // Of an unknown length nobody could tell the end.
            total: total.trim().parse().ok()?,
        })
    }

    /// Whether it goes on where `received` bytes end, in something that is as long as is known.
    fn continues(self, received: u64, known: Option<u64>) -> bool {
        self.first == received
            && (self.first..self.total).contains(&self.last)
            && known.is_none_or(|known| known == self.total)
    }
}

fn refuse_too_long(length: Option<u64>, limit: Option<u64>) -> Result<(), FetchError> {
    match (length, limit) {
        (Some(length), Some(limit)) if length > limit => Err(FetchError::TooLarge { limit }),
        _ => Ok(()),
    }
}

async fn start_anew(answer: Answer, partial: PartialPackage) -> Result<Got, FetchError> {
    answer.drain().await;
    let partial = off_the_runtime(partial, |partial| partial.begin(Note::default())).await?;
    Ok(Got::Part(partial))
}

/// Writes where that may block. Whoever drops this does not part the package from what is being written to it.
async fn off_the_runtime(
    mut partial: PartialPackage,
    work: impl FnOnce(&mut PartialPackage) -> io::Result<()> + Send + 'static,
) -> Result<PartialPackage, FetchError> {
    let working = tokio::task::spawn_blocking(move || work(&mut partial).map(|()| partial));
    match working.await {
        Ok(done) => done.map_err(|error| FetchError::from_disk(&error)),
        Err(error) => Err(FetchError::Io(error.to_string())),
    }
}

/// Chunks that were received and not written yet.
#[derive(Default)]
struct Batch {
    chunks: Vec<Bytes>,
    length: usize,
}

impl Batch {
    /// Receives until there is enough to write; whether the body ended. What came before an error is there, too.
    async fn fill(&mut self, answer: &mut Answer, longest: Duration) -> Result<bool, FetchError> {
        let receive = async {
            while self.length < BATCH {
                let Some(chunk) = answer.chunk().await? else {
                    return Ok(true);
                };
                self.length += chunk.len();
                self.chunks.push(chunk);
            }
            Ok(false)
        };
        match tokio::time::timeout(longest, receive).await {
            Ok(received) => received,
            Err(_) if self.length >= LEAST => Ok(false),
            Err(_) => Err(FetchError::TooSlow {
                least: LEAST as u64,
                within: longest,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::{StreamExt, stream};

    use super::*;
    use crate::fetch::test_site::{self, Site};

    #[tokio::test]
    async fn a_trickle_ends_and_a_flow_does_not() {
        let site = Site::start(|request| {
            let first = match request.path() {
                "/flow" => vec![0; LEAST],
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
        // The flow may take as long as a busy machine needs for it; the trickle never is enough.
        for (path, seconds, expected) in
            [("/flow", 10, Ok(false)), ("/trickle", 1, Err("too-slow"))]
        {
            let uri = Url::parse(&site.url(path)).unwrap();
            let ask = client.ask(
                Pool::Packages,
                &uri,
                Follow::All,
                |_| Ok(()),
                |http, url| http.get(url),
            );
            let mut answer = ask.await.unwrap();
            let mut batch = Batch::default();
            let filled = batch.fill(&mut answer, Duration::from_secs(seconds)).await;
            assert_eq!(filled.map_err(|error| error.code()), expected, "{path}");
        }
    }
}
