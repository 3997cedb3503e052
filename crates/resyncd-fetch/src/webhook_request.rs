//! The requests of web hooks, as [Standard Webhooks](https://www.standardwebhooks.com) describes them: a body of JSON with an id, a time
//! and a signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, SecondsFormat, Utc};
use ring::hmac;
use serde_json::{Value, json};

/// The `type` of the body.
const TYPE: &str = "resyncd.changes";

/// What is announced to a receiver: there is news up to a number of the feed.
#[derive(Clone, Copy, Debug)]
pub struct FeedNews<'a> {
    /// The id of the feed.
    pub feed: &'a str,
    /// The label of the Source.
    pub source: &'a str,
    /// The name of the hook among those of the Source.
    pub hook: &'a str,
    /// The last number of a change of the Source.
    pub seq: i64,
    /// Whether entries were removed before the receiver has accepted them: it begins anew.
    pub has_missed: bool,
}

/// A request with its headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRequest {
    /// Its headers besides those of every request.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl WebhookRequest {
    /// A request with JSON.
    #[must_use]
    pub fn json(body: String) -> Self {
        Self {
            headers: vec![("content-type", "application/json".to_owned())],
            body,
        }
    }

    /// A signed request that is sent at that time. `id`: the same whenever the same is sent, `kind`: the type of what it has, `key`: of the
    /// signature, an HMAC with SHA-256.
    #[must_use]
    pub fn signed(id: String, kind: &str, data: &Value, key: &[u8], now: DateTime<Utc>) -> Self {
        let body = Self::body(kind, data, now);
        let signature = signature(key, &id, now.timestamp(), &body);
        let mut request = Self::json(body);
        request.headers.extend([
            ("webhook-id", id),
            ("webhook-timestamp", now.timestamp().to_string()),
            ("webhook-signature", signature),
        ]);
        request
    }

    /// The body of a request that is sent at that time: JSON.
    #[must_use]
    pub fn body(kind: &str, data: &Value, now: DateTime<Utc>) -> String {
        let timestamp = now.to_rfc3339_opts(SecondsFormat::Secs, true);
        json!({ "type": kind, "timestamp": timestamp, "data": data }).to_string()
    }

    /// A request that announces news.
    #[must_use]
    pub fn of_news(news: &FeedNews<'_>, key: &[u8], now: DateTime<Utc>) -> Self {
        let FeedNews {
            feed,
            source,
            hook,
            seq,
            has_missed,
        } = news;
        let mut data = json!({ "feed": feed, "source": source, "seq": seq });
        if *has_missed {
            data["missed"] = json!(true);
        }
        let id = format!("{feed}-{source}-{hook}-{seq}");
        Self::signed(id, TYPE, &data, key, now)
    }
}

/// `v1,` and the HMAC with SHA-256 of the id, the time and the body, in base64.
fn signature(key: &[u8], id: &str, timestamp: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signature = hmac::sign(&key, format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the libraries of Standard Webhooks.
    #[test]
    fn signature_is_that_of_the_standard() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "{\"test\": 2432232314}");
        assert_eq!(
            signature(&key, id, 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn request_states_the_end_of_the_news() {
        let news = FeedNews {
            feed: "0123abcd",
            source: "example",
            hook: "index",
            seq: 7,
            has_missed: false,
        };
        let at = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let request = WebhookRequest::of_news(&news, b"key", at);
        let header = |name| request.headers.iter().find(|header| header.0 == name);
        let expected = [
            ("webhook-id", "0123abcd-example-index-7"),
            ("webhook-timestamp", "1700000000"),
        ];
        for (name, value) in expected {
            assert_eq!(header(name).unwrap().1, value);
        }
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        let expected = json!({
            "type": "resyncd.changes",
            "timestamp": "2023-11-14T22:13:20Z",
            "data": { "feed": "0123abcd", "source": "example", "seq": 7 },
        });
        assert_eq!(body, expected);
        let missed = FeedNews {
            has_missed: true,
            ..news
        };
        let request = WebhookRequest::of_news(&missed, b"key", at);
        assert!(request.body.contains("\"missed\":true"), "{request:?}");
    }
}
