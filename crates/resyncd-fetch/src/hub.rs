//! Requests to a hub: subscribe and unsubscribe (WebSub, section 5.1); and the registration of a callback at a Source (version 0.1 of
//! ResourceSync, section 5.2.2).

use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use resourcesync::draft::registration_form;
use resyncd_core::{HubUri, Redaction};
use url::Url;
use websub::SubscriptionRequest;

use super::FetchError;
use super::client::{Answer, Client, DRAIN_TIME, Follow};

/// The maximum length of the excerpt of a rejection, in characters.
const MAX_EXCERPT: usize = 200;

/// The answer of a hub to a request, or of an interface to a registration. A subscription is confirmed only by the verification of
/// intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubAnswer {
    /// The hub accepts the request (2xx).
    Accepted {
        /// The status code.
        status: u16,
        /// The text of the body: one line, at most 200 characters. Some hubs report an error here.
        excerpt: String,
    },
    /// The hub rejects the request.
    Refused {
        /// The status code.
        status: u16,
        /// The reason in the body: one line, at most 200 characters.
        excerpt: String,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
}

impl Client {
    /// Sends a request to a hub.
    ///
    /// A redirect that preserves the method (307, 308) is followed with the same request. After 400, 409 or 422 the request is sent
    /// again without `hub.lease_seconds`: some hubs reject the parameter.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer. A rejection is an answer.
    pub async fn ask_hub(
        &self,
        hub: &HubUri,
        request: &SubscriptionRequest,
    ) -> Result<HubAnswer, FetchError> {
        let secrets = self.secrets_of(request);
        let answer = self
            .post_form(hub.url(), request.to_form(), &secrets, Follow::SameMethod)
            .await?;
        match answer {
            HubAnswer::Refused {
                status: 400 | 409 | 422,
                ..
            } if request.lease_seconds.is_some() => {
                let without_lease = SubscriptionRequest {
                    lease_seconds: None,
                    ..request.clone()
                };
                let form = without_lease.to_form();
                self.post_form(hub.url(), form, &secrets, Follow::SameMethod)
                    .await
            }
            answer => Ok(answer),
        }
    }

    /// Registers a callback at the interface of a Source. A redirect is followed as that of a hub is, but to no other origin: nothing but
    /// its address protects the callback.
    ///
    /// # Errors
    /// [`FetchError`] if there is no answer. A rejection is an answer.
    pub async fn register_callback(
        &self,
        interface: &Url,
        callback: &str,
    ) -> Result<HubAnswer, FetchError> {
        let token = callback.rsplit('/').next().unwrap_or_default();
        let secrets = self.redaction().with_keys().with(token);
        let form = registration_form(callback);
        self.post_form(interface, form, &secrets, Follow::SameOrigin)
            .await
    }

    /// What the answer must not repeat: the credentials, and the callback and the secret of this request and of any other.
    fn secrets_of(&self, request: &SubscriptionRequest) -> Redaction {
        let token = request.callback.rsplit('/').next().unwrap_or_default();
        let secret = request.secret.as_deref().unwrap_or_default();
        self.redaction().with_keys().with(token).with(secret)
    }

    async fn post_form(
        &self,
        uri: &Url,
        form: String,
        secrets: &Redaction,
        follow: Follow,
    ) -> Result<HubAnswer, FetchError> {
        let answer = self
            .ask_document(uri, follow, |http, url| {
                http.post(url)
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form.clone())
            })
            .await
            .map_err(|error| error.redacted(secrets))?;
        let status = answer.response.status().as_u16();
        if answer.response.status().is_success() {
            let excerpt = excerpt(answer, secrets).await;
            return Ok(HubAnswer::Accepted { status, excerpt });
        }
        let retry_after = answer.retry_after();
        Ok(HubAnswer::Refused {
            status,
            retry_after,
            excerpt: excerpt(answer, secrets).await,
        })
    }
}

