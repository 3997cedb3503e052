//! WebSub (W3C Recommendation, 23 January 2018): the forms of sections 5 and the signatures of section 7, for both sides.

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

/// A subscriber's request to a hub (section 5.1), an `application/x-www-form-urlencoded` form.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub fn to_form(&self) -> String {
        todo!()
    }
    /// What a hub reads from the form; `None` if a parameter that must be there is not.
    pub fn parse_form(form: &str) -> Option<Self> {
        todo!("{form}")
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
    /// Reads a query string; `None` if it has no known mode or no topic.
    pub fn parse_query(query: &str) -> Option<Self> {
        todo!("{query}")
    }
    /// The query string that a hub sends.
    pub fn to_query(&self) -> String {
        todo!()
    }
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

/// The value of an `X-Hub-Signature` header (section 7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    method: SignatureMethod,
    bytes: Vec<u8>,
}

impl Signature {
    /// Reads a header value; `None` if it has no known method or is not hexadecimal.
    pub fn parse(value: &str) -> Option<Self> {
        todo!("{value}")
    }
    /// Signs a body.
    pub fn sign(method: SignatureMethod, secret: &[u8], body: &[u8]) -> Self {
        todo!("{method:?} {secret:?} {body:?}")
    }
    /// Whether it is the signature of that body, compared in constant time.
    pub fn verifies(&self, secret: &[u8], body: &[u8]) -> bool {
        todo!("{:?} {:?} {secret:?} {body:?}", self.method, self.bytes)
    }
    // Display: `sha256=hex`
}
