//! The forms and queries of section 5.

use std::collections::HashMap;
use std::fmt;

/// What a hub is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Begin or renew the subscription.
    Subscribe,
    /// End the subscription.
    Unsubscribe,
}

/// The purpose of a request, a verification or a denial: `hub.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `subscribe`
    Subscribe,
    /// `unsubscribe`
    Unsubscribe,
    /// `denied`: the hub rejects or ends a subscription (section 5.2).
    Denied,
}

impl Mode {
    /// The value of `hub.mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Denied => "denied",
        }
    }

    /// The mode of a `hub.mode`, in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Subscribe, Self::Unsubscribe, Self::Denied]
            .into_iter()
            .find(|mode| mode.as_str().eq_ignore_ascii_case(text.trim()))
    }
}

/// A subscriber's request to a hub (section 5.1), an `application/x-www-form-urlencoded` form.
#[derive(Clone, PartialEq, Eq)]
pub struct SubscriptionRequest {
    /// `hub.mode`
    pub mode: Mode,
    /// `hub.callback`
    pub callback: String,
    /// `hub.topic`
    pub topic: String,
    /// `hub.lease_seconds`
    pub lease_seconds: Option<u64>,
    /// `hub.secret`, under 200 bytes
    pub secret: Option<String>,
}

impl SubscriptionRequest {
    /// The form; always with `hub.verify=sync`, which old hubs require and others ignore.
    pub fn to_form(&self) -> String {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("hub.mode", self.mode.as_str())
            .append_pair("hub.callback", &self.callback)
            .append_pair("hub.topic", &self.topic)
            .append_pair("hub.verify", "sync");
        if let Some(seconds) = self.lease_seconds {
            form.append_pair("hub.lease_seconds", &seconds.to_string());
        }
        if let Some(secret) = &self.secret {
            form.append_pair("hub.secret", secret);
        }
        form.finish()
    }

    /// Parses the form; `None` if a required parameter is missing or the mode can't be requested.
    #[must_use]
    pub fn parse_form(form: &str) -> Option<Self> {
        let mut fields = HubFields::parse(form);
        Some(Self {
            mode: fields.mode().filter(|mode| *mode != Mode::Denied)?,
            callback: fields.take_stated("hub.callback")?,
            topic: fields.take_stated("hub.topic")?,
            lease_seconds: fields.lease_seconds(),
            secret: fields.take_stated("hub.secret"),
        })
    }
}

impl fmt::Debug for SubscriptionRequest {
    /// Without the secret and the callback, which may contain a token: neither belongs in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionRequest")
            .field("mode", &self.mode)
            .field("topic", &self.topic)
            .field("lease_seconds", &self.lease_seconds)
            .field("signed", &self.secret.is_some())
            .finish_non_exhaustive()
    }
}

/// A hub's verification of intent, or its denial (sections 5.2 and 5.3): the query of a GET on the callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// `hub.mode`
    pub mode: Mode,
    /// `hub.topic`
    pub topic: String,
    /// `hub.challenge`
    pub challenge: Option<String>,
    /// `hub.lease_seconds`, saturated when absurdly large, `None` when absent or unreadable
    pub lease_seconds: Option<u64>,
    /// `hub.reason` of a denial
    pub reason: Option<String>,
}

impl Verification {
    /// Parses a raw query string; `None` if it has no known mode or no topic.
    ///
    /// Other parameters of the callback are ignored, even if the hub appended its own with a second `?`.
    #[must_use]
    pub fn parse_query(query: &str) -> Option<Self> {
        let mut fields = HubFields::parse(query);
        Some(Self {
            mode: fields.mode()?,
            topic: fields.take_stated("hub.topic")?,
            challenge: fields.take("hub.challenge"),
            lease_seconds: fields.lease_seconds(),
            reason: fields.take("hub.reason"),
        })
    }

    /// The topics that a query may mean: the decoded value of `hub.topic`, and its text as it stands there. Some hubs don't
    /// encode it, so that a `+`, `&` or `%2F` of the topic would be decoded or cut.
    #[must_use]
    pub fn topics_of_query(query: &str) -> Vec<String> {
        let decoded = HubFields::parse(query).take("hub.topic");
        let raw = raw_topic(query).map(str::to_owned);
        let stated = decoded.into_iter().chain(raw);
        let mut topics: Vec<String> = stated.filter(|topic| !topic.is_empty()).collect();
        topics.dedup();
        topics
    }

    /// A denial; `reason` is for people.
    pub fn denial(topic: &str, reason: &str) -> Self {
        Self {
            mode: Mode::Denied,
            topic: topic.to_owned(),
            challenge: None,
            lease_seconds: None,
            reason: Some(reason.to_owned()),
        }
    }

