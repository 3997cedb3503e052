//! WebSub (W3C Recommendation, 23 January 2018): the forms of section 5 and the signatures of section 7, for both sides.

use std::borrow::Cow;
use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha256, Sha384, Sha512};
use url::form_urlencoded;

use super::digest::{from_hex, write_hex};

/// What a request or verification is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `subscribe`
    Subscribe,
    /// `unsubscribe`
    Unsubscribe,
    /// `denied`: the hub refuses, or ends, a subscription (section 5.2).
    Denied,
}

impl Mode {
    /// The value of `hub.mode`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Denied => "denied",
        }
    }

    /// The mode that a `hub.mode` names, in whatever case.
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
    /// The form; always with `hub.verify=sync`, which old hubs insist on and others pass over.
    #[must_use]
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

    /// What a hub reads from the form; `None` if a parameter that must be there is not, or the mode is not one to ask for.
    #[must_use]
    pub fn parse_form(form: &str) -> Option<Self> {
        let fields = HubFields::parse(form);
        Some(Self {
            mode: fields.mode().filter(|mode| *mode != Mode::Denied)?,
            callback: fields.callback.filter(|callback| !callback.is_empty())?,
            topic: fields.topic.filter(|topic| !topic.is_empty())?,
            lease_seconds: fields.lease_seconds.as_deref().and_then(parse_seconds),
            secret: fields.secret.filter(|secret| !secret.is_empty()),
        })
    }
}

impl fmt::Debug for SubscriptionRequest {
    /// Without the secret, which has no business in a log; the callback may hold a token as well.
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
    /// Reads a raw query string; `None` if it has no known mode or no topic.
    ///
    /// Whatever else the callback had in its query does not matter, even if the hub put a second `?` behind it.
    #[must_use]
    pub fn parse_query(query: &str) -> Option<Self> {
        let fields = HubFields::parse(query);
        Some(Self {
            mode: fields.mode()?,
            topic: fields.topic.filter(|topic| !topic.is_empty())?,
            challenge: fields.challenge,
            lease_seconds: fields.lease_seconds.as_deref().and_then(parse_seconds),
            reason: fields.reason,
        })
    }

    /// The query string that a hub sends.
    #[must_use]
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

/// The `hub.*` parameters of a form or query, of each the first.
#[derive(Default)]
struct HubFields {
    mode: Option<String>,
    callback: Option<String>,
    topic: Option<String>,
    challenge: Option<String>,
    lease_seconds: Option<String>,
    reason: Option<String>,
    secret: Option<String>,
}

impl HubFields {
    fn parse(form: &str) -> Self {
        let mut fields = Self::default();
        for pair in form.split('&').map(hub_part) {
            for (name, value) in form_urlencoded::parse(pair.as_bytes()) {
                if let Some(slot) = fields.slot(&name)
                    && slot.is_none()
                {
                    *slot = Some(Cow::into_owned(value));
                }
            }
        }
        fields
    }

    fn slot(&mut self, name: &str) -> Option<&mut Option<String>> {
        match name {
            "hub.mode" => Some(&mut self.mode),
            "hub.callback" => Some(&mut self.callback),
            "hub.topic" => Some(&mut self.topic),
            "hub.challenge" => Some(&mut self.challenge),
            "hub.lease_seconds" => Some(&mut self.lease_seconds),
            "hub.reason" => Some(&mut self.reason),
            "hub.secret" => Some(&mut self.secret),
            _ => None,
        }
    }

    fn mode(&self) -> Option<Mode> {
        self.mode.as_deref().and_then(Mode::parse)
    }
}

/// The part of a `name=value` behind a second `?`, where one was put: `token=1?hub.mode=subscribe`. A topic may have a `?` of
/// its own.
fn hub_part(pair: &str) -> &str {
    match pair.find("?hub.") {
        Some(at) if !pair.starts_with("hub.") => &pair[at + 1..],
        _ => pair,
    }
}

/// Digits only; more of them than fit mean a very long time.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = text.trim();
    let readable = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    readable.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// The method of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureMethod {
    /// `sha1`
    Sha1,
    /// `sha256`
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

impl SignatureMethod {
    /// Its name in the header.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The method of that name, in whatever case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512]
            .into_iter()
            .find(|method| method.as_str().eq_ignore_ascii_case(text.trim()))
    }
}

/// The value of an `X-Hub-Signature` header (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    method: SignatureMethod,
    bytes: Vec<u8>,
}

