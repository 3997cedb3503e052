//! Requests without downloading: whether a server would deliver a resource, whether a document exists, and the links in the
//! header of an answer; and what a URL of the configuration answers.

use std::time::Duration;

use reqwest::header::{ACCEPT_ENCODING, SERVER};
use reqwest::{Method, StatusCode};
use resyncd_core::ResourceUri;
use url::Url;

use super::client::{Answer, Follow};
use super::permits::Pool;
use super::{AllowedHosts, Client, FetchError};
use crate::HeaderLink;

/// The beginning of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerStart {
    /// The status code.
    pub status: u16,
    /// The `Server` header.
    pub server: Option<String>,
    /// The first bytes of the body.
    pub body: Vec<u8>,
}

impl Client {
    /// Requests a URL of the configuration once, wherever its host is. A redirect is not followed. Returns the answer with at most so
    /// many bytes of its body.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn get_own_url(
        &self,
        url: &Url,
        timeout: Duration,
        most_bytes: usize,
    ) -> Result<AnswerStart, FetchError> {
        let client = self.for_own_url(url, timeout)?;
        let mut answer = client
            .ask_document(url, Follow::Never, |http, url| {
                http.get(url).header(ACCEPT_ENCODING, "identity")
            })
            .await?;
        let server = answer.header(SERVER).map(str::to_owned);
        // The first part has the beginning: only a short answer is of interest.
        let chunk = answer.response.chunk().await.ok().flatten();
        let chunk = chunk.unwrap_or_default();
        Ok(AnswerStart {
            status: answer.response.status().as_u16(),
            server,
            body: chunk.get(..most_bytes).unwrap_or(&chunk).to_vec(),
        })
    }

    /// Checks whether a resource can be fetched. Retries temporary errors; returns the error of the last try.
    ///
    /// By HEAD, or by a GET whose body is dropped.
    pub async fn probe(
        &self,
        uri: &ResourceUri,
        hosts: &AllowedHosts<'_>,
    ) -> Result<(), FetchError> {
        self.head_of(Pool::Content, uri.url(), |url| hosts.check(url))
            .await
            .map(drop)
    }

    /// Checks whether a document can be fetched, by HEAD, or by a GET whose body is dropped.
    pub(super) async fn probe_document(&self, uri: &Url) -> Result<(), FetchError> {
        self.head_of(Pool::Documents, uri, |_| Ok(()))
            .await
            .map(drop)
    }

    /// The links of the `Link` headers of any resource, in their order.
    pub(super) async fn link_header(&self, uri: &Url) -> Result<Vec<HeaderLink>, FetchError> {
        let answer = self.head_of(Pool::Documents, uri, |_| Ok(())).await?;
        Ok(answer.links().collect())
    }

    /// The answer to HEAD; if that is an error, to GET, whose body is not read: some servers do not support HEAD.
    async fn head_of(
        &self,
        pool: Pool,
        uri: &Url,
        allowed: impl Fn(&Url) -> Result<(), FetchError>,
    ) -> Result<Answer, FetchError> {
        let ask = async |method: Method| {
            let request = |http: &reqwest::Client, url| {
                http.request(method.clone(), url)
                    .header(ACCEPT_ENCODING, "identity")
            };
            let answer = self.ask(pool, uri, Follow::All, &allowed, request).await?;
            match answer.response.status() {
                StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => Ok(answer),
                _ => Err(answer.into_error().await),
            }
        };
        self.retry(async || match ask(Method::HEAD).await {
            Err(FetchError::Status { .. }) => ask(Method::GET).await,
            answered => answered,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;
    use crate::test_site::{self, TestSite};

    #[tokio::test]
    async fn existing_and_missing_resources_are_distinguished() {
        let site = TestSite::start(|request| match (request.path(), request.method.clone()) {
            ("/there", _) | ("/no-head", Method::GET) => test_site::ok("body"),
            ("/no-head", _) => test_site::status(405),
            _ => test_site::status(404),
        })
        .await;
        let client = test_site::client();
        for (path, expected) in [
            ("/there", None),
            ("/no-head", None),
            ("/gone", Some("not-found")),
        ] {
            let uri = ResourceUri::parse(&site.url(path)).unwrap();
            let probed = client.probe(&uri, &AllowedHosts::any()).await;
            assert_eq!(probed.err().map(|error| error.code()), expected, "{path}");
        }
    }
}
