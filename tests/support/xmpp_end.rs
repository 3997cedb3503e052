//! One end of an XMPP stream that a test scripts: it reads up to a text, and sends what the test says. Most of it is what a server and
//! its PubSub service answer. Nothing is shared with the client that it tests, SCRAM neither.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

pub(crate) const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
/// What a server offers first that would accept the password itself, too.
pub(crate) const MECHANISMS: &str = "<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>PLAIN</mechanism>\
                                     <mechanism>SCRAM-SHA-1</mechanism></mechanisms>";
/// What a server offers that resumes sessions.
pub(crate) const SM: &str = "<sm xmlns='urn:xmpp:sm:3'/>";
const BIND: &str = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>";
/// Ends a test that would hang.
pub(crate) const HANGING: Duration = Duration::from_secs(180);
const ITERATIONS: u32 = 4096;

/// An end of a stream. The connection ends when it is dropped.
pub(crate) struct XmppEnd<C> {
    connection: C,
    /// What has come and was not read.
    text: String,
    domain: &'static str,
    /// The address of the client; the full one once it is bound.
    pub(crate) own: String,
}

impl<C: AsyncRead + AsyncWrite + Unpin> XmppEnd<C> {
    /// An end of a domain, whose service is `pubsub` below it.
    pub(crate) fn over(connection: C, domain: &'static str) -> Self {
        Self {
            connection,
            text: String::new(),
            domain,
            own: String::new(),
        }
    }

    /// The connection itself, when everything that has come was read.
    pub(crate) fn into_connection(self) -> C {
        assert_eq!(self.text, "");
        self.connection
    }