impl Signature {
    /// Reads a header value; `None` if it has no known method or is not hexadecimal.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (method, bytes) = value.split_once('=')?;
        Some(Self {
            method: SignatureMethod::parse(method)?,
            bytes: from_hex(bytes.trim()).filter(|bytes| !bytes.is_empty())?,
        })
    }

    /// Signs a body.
    #[must_use]
    pub fn sign(method: SignatureMethod, secret: &[u8], body: &[u8]) -> Self {
        let bytes = match method {
            SignatureMethod::Sha1 => signing::<Hmac<Sha1>>(secret, body)
                .finalize()
                .into_bytes()
                .to_vec(),
            SignatureMethod::Sha256 => signing::<Hmac<Sha256>>(secret, body)
                .finalize()
                .into_bytes()
                .to_vec(),
            SignatureMethod::Sha384 => signing::<Hmac<Sha384>>(secret, body)
                .finalize()
                .into_bytes()
                .to_vec(),
            SignatureMethod::Sha512 => signing::<Hmac<Sha512>>(secret, body)
                .finalize()
                .into_bytes()
                .to_vec(),
        };
        Self { method, bytes }
    }

    /// Whether it is the signature of that body, compared in constant time.
    #[must_use]
    pub fn verifies(&self, secret: &[u8], body: &[u8]) -> bool {
        let verified = match self.method {
            SignatureMethod::Sha1 => signing::<Hmac<Sha1>>(secret, body).verify_slice(&self.bytes),
            SignatureMethod::Sha256 => {
                signing::<Hmac<Sha256>>(secret, body).verify_slice(&self.bytes)
            }
            SignatureMethod::Sha384 => {
                signing::<Hmac<Sha384>>(secret, body).verify_slice(&self.bytes)
            }
            SignatureMethod::Sha512 => {
                signing::<Hmac<Sha512>>(secret, body).verify_slice(&self.bytes)
            }
        };
        verified.is_ok()
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> SignatureMethod {
        self.method
    }
}

impl fmt::Display for Signature {
    /// As in the header: `sha256=` and hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.method.as_str())?;
        write_hex(&self.bytes, f)
    }
}

fn signing<M: Mac + KeyInit>(secret: &[u8], body: &[u8]) -> M {
    let mut mac = <M as KeyInit>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(body);
    mac
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
    fn a_subscription_form_has_everything_that_some_hub_insists_on() {
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
    fn a_form_without_a_needed_parameter_is_none() {
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
    fn a_verification_is_found_in_whatever_query_the_hub_makes() {
        let plain = verification().to_query();
        for query in [
            plain.clone(),
            format!("a=b&{plain}"),
            format!("a=b?{plain}"),
            format!("?{plain}"),
            format!("&&{plain}&x=%ff&hub.mode=denied"),
            format!("flag?{plain}&extra"),
            plain.replace("subscribe", "Subscribe"),
            // A topic that is not encoded, as long as nothing in it ends it.
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
    fn a_query_without_mode_or_topic_is_no_verification() {
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
    fn a_denial_tells_its_reason() {
        let query = "hub.mode=denied&hub.topic=t&hub.reason=not+on+the%20list";
        let denial = Verification::parse_query(query).unwrap();
        assert_eq!(denial.mode, Mode::Denied);
        assert_eq!(denial.reason.as_deref(), Some("not on the list"));
        assert_eq!((denial.challenge, denial.lease_seconds), (None, None));
    }

    #[test]
    fn lease_seconds_are_read_as_far_as_they_can_be() {
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

    #[test]
    fn signatures_are_those_of_rfc_4231_and_2202() {
        let (secret, body) = (
            b"Jefe".as_slice(),
            b"what do ya want for nothing?".as_slice(),
        );
        for (method, expected) in [
            (
                SignatureMethod::Sha1,
                "sha1=effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
            ),
            (
                SignatureMethod::Sha256,
                "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                SignatureMethod::Sha384,
                "sha384=af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
                 8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                SignatureMethod::Sha512,
                "sha512=164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ),
        ] {
            let signature = Signature::sign(method, secret, body);
            assert_eq!(signature.to_string(), expected);
            let read = Signature::parse(&expected.to_uppercase()).unwrap();
            assert_eq!((&read, read.method()), (&signature, method));
            assert!(read.verifies(secret, body));
            assert!(!read.verifies(b"jefe", body));
            assert!(!read.verifies(secret, &body[1..]));
        }
    }

    #[test]
    fn what_is_no_signature_is_not_taken_for_one() {
        for value in [
            "",
            "sha256",
            "sha256=",
            "sha256=xyz",
            "sha256=abc",
            "md5=00",
            "=00",
        ] {
            assert_eq!(Signature::parse(value), None, "{value}");
        }
        // A part of the right signature is not the right signature.
        let whole = Signature::sign(SignatureMethod::Sha256, b"k", b"b").to_string();
        assert!(!Signature::parse(&whole[..9]).unwrap().verifies(b"k", b"b"));
    }

    proptest! {
        #[test]
        fn forms_and_queries_read_back(
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
        fn no_query_or_signature_panics(text in ".{0,60}") {
            let _ = Verification::parse_query(&text);
            let _ = Signature::parse(&text);
        }
    }
}
