//! Probes whether a server would deliver a resource, without downloading it.

use reqwest::StatusCode;
use reqwest::header::ACCEPT_ENCODING;

use super::client::Follow;
use super::permits::Pool;
use super::{AllowedHosts, Client, FetchError, retry};
use crate::protocol::ResourceUri;

impl Client {
    /// Checks whether a resource can be fetched. Retries temporary errors; returns the error of the last try.
    ///
    /// By HEAD; if that is an error, by a GET whose body is dropped: some servers do not support HEAD.
    pub async fn probe(
        &self,
        uri: &ResourceUri,
        hosts: &AllowedHosts<'_>,
    ) -> Result<(), FetchError> {
        retry(self.retries(), || async move {
            let answer = self
                .ask(
                    Pool::Content,
                    uri.url(),
                    Follow::All,
                    |url| hosts.check(url),
                    |http, url| http.head(url).header(ACCEPT_ENCODING, "identity"),
                )
                .await?;
            match answer.response.status() {
                StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION => return Ok(()),
                _ => drop(answer),
            }
            self.get_content(uri, hosts, None, None).await.map(drop)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::*;
    use crate::fetch::test_site::{self, Site};

    #[tokio::test]
    async fn existing_and_missing_resources_are_distinguished() {
        let site = Site::start(|request| match (request.path(), request.method.clone()) {
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