    /// The URL that a hub requests: the callback with the query appended to its own (section 5.1.1).
    pub fn to_url(&self, callback: &str) -> String {
        let callback = callback.split('#').next().unwrap_or_default();
        let separator = match callback.split_once('?') {
            None => "?",
            Some((_, "")) => "",
            Some(_) => "&",
        };
        format!("{callback}{separator}{}", self.to_query())
    }

    /// The query string that a hub sends.
    pub fn to_query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query
            .append_pair("hub.mode", self.mode.as_str())
            .append_pair("hub.topic", &self.topic);
        if let Some(challenge) = &self.challenge {
            query.append_pair("hub.challenge", challenge);
        }
        if let Some(seconds) = self.lease_seconds {
            query.append_pair("hub.lease_seconds", &seconds.to_string());
        }
        if let Some(reason) = &self.reason {
            query.append_pair("hub.reason", reason);
        }
        query.finish()
    }
}

/// The parameters of a form or query; the first of each.
struct HubFields(HashMap<String, String>);

impl HubFields {
    fn parse(form: &str) -> Self {
        let mut fields = HashMap::new();
        for pair in form.split('&').map(hub_part) {
            for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
                let first = fields.entry(name.into_owned());
                first.or_insert_with(|| value.into_owned());
            }
        }
        Self(fields)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// One that is not empty.
    fn take_stated(&mut self, name: &str) -> Option<String> {
        self.take(name).filter(|value| !value.is_empty())
    }

    fn mode(&mut self) -> Option<Mode> {
        Mode::parse(&self.take("hub.mode")?)
    }

    fn lease_seconds(&mut self) -> Option<u64> {
        parse_seconds(&self.take("hub.lease_seconds")?)
    }
}

/// The part of a `name=value` after a second `?`, if a hub appended one: `token=1?hub.mode=subscribe`. A topic may contain a
/// `?` itself.
fn hub_part(pair: &str) -> &str {
    match pair.find("?hub.") {
        Some(at) if !pair.starts_with("hub.") => &pair[at + 1..],
        _ => pair,
    }
}

/// The text of `hub.topic` as it stands in a query, up to the next parameter of the hub.
fn raw_topic(query: &str) -> Option<&str> {
    const NAME: &str = "hub.topic=";
    let starts = |at: usize| at == 0 || matches!(query.as_bytes()[at - 1], b'&' | b'?');
    let mut places = query.match_indices(NAME).map(|(at, _)| at);
    let text = &query[places.find(|&at| starts(at))? + NAME.len()..];
    Some(text.find("&hub.").map_or(text, |end| &text[..end]))
}