    /// Reads up to the end of a text; returns what came before it, with it.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(place) = self.text.find(end) {
                let rest = self.text.split_off(place + end.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let mut bytes = [0; 4096];
            let read = soon(end, self.connection.read(&mut bytes)).await;
            let read = read.unwrap_or(0);
            assert!(read > 0, "the end, and no {end} after {}", self.text);
            self.text += std::str::from_utf8(&bytes[..read]).unwrap();
        }
    }

    /// Everything that comes until the other end closes the connection.
    pub(crate) async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon("the end", self.connection.read_to_end(&mut bytes)).await;
        self.text + &String::from_utf8_lossy(&bytes)
    }

    /// Sends a text. False: the other end has closed the connection, as it may when it rejects a part of it.
    pub(crate) async fn send(&mut self, text: &str) -> bool {
        let sending = async {
            self.connection.write_all(text.as_bytes()).await?;
            self.connection.flush().await
        };
        soon("sent", sending).await.is_ok()
    }

    /// Answers the beginning of a stream.
    pub(crate) async fn greet(&mut self, features: &str) {
        self.until("http://etherx.jabber.org/streams'>").await;
        let domain = self.domain;
        self.send(&format!(
            "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='1' \
             from='{domain}' version='1.0'><stream:features>{features}</stream:features>"
        ))
        .await;
    }

    /// Lets the client authenticate who knows this password (RFC 5802).
    pub(crate) async fn authenticate(&mut self, password: &str) {
        let auth = self.until("</auth>").await;
        assert!(auth.contains("mechanism='SCRAM-SHA-1'"), "{auth}");
        let first = auth.trim_end_matches("</auth>").rsplit('>').next().unwrap();
        let first = String::from_utf8(STANDARD.decode(first).unwrap()).unwrap();
        assert!(!first.contains(password), "{first}");
        let bare = first.strip_prefix("n,,").unwrap();
        let (user, nonce) = bare.split_once(",r=").unwrap();
        self.own = format!("{}@{}", user.strip_prefix("n=").unwrap(), self.domain);
        let salt = STANDARD.encode("salt");
        let challenge = format!("r={nonce}server,s={salt},i={ITERATIONS}");
        let encoded = STANDARD.encode(&challenge);
        self.send(&format!(
            "<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{encoded}</challenge>"
        ))
        .await;
        self.until("</response>").await;
        let salted = salted(&keyed(password.as_bytes()), b"salt");
        let key = hmac(&keyed(&salted), b"Server Key");
        let message = format!("{bare},{challenge},c=biws,r={nonce}server");
        let signature = STANDARD.encode(hmac(&keyed(&key), message.as_bytes()));
        let last = STANDARD.encode(format!("v={signature}"));
        self.send(&format!(
            "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</success>"
        ))
        .await;
    }

    /// Lets the client log in who knows this password. The server offers these features.
    pub(crate) async fn log_in(&mut self, password: &str, features: &str) {
        self.greet(MECHANISMS).await;
        self.authenticate(password).await;
        self.greet(&format!("{BIND}{features}")).await;
    }

    /// Binds the resource that the client asks for.
    pub(crate) async fn bind(&mut self) {
        let request = self.until("</iq>").await;
        let resource = request.split("<resource>").nth(1).unwrap();
        let resource = resource.split('<').next().unwrap();
        self.own = format!("{}/{resource}", self.own);
        self.send(&format!(
            "<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>{}</jid></bind></iq>",
            self.own
        ))
        .await;
    }

    /// Lets the session be one that can be resumed.
    pub(crate) async fn manage(&mut self) {
        self.until("<enable xmlns='urn:xmpp:sm:3' resume='true'/>")
            .await;
        self.send("<enabled xmlns='urn:xmpp:sm:3' id='s1' resume='true'/>")
            .await;
    }

    /// Lets the session be resumed. Returns how many stanzas the client states that it has processed.
    pub(crate) async fn resume(&mut self) -> String {
        let handled = self.asked_to_resume().await;
        self.send("<resumed xmlns='urn:xmpp:sm:3' h='2' previd='s1'/>")
            .await;
        handled
    }

    /// The server does not know the session any more. Returns what [`resume`](Self::resume) does.
    pub(crate) async fn fail_to_resume(&mut self) -> String {
        let handled = self.asked_to_resume().await;
        self.send("<failed xmlns='urn:xmpp:sm:3'/>").await;
        handled
    }

    async fn asked_to_resume(&mut self) -> String {
        let resume = self.until("/>").await;
        let handled = resume.strip_prefix("<resume xmlns='urn:xmpp:sm:3' h='");
        let handled = handled.and_then(|it| it.strip_suffix("' previd='s1'/>"));
        assert!(handled.is_some(), "{resume}");
        handled.unwrap().to_owned()
    }

    /// Reads a request of this kind to the service. Returns its identifier.
    pub(crate) async fn request(&mut self, wanted: &str) -> String {
        let request = self.until("</iq>").await;
        let to = format!(" to='{}'", self.service());
        assert!(
            request.contains(wanted) && request.contains(&to),
            "no {wanted}: {request}"
        );
        let id = request.split(" id='").nth(1).unwrap();
        id.split('\'').next().unwrap().to_owned()
    }

    /// The service confirms a request of this kind.
    pub(crate) async fn confirm(&mut self, wanted: &str) {
        let id = self.request(wanted).await;
        self.result(&id, "").await;
    }

    /// The service confirms the subscription to the node.
    pub(crate) async fn subscribe(&mut self) {
        let form = format!("node='changes' jid='{}'", self.own);
        let id = self.request(&format!("<subscribe {form}/>")).await;
        let subscription = format!("<subscription {form} subscription='subscribed'/>");
        self.result(
            &id,
            &format!("<pubsub xmlns='{PUBSUB}'>{subscription}</pubsub>"),
        )
        .await;
    }

    /// The service answers a request for items.
    pub(crate) async fn answer(&mut self, id: &str, items: &str) {
        self.result(
            id,
            &format!("<pubsub xmlns='{PUBSUB}'><items node='changes'>{items}</items></pubsub>"),
        )
        .await;
    }

    async fn result(&mut self, id: &str, content: &str) {
        let service = self.service();
        self.send(&format!(
            "<iq type='result' id='{id}' from='{service}'>{content}</iq>"
        ))
        .await;
    }

    /// An event of the node.
    pub(crate) async fn event(&mut self, content: &str) {
        let service = self.service();
        self.event_of(&format!("from='{service}'"), content).await;
    }

    /// Items of the node.
    pub(crate) async fn items(&mut self, items: &str) {
        let service = self.service();
        self.items_of(&format!("from='{service}'"), items).await;
    }

    /// Items of the node, as if this sender had them: an attribute.
    pub(crate) async fn items_of(&mut self, sender: &str, items: &str) {
        let content = format!("<items node='changes'>{items}</items>");
        self.event_of(sender, &content).await;
    }

    async fn event_of(&mut self, sender: &str, content: &str) {
        let own = &self.own;
        let event = format!("<event xmlns='{PUBSUB}#event'>{content}</event>");
        self.send(&format!("<message {sender} to='{own}'>{event}</message>"))
            .await;
    }

    /// The address of the service.
    pub(crate) fn service(&self) -> String {
        format!("pubsub.{}", self.domain)
    }
}

/// Awaits a future; panics if it hangs.
async fn soon<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANGING, awaited).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {HANGING:?}"),
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(key).unwrap()
}

fn hmac(keyed: &Hmac<Sha1>, message: &[u8]) -> Vec<u8> {
    let mut mac = keyed.clone();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// `Hi` of RFC 5802.
fn salted(password: &Hmac<Sha1>, salt: &[u8]) -> Vec<u8> {
    let mut last = hmac(password, &[salt, &[0, 0, 0, 1]].concat());
    let mut result = last.clone();
    for _ in 1..ITERATIONS {
        last = hmac(password, &last);
        for (sum, byte) in result.iter_mut().zip(&last) {
            *sum ^= byte;
        }
    }
    result
}
