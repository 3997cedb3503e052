//! Downloads a package to disk, resuming where an earlier try was cut short (RFC 9110, sections 13.1.5 and 14).

mod partial;
#[cfg(test)]
mod tests;

use std::io;

pub use partial::PartialPackage;
use reqwest::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use reqwest::{RequestBuilder, StatusCode};
use url::Url;

use crate::client::{Answer, Client, Follow};
use crate::content::ThroughputGuard;
use crate::error::on_blocking_thread;
use crate::permits::Pool;
use crate::ranges::{ContentRange, DownloadRecord};
use crate::validators::make_conditional;
use crate::{AllowedHosts, FetchError, SizeLimit};

/// How many bytes are collected before they are written.
const BATCH: usize = 1 << 20;

/// The minimum number of bytes in thirty time-outs.
const LEAST: u64 = 256 << 10;

/// How many answers within one call may have less than [`LEAST`] bytes: unusable ones and small ones.
const MAX_SMALL_ANSWERS: u32 = 4;

impl Client {
    /// Downloads a package to disk, resuming an earlier try if the server still has the same version. A complete one is
    /// fetched again only if the server has another version.
    ///
    /// Every redirect must lead to an allowed host too. `limit`: `None` for no limit. The bytes are stored as they
    /// are served. The total time is not limited, but a pause is limited to the time-out, and the rate to 256 KiB in thirty
    /// time-outs. One try only; the received bytes remain on disk for the next one.
    pub async fn get_package(
        &self,
        uri: &Url,
        hosts: &AllowedHosts<'_>,
        limit: Option<SizeLimit>,
        mut partial: PartialPackage,
    ) -> Result<PartialPackage, FetchError> {
        let mut small_answers = 0;
        while small_answers < MAX_SMALL_ANSWERS {
            let plan = RequestPlan::of(&partial);
            if plan == RequestPlan::Nothing {
                return Ok(partial);
            }
            let before = partial.received();
            partial = match self.try_package(plan, uri, hosts, limit, partial).await? {
                DownloadState::Complete(partial) => return Ok(partial),
                DownloadState::Incomplete(partial) => partial,
            };
            if partial.received() < before.saturating_add(LEAST) {
                small_answers += 1;
            }
        }
        // The server answers every request for the rest with something else, or with very few bytes.
        Err(FetchError::CutShort)
    }

    async fn try_package(
        &self,
        plan: RequestPlan,
        uri: &Url,
        hosts: &AllowedHosts<'_>,
        limit: Option<SizeLimit>,
        partial: PartialPackage,
    ) -> Result<DownloadState, FetchError> {
        let answer = self
            .ask(
                Pool::Packages,
                uri,
                Follow::All,
                |url| hosts.check(url),
                |http, url| {
                    let request = http.get(url).header(ACCEPT_ENCODING, "identity");
                    plan.add_headers(request, &partial)
                },
            )
            .await?;
        let headers = answer.response.headers();
        match answer.response.status() {
            StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => {
                let length = answer.response.content_length();
                SizeLimit::check(limit, length.unwrap_or_default())?;
                let record = DownloadRecord::of(headers, length);
                let partial = write_blocking(partial, |partial| partial.begin(record)).await?;
                self.append_body(answer, length, limit, partial).await
            }
            StatusCode::PARTIAL_CONTENT if plan == RequestPlan::Resume => {
                let range = ContentRange::of(headers);
                let Some(range) = range.filter(|range| {
                    let record = partial.record();
                    record.is_continued_by(partial.received(), *range, headers)
                }) else {
                    return restart(answer, partial).await;
                };
                SizeLimit::check(limit, range.total)?;
                let partial =
                    write_blocking(partial, move |partial| partial.record_length(range.total))
                        .await?;
                self.append_body(answer, Some(range.last + 1), limit, partial)
                    .await
            }
            StatusCode::NOT_MODIFIED if plan == RequestPlan::Revalidate => {
                Ok(DownloadState::Complete(partial))
            }
            StatusCode::RANGE_NOT_SATISFIABLE if plan == RequestPlan::Resume => {
                restart(answer, partial).await
            }
            _ => Err(answer.into_error().await),
        }
    }