/// Digits only; a number that is too large is saturated.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = text.trim();
    let readable = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    readable.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn verification() -> Verification {
        Verification {
            mode: Mode::Subscribe,
            topic: "http://example.com/topic?a=1&b=2".to_owned(),
            challenge: Some("a+b/c=".to_owned()),
            lease_seconds: Some(864_000),
            reason: None,
        }
    }

    #[test]
    fn a_subscription_form_has_all_parameters_that_hubs_require() {
        let request = SubscriptionRequest {
            mode: Mode::Subscribe,
            callback: "http://example.net/hub/t k".to_owned(),
            topic: "http://example.com/changes/?set=1&x".to_owned(),
            lease_seconds: Some(3600),
            secret: Some("s&cret".to_owned()),
        };
        assert_eq!(
            request.to_form(),
            "hub.mode=subscribe&hub.callback=http%3A%2F%2Fexample.net%2Fhub%2Ft+k\
             &hub.topic=http%3A%2F%2Fexample.com%2Fchanges%2F%3Fset%3D1%26x&hub.verify=sync\
             &hub.lease_seconds=3600&hub.secret=s%26cret"
        );
        assert_eq!(
            SubscriptionRequest::parse_form(&request.to_form()),
            Some(request.clone())
        );
        assert!(!format!("{request:?}").contains("s&cret"));
    }

    #[test]
    fn a_form_without_a_required_parameter_is_rejected() {
        for form in [
            "",
            "hub.mode=subscribe&hub.topic=t",
            "hub.mode=subscribe&hub.callback=c&hub.topic=",
            "hub.mode=denied&hub.callback=c&hub.topic=t",
            "hub.mode=publish&hub.callback=c&hub.topic=t",
        ] {
            assert_eq!(SubscriptionRequest::parse_form(form), None, "{form}");
        }
    }

    #[test]
    fn a_verification_is_parsed_from_queries_of_any_hub() {
        let plain = verification().to_query();
        for query in [
            plain.clone(),
            format!("a=b&{plain}"),
            format!("a=b?{plain}"),
            format!("?{plain}"),
            format!("&&{plain}&x=%ff&hub.mode=denied"),
            format!("flag?{plain}&extra"),
            plain.replace("subscribe", "Subscribe"),
            // A topic that is not encoded, if it has no character that ends it.
            "hub.topic=http://example.com/topic?a=1%26b=2&hub.mode=subscribe\
             &hub.challenge=a%2Bb%2Fc%3D&hub.lease_seconds=864000"
                .to_owned(),
        ] {
            assert_eq!(
                Verification::parse_query(&query),
                Some(verification()),
                "{query}"
            );
        }
    }

    #[test]
    fn topic_that_is_not_encoded_is_recognised() {
        let topic = "http://example.com/a%2Fb?q=1+2&set=3".to_owned();
        let encoded: String = form_urlencoded::byte_serialize(topic.as_bytes()).collect();
        for query in [
            format!("hub.mode=subscribe&hub.topic={encoded}&hub.challenge=c"),
            format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=c&hub.lease_seconds=60"),
            format!("hub.topic={topic}&hub.mode=subscribe"),
            format!("hub.mode=subscribe&hub.topic={topic}"),
            format!("own=1?hub.topic={topic}&hub.mode=subscribe"),
        ] {
            let topics = Verification::topics_of_query(&query);
            assert!(topics.contains(&topic), "{query}: {topics:?}");
        }
        for query in [
            "",
            "hub.mode=subscribe",
            "hub.topic=",
            "xhub.topic=http://example.com/",
        ] {
            assert!(Verification::topics_of_query(query).is_empty(), "{query}");
        }
    }

    #[test]
    fn a_query_without_mode_or_topic_is_rejected() {
        for query in [
            "",
            "a=b",
            "hub.mode=subscribe",
            "hub.topic=t",
            "hub.mode=other&hub.topic=t",
            "mode=subscribe&topic=t",
        ] {
            assert_eq!(Verification::parse_query(query), None, "{query}");
        }
    }

    #[test]
    fn a_denial_has_a_reason() {
        let query = "hub.mode=denied&hub.topic=t&hub.reason=not+on+the%20list";
        let denial = Verification::parse_query(query).unwrap();
        assert_eq!(denial.mode, Mode::Denied);
        assert_eq!(denial.reason.as_deref(), Some("not on the list"));
        assert_eq!((denial.challenge, denial.lease_seconds), (None, None));
    }

    #[test]
    fn query_is_appended_to_that_of_the_callback() {
        let denial = Verification::denial("t", "not on the list");
        let query = "hub.mode=denied&hub.topic=t&hub.reason=not+on+the+list";
        assert_eq!(denial.to_query(), query);
        for (callback, expected) in [
            ("https://a.example/c", "https://a.example/c?"),
            ("https://a.example/c?", "https://a.example/c?"),
            ("https://a.example/c?a=b&c", "https://a.example/c?a=b&c&"),
            ("https://a.example/c#part", "https://a.example/c?"),
        ] {
            assert_eq!(denial.to_url(callback), format!("{expected}{query}"));
        }
    }

    #[test]
    fn invalid_lease_seconds_are_ignored_and_large_ones_saturated() {
        for (text, expected) in [
            ("0", Some(0)),
            (" 60 ", Some(60)),
            ("18446744073709551616", Some(u64::MAX)),
            ("99999999999999999999999999", Some(u64::MAX)),
            ("", None),
            ("-1", None),
            ("1e3", None),
            ("None", None),
        ] {
            let query = format!("hub.mode=subscribe&hub.topic=t&hub.lease_seconds={text}");
            let seconds = Verification::parse_query(&query).unwrap().lease_seconds;
            assert_eq!(seconds, expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn formatted_forms_and_queries_parse(
            callback in ".{1,30}", topic in ".{1,30}", text in prop::option::of(".{1,30}"),
            seconds in any::<Option<u64>>(),
        ) {
            let request = SubscriptionRequest {
                mode: Mode::Unsubscribe,
                callback,
                topic: topic.clone(),
                lease_seconds: seconds,
                secret: text.clone(),
            };
            prop_assert_eq!(SubscriptionRequest::parse_form(&request.to_form()), Some(request));
            let verification = Verification {
                mode: Mode::Denied,
                topic,
                challenge: text.clone(),
                lease_seconds: seconds,
                reason: text,
            };
            let query = verification.to_query();
            prop_assert_eq!(Verification::parse_query(&query), Some(verification));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in ".{0,60}") {
            let _ = Verification::parse_query(&text);
            let _ = SubscriptionRequest::parse_form(&text);
        }
    }
}