/// The beginning of a body as one line, without secrets; empty if it can't be read.
async fn excerpt(mut answer: Answer, secrets: &Redaction) -> String {
    let mut bytes = Vec::new();
    let read = async {
        // At most four bytes per character, and some white space.
        while bytes.len() < MAX_EXCERPT * 8
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            bytes.extend_from_slice(&chunk);
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, read).await;
    bytes.truncate(MAX_EXCERPT * 8);
    secrets.excerpt(&String::from_utf8_lossy(&bytes), MAX_EXCERPT)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::http::Method;
    use websub::Mode;

    use super::*;
    use crate::test_site::{self, Received, TestSite};

    fn request() -> SubscriptionRequest {
        SubscriptionRequest {
            mode: Mode::Subscribe,
            callback: "http://destination.example.net/token".into(),
            topic: "http://example.com/topic".into(),
            lease_seconds: Some(600),
            secret: None,
        }
    }

    fn accepted(status: u16, excerpt: &str) -> HubAnswer {
        HubAnswer::Accepted {
            status,
            excerpt: excerpt.to_owned(),
        }
    }

    fn parse(received: &Received) -> SubscriptionRequest {
        assert_eq!(received.method, Method::POST);
        assert_eq!(
            received.header("content-type"),
            "application/x-www-form-urlencoded"
        );
        SubscriptionRequest::parse_form(std::str::from_utf8(&received.body).unwrap()).unwrap()
    }

    async fn ask(site: &TestSite, path: &str) -> Result<HubAnswer, FetchError> {
        let hub = HubUri::parse(&site.url(path)).unwrap();
        test_site::client().ask_hub(&hub, &request()).await
    }

    #[tokio::test]
    async fn every_2xx_accepts_the_request() {
        for code in [200, 202, 204] {
            let site = TestSite::start(move |received| {
                assert_eq!(parse(&received), request());
                test_site::status(code)
            })
            .await;
            assert_eq!(ask(&site, "/").await, Ok(accepted(code, "")), "{code}");
        }
        let with_text = TestSite::start(|_| test_site::ok("The topic\nreturned 404")).await;
        let answer = ask(&with_text, "/").await;
        assert_eq!(answer, Ok(accepted(200, "The topic returned 404")));
        let with_a_body =
            TestSite::start_raw("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok").await;
        assert_eq!(ask(&with_a_body, "/").await, Ok(accepted(204, "")));
    }

    #[tokio::test]
    async fn callback_is_not_handed_on_to_another_origin() {
        let other = TestSite::start(|_| panic!("it is requested")).await;
        let target = other.url("/subscribe");
        let site = TestSite::start(move |_| test_site::redirect(307, &target)).await;
        let interface = Url::parse(&site.url("/")).unwrap();
        let client = test_site::client();
        let answer = client.register_callback(&interface, "http://destination.example.net/0123");
        let answer = answer.await;
        assert!(
            matches!(answer, Ok(HubAnswer::Refused { status: 307, .. })),
            "{answer:?}"
        );
    }

    #[tokio::test]
    async fn callback_is_registered_by_a_form() {
        let site = TestSite::start(|received| {
            assert_eq!(received.method, Method::POST);
            let kind = received.header("content-type");
            assert_eq!(kind, "application/x-www-form-urlencoded");
            let expected = "callbackURI=http%3A%2F%2Fdestination.example.net%2Fhooks%2F0123";
            assert_eq!(received.body, expected.as_bytes());
            match received.path() {
                "/moved" => test_site::redirect(307, "/subscribe"),
                "/subscribe" => test_site::ok("registered"),
                _ => test_site::status(403),
            }
        })
        .await;
        let callback = "http://destination.example.net/hooks/0123";
        for (path, is_accepted) in [("/subscribe", true), ("/moved", true), ("/other", false)] {
            let interface = Url::parse(&site.url(path)).unwrap();
            let client = test_site::client();
            let answer = client.register_callback(&interface, callback).await;
            let found = matches!(answer, Ok(HubAnswer::Accepted { status: 200, .. }));
            assert_eq!(found, is_accepted, "{answer:?}");
        }
    }

    #[tokio::test]
    async fn redirects_preserve_the_request_or_count_as_rejections() {
        let site = TestSite::start(|received| match received.path() {
            "/307" => test_site::redirect(307, "/308"),
            "/308" => test_site::redirect(308, "/hub"),
            "/hub" => {
                assert_eq!(parse(&received), request());
                test_site::status(202)
            }
            "/loop" => test_site::redirect(307, "/loop"),
            _ => test_site::redirect(302, "/hub"),
        })
        .await;
        assert_eq!(ask(&site, "/307").await, Ok(accepted(202, "")));
        assert_eq!(ask(&site, "/loop").await, Err(FetchError::TooManyRedirects));
        assert!(matches!(
            ask(&site, "/302").await,
            Ok(HubAnswer::Refused { status: 302, .. })
        ));
    }

    #[tokio::test]
    async fn a_hub_that_rejects_a_lease_is_asked_without_one() {
        for code in [400, 409, 422] {
            let leases = Arc::new(Mutex::new(Vec::new()));
            let seen = leases.clone();
            let site = TestSite::start(move |received| {
                let lease = parse(&received).lease_seconds;
                seen.lock().unwrap().push(lease);
                test_site::status(if lease.is_some() { code } else { 202 })
            })
            .await;
            assert_eq!(ask(&site, "/").await, Ok(accepted(202, "")));
            assert_eq!(*leases.lock().unwrap(), [Some(600), None]);
        }
    }

    #[tokio::test]
    async fn rejections_have_a_reason_of_one_short_line() {
        let site = TestSite::start(|_| {
            let mut response = test_site::ok_with(
                &[("retry-after", "30")],
                format!("no\r\n\tsuch \u{1b}topic {}", "é".repeat(500)),
            );
            *response.status_mut() = axum::http::StatusCode::TOO_MANY_REQUESTS;
            response
        })
        .await;
        let Ok(HubAnswer::Refused {
            status,
            excerpt,
            retry_after,
        }) = ask(&site, "/").await
        else {
            panic!("not rejected");
        };
        assert_eq!(status, 429);
        assert!(excerpt.starts_with("no such topic éé"), "{excerpt}");
        assert_eq!(excerpt.chars().count(), 200);
        assert_eq!(retry_after, Some(Duration::from_secs(30)));
    }
}
