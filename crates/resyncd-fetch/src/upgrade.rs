//! A request after whose answer the connection speaks another protocol (RFC 9110, section 7.8).

use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, StatusCode, Upgraded};
use url::Url;

use super::FetchError;
use super::client::{Client, Follow};
use super::permits::Pool;

/// What a server has answered that was not an error.
pub enum UpgradeAnswer {
    /// The connection speaks the other protocol.
    Switched {
        /// The header fields of the answer.
        headers: HeaderMap,
        /// What follows it.
        connection: Upgraded,
    },
    /// The protocol is not switched: the status.
    Kept(u16),
}

impl Client {
    /// Sends a GET request that asks for another protocol by the header fields that `with_headers` adds. Redirects are followed; guard,
    /// proxy, certificates, credentials and limits are those of every request.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer, or one with the status of an error.
    pub async fn upgrade(
        &self,
        url: &Url,
        with_headers: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<UpgradeAnswer, FetchError> {
        let asking = self.ask(
            Pool::Sockets,
            url,
            Follow::All,
            |_| Ok(()),
            |http, url| with_headers(http.get(url)),
        );
        let answer = asking.await?;
        let status = answer.response.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(answer.into_error().await);
        }
        if status != StatusCode::SWITCHING_PROTOCOLS {
            answer.drain().await;
            return Ok(UpgradeAnswer::Kept(status.as_u16()));
        }
        let headers = answer.response.headers().clone();
        let upgrading = tokio::time::timeout(self.timeout(), answer.response.upgrade());
        let connection = upgrading.await??;
        Ok(UpgradeAnswer::Switched {
            headers,
            connection,
        })
    }
}
