//! The requests of a hub to the callbacks of its subscribers (WebSub, sections 5.3 and 7), and to another hub that is told of news.
//!
//! Invariant: whoever subscribes states the URL, so that the guard of all requests applies to it, and no redirect is followed.

use bytes::Bytes;
use url::Url;

use super::FetchError;
use super::client::{Answer, Client, Follow};
use crate::WebhookAnswer;

/// The longest answer of a callback that is read, in bytes: no challenge is longer.
const LONGEST_ANSWER: usize = 1024;

impl Client {
    /// Asks a callback, and returns the status and the body of its answer.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn ask_callback(&self, url: &Url) -> Result<(u16, Vec<u8>), FetchError> {
        let asking = self.ask_document(url, Follow::Never, |http, url| http.get(url));
        let mut answer = asking.await?;
        let status = answer.response.status().as_u16();
        let mut body = Vec::new();
        while body.len() <= LONGEST_ANSWER
            && let Some(chunk) = answer.chunk().await?
        {
            body.extend_from_slice(&chunk);
        }
        Ok((status, body))
    }

    /// Posts a body once, with these headers.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn post_callback(
        &self,
        url: &Url,
        headers: &[(&'static str, String)],
        body: &Bytes,
    ) -> Result<WebhookAnswer, FetchError> {
        let asking = self.ask_document(url, Follow::Never, |http, url| {
            let asked = http.post(url).body(body.clone());
            let headers = headers.iter();
            headers.fold(asked, |asked, (name, value)| asked.header(*name, value))
        });
        Ok(accepted(asking.await?).await)
    }
}

/// What an answer says, whatever its body is.
pub(super) async fn accepted(answer: Answer) -> WebhookAnswer {
    let status = answer.response.status();
    let retry_after = answer.retry_after();
    answer.drain().await;
    match status.as_u16() {
        _ if status.is_success() => WebhookAnswer::Accepted,
        410 => WebhookAnswer::Gone,
        status => WebhookAnswer::Refused {
            status,
            retry_after,
        },
    }
}
