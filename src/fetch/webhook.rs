//! Sends the requests of web hooks ([Standard Webhooks](https://www.standardwebhooks.com)).

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use url::Url;

use super::FetchError;
use super::client::{Client, Follow};
use super::permits::Pool;
use crate::protocol::WebhookRequest;

/// The answer of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// It has accepted the request (2xx).
    Accepted,
    /// It wants no further request (410).
    Gone,
    /// It has not accepted it.
    Rejected {
        /// The status code.
        status: u16,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
}

impl Client {
    /// Sends a request once. A redirect is not followed.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn send_webhook(
        &self,
        url: &Url,
        request: &WebhookRequest,
    ) -> Result<WebhookAnswer, FetchError> {
        let answer = self
            .ask(
                Pool::Documents,
                url,
                Follow::Never,
                |_| Ok(()),
                |http, url| {
                    http.post(url)
                        .header(CONTENT_TYPE, "application/json")
                        .header("webhook-id", &request.id)
                        .header("webhook-timestamp", request.timestamp)
                        .header("webhook-signature", &request.signature)
                        .body(request.body.clone())
                },
            )
            .await?;
        let status = answer.response.status();
        let retry_after = answer.retry_after();
        answer.drain().await;
        Ok(match status.as_u16() {
            _ if status.is_success() => WebhookAnswer::Accepted,
            410 => WebhookAnswer::Gone,
            status => WebhookAnswer::Rejected {
                status,
                retry_after,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::fetch::test_site::{self, Site};

    #[tokio::test]
    async fn answers_of_receivers_are_distinguished_and_no_redirect_is_followed() {
        let site = Site::start(|received| match received.path() {
            "/good" => test_site::status(204),
            "/gone" => test_site::status(410),
            "/moved" => test_site::redirect(307, "/good"),
            "/busy" => {
                let mut busy = test_site::ok_with(&[("retry-after", "30")], "later");
                *busy.status_mut() = axum::http::StatusCode::TOO_MANY_REQUESTS;
                busy
            }
            _ => test_site::status(500),
        })
        .await;
        let request = WebhookRequest {
            id: "id".to_owned(),
            timestamp: 7,
            signature: "v1,x".to_owned(),
            body: "{}".to_owned(),
        };
        let rejected = |status, seconds: Option<u64>| WebhookAnswer::Rejected {
            status,
            retry_after: seconds.map(Duration::from_secs),
        };
        for (path, expected) in [
            ("/good", WebhookAnswer::Accepted),
            ("/gone", WebhookAnswer::Gone),
            ("/moved", rejected(307, None)),
            ("/busy", rejected(429, Some(30))),
            ("/other", rejected(500, None)),
        ] {
            let url = Url::parse(&site.url(path)).unwrap();
            let answer = test_site::client().send_webhook(&url, &request).await;
            assert_eq!(answer, Ok(expected), "{path}");
        }
    }

    #[tokio::test]
    async fn receivers_at_private_addresses_get_nothing_unless_that_is_configured() {
        let request = WebhookRequest {
            id: "id".to_owned(),
            timestamp: 7,
            signature: "v1,x".to_owned(),
            body: "{}".to_owned(),
        };
        let client = Client::new(&crate::config::HttpConfig::default()).unwrap();
        for url in ["http://127.0.0.1:9/", "https://10.1.2.3/hook"] {
            let url = Url::parse(url).unwrap();
            let error = client.send_webhook(&url, &request).await.unwrap_err();
            assert_eq!(error.code(), "forbidden-address", "{url}");
        }
    }

    #[tokio::test]
    async fn request_has_the_headers_of_standard_webhooks() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let headers = Arc::clone(&seen);
        let site = Site::start(move |received| {
            let names = [
                "content-type",
                "webhook-id",
                "webhook-timestamp",
                "webhook-signature",
            ];
            let values = names.map(|name| received.header(name).to_owned());
            let body = String::from_utf8_lossy(&received.body).into_owned();
            headers.lock().unwrap().push((values, body));
            test_site::status(200)
        })
        .await;
        let request = WebhookRequest {
            id: "feed-example-index-7".to_owned(),
            timestamp: 1_700_000_000,
            signature: "v1,x".to_owned(),
            body: "{}".to_owned(),
        };
        let url = Url::parse(&site.url("/hook")).unwrap();
        let answer = test_site::client().send_webhook(&url, &request).await;
        assert_eq!(answer, Ok(WebhookAnswer::Accepted));
        let expected = [
            "application/json",
            "feed-example-index-7",
            "1700000000",
            "v1,x",
        ];
        let expected = (expected.map(str::to_owned), "{}".to_owned());
        assert_eq!(*seen.lock().unwrap(), [expected]);
    }
}
