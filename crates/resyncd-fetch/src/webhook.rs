//! Sends the requests of web hooks ([Standard Webhooks](https://www.standardwebhooks.com)).
//!
//! Invariant: the URL is that of the configuration, and nothing that is remote leads to another one. So it may be at a private address.

use std::time::Duration;

use reqwest::RequestBuilder;
use resourcesync::uri::has_userinfo;
use resyncd_core::percent_decoded;
use url::Url;

use super::FetchError;
use super::callback::accepted;
use super::client::{Client, Follow};
use crate::WebhookRequest;

/// The answer of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookAnswer {
    /// It has accepted the request (2xx).
    Accepted,
    /// It wants no further request (410).
    Gone,
    /// It has not accepted it.
    Refused {
        /// The status code.
        status: u16,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
}

/// Who gets the requests of a web hook.
#[derive(Clone)]
pub struct WebhookReceiver {
    client: Client,
    url: Url,
    /// The user name and the password of the URL.
    user: Option<(String, String)>,
}

impl Client {
    /// The receiver at a URL of the configuration. `timeout`: that of one request.
    ///
    /// # Errors
    /// [`FetchError::Setup`] if TLS can't be set up.
    pub fn webhook_receiver(
        &self,
        url: &Url,
        timeout: Duration,
    ) -> Result<WebhookReceiver, FetchError> {
        let user = has_userinfo(url).then(|| {
            let password = url.password().unwrap_or_default();
            (percent_decoded(url.username()), percent_decoded(password))
        });
        Ok(WebhookReceiver {
            client: self.for_own_url(url, timeout)?,
            url: url.clone(),
            user,
        })
    }
}

impl WebhookReceiver {
    /// Sends a request once. A redirect is not followed.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn send(&self, request: &WebhookRequest) -> Result<WebhookAnswer, FetchError> {
        self.ask(|http, url| {
            let headers = request.headers.iter();
            let asked = http.post(url).body(request.body.clone());
            headers.fold(asked, |asked, (name, value)| asked.header(*name, value))
        })
        .await
    }

    /// Requests the URL once, with nothing to say. A redirect is not followed.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer.
    pub async fn ping(&self) -> Result<WebhookAnswer, FetchError> {
        self.ask(|http, url| http.get(url)).await
    }

    async fn ask(
        &self,
        request: impl Fn(&reqwest::Client, Url) -> RequestBuilder,
    ) -> Result<WebhookAnswer, FetchError> {
        let request = |http: &reqwest::Client, url| match &self.user {
            Some((name, password)) => request(http, url).basic_auth(name, Some(password)),
            None => request(http, url),
        };
        let asking = self.client.ask_document(&self.url, Follow::Never, request);
        Ok(accepted(asking.await?).await)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use resyncd_core::ResourceUri;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::test_site::{self, TestSite};
    use crate::{AllowedHosts, HttpSettings};

    /// Ends a test that would hang.
    const LONG: Duration = Duration::from_secs(180);

    #[tokio::test]
    async fn answers_of_receivers_are_distinguished_and_no_redirect_is_followed() {
        let site = TestSite::start(|received| match received.path() {
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
        let request = request();
        let rejected = |status, seconds: Option<u64>| WebhookAnswer::Refused {
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
            let receiver = test_site::client().webhook_receiver(&url, LONG).unwrap();
            let answer = receiver.send(&request).await;
            assert_eq!(answer, Ok(expected), "{path}");
        }
    }

    fn request() -> WebhookRequest {
        WebhookRequest::json("{}".to_owned())
    }

    /// What a Source states does not lead there, and what is typed leads to that host only.
    #[tokio::test]
    async fn receiver_that_was_typed_may_be_at_a_private_address_and_opens_it_for_nothing_else() {
        let site = TestSite::start(|_| test_site::status(200)).await;
        let client = Client::new(&HttpSettings::default(), test_site::now).unwrap();
        let port = Url::parse(&site.url("/")).unwrap().port().unwrap();
        for host in ["127.0.0.1", "localhost"] {
            let url = Url::parse(&format!("http://{host}:{port}/hook")).unwrap();
            let receiver = client.webhook_receiver(&url, LONG).unwrap();
            let answer = receiver.send(&request()).await;
            assert_eq!(answer, Ok(WebhookAnswer::Accepted), "{host}");
            for other in [&client, &receiver.client] {
                let elsewhere = Url::parse("https://10.1.2.3/hook").unwrap();
                let uri = ResourceUri::parse(elsewhere.as_str()).unwrap();
                let error = other.probe(&uri, &AllowedHosts::any()).await.unwrap_err();
                assert_eq!(error.code(), "forbidden-address");
            }
            let uri = ResourceUri::parse(url.as_str()).unwrap();
            let error = client.probe(&uri, &AllowedHosts::any()).await.unwrap_err();
            assert_eq!(error.code(), "forbidden-address", "{host}");
        }
    }

    #[tokio::test]
    async fn receiver_has_the_time_of_its_hook_and_not_that_of_other_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let slow = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = [0; 4096];
                assert!(stream.read(&mut head).await.unwrap() > 0);
                // Longer than other requests may take.
                tokio::time::sleep(Duration::from_millis(600)).await;
                let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                stream.write_all(answer).await.unwrap();
            }
        };
        let http = HttpSettings {
            timeout: Duration::from_millis(200),
            ..HttpSettings::default()
        };
        let client = Client::new(&http, test_site::now).unwrap();
        let url = Url::parse(&url).unwrap();
        let receiver = client.webhook_receiver(&url, LONG).unwrap();
        let request = request();
        let answer = tokio::select! {
            answer = receiver.send(&request) => answer,
            () = slow => unreachable!("it never ends"),
        };
        assert_eq!(answer, Ok(WebhookAnswer::Accepted));
    }

    #[tokio::test]
    async fn request_has_the_headers_of_standard_webhooks() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let headers = Arc::clone(&seen);
        let site = TestSite::start(move |received| {
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
        let mut request = WebhookRequest::json("{}".to_owned());
        request.headers.extend([
            ("webhook-id", "feed-example-index-7".to_owned()),
            ("webhook-timestamp", "1700000000".to_owned()),
            ("webhook-signature", "v1,x".to_owned()),
        ]);
        let url = Url::parse(&site.url("/hook")).unwrap();
        let receiver = test_site::client().webhook_receiver(&url, LONG).unwrap();
        let answer = receiver.send(&request).await;
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