    /// Appends a body to the received bytes; their length is then `expected`.
    async fn append_body(
        &self,
        mut answer: Answer,
        expected: Option<u64>,
        limit: Option<SizeLimit>,
        mut partial: PartialPackage,
    ) -> Result<DownloadState, FetchError> {
        let mut pace = ThroughputGuard::new(LEAST, self.timeout());
        loop {
            let (mut chunks, mut length) = (Vec::new(), 0);
            let ended = loop {
                match pace.chunk(&mut answer).await {
                    Ok(Some(chunk)) => {
                        length += chunk.len();
                        chunks.push(chunk);
                    }
                    Ok(None) => break Ok(true),
                    Err(error) => break Err(error),
                }
                if length >= BATCH {
                    break Ok(false);
                }
            };
            SizeLimit::check(limit, partial.received() + length as u64)?;
            // Including the bytes before an error: the next try continues there.
            partial = write_blocking(partial, move |partial| partial.append(&chunks)).await?;
            if ended? {
                break;
            }
        }
        let received = partial.received();
        if expected.is_some_and(|expected| expected != received) {
            return Err(FetchError::CutShort);
        }
        // A server may send less of the rest than requested.
        if partial.length().is_some_and(|length| received < length) {
            return Ok(DownloadState::Incomplete(partial));
        }
        let complete = write_blocking(partial, PartialPackage::finish).await?;
        Ok(DownloadState::Complete(complete))
    }
}

/// The state of a download after an answer.
enum DownloadState {
    Complete(PartialPackage),
    Incomplete(PartialPackage),
}

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestPlan {
    /// The complete package.
    Complete,
    /// The missing rest, if the version is still the same.
    Resume,
    /// The complete package, if the version is another one.
    Revalidate,
    /// Nothing: the package is complete, and another version could not be recognized.
    Nothing,
}

impl RequestPlan {
    fn of(partial: &PartialPackage) -> Self {
        let record = partial.record();
        if partial.is_complete() {
            return if record.validators.is_empty() {
                Self::Nothing
            } else {
                Self::Revalidate
            };
        }
        let is_missing = record
            .length
            .is_none_or(|length| partial.received() < length);
        if partial.received() > 0 && is_missing && record.strong_validator().is_some() {
            Self::Resume
        } else {
            Self::Complete
        }
    }

    fn add_headers(self, request: RequestBuilder, partial: &PartialPackage) -> RequestBuilder {
        let record = partial.record();
        match (self, record.strong_validator()) {
            (Self::Revalidate, _) => make_conditional(Some(&record.validators), request),
            (Self::Resume, Some(validator)) => request
                .header(RANGE, format!("bytes={}-", partial.received()))
                .header(IF_RANGE, validator),
            _ => request,
        }
    }
}

/// Discards the received bytes, so that the next request is for the complete package.
async fn restart(answer: Answer, partial: PartialPackage) -> Result<DownloadState, FetchError> {
    answer.drain().await;
    let partial =
        write_blocking(partial, |partial| partial.begin(DownloadRecord::default())).await?;
    Ok(DownloadState::Incomplete(partial))
}

/// Writes on a blocking thread. If the future is dropped, the package stays locked until the write has ended.
async fn write_blocking(
    mut partial: PartialPackage,
    work: impl FnOnce(&mut PartialPackage) -> io::Result<()> + Send + 'static,
) -> Result<PartialPackage, FetchError> {
    let folder = partial.folder().to_owned();
    let worked = on_blocking_thread(move || work(&mut partial).map(|()| partial)).await?;
    worked.map_err(|error| FetchError::from_disk(&folder, &error))
}
