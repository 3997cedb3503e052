//! A server that does what a test tells it, on loopback.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::prosody::PASSWORD;
use crate::support::soon;

pub(crate) const SERVICE: &str = "pubsub.localhost";
pub(crate) const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
const SCRAM: &str = "<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>SCRAM-SHA-1</mechanism></mechanisms>";
const BIND: &str = "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>";
/// Of a server that resumes sessions.
pub(crate) const SM: &str = "<sm xmlns='urn:xmpp:sm:3'/>";

/// The server.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    listener: TcpListener,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, listener }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> Session {
        let accepted = soon("a connection", self.listener.accept()).await;
        Session {
            connection: accepted.unwrap().0,
            text: String::new(),
            own: String::new(),
        }
    }

    /// The next connection, logged in. The server offers these features.
    pub(crate) async fn log_in(&self, features: &str) -> Session {
        let mut session = self.accept().await;
        session.greet(SCRAM).await;
        session.authenticate().await;
        session.greet(&format!("{BIND}{features}")).await;
        session
    }

    /// The next connection, which has subscribed to the node and asked for the newest items.
    pub(crate) async fn subscribed(&self, features: &str, newest: &str) -> Session {
        let mut session = self.log_in(features).await;
        session.bind().await;
        if features == SM {
            session
                .until("<enable xmlns='urn:xmpp:sm:3' resume='true'/>")
                .await;
            session
                .send("<enabled xmlns='urn:xmpp:sm:3' id='s1' resume='true'/>")
                .await;
        }
        session.confirm("<subscribe node='changes'").await;
        session.answer("max_items='50'", newest).await;
        session
    }

    /// Ends each connection at once until something has happened.
    pub(crate) async fn refusing<T>(&self, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                done = &mut until => return done,
                _ = self.listener.accept() => {}
            }
        }
    }
}

/// A connection. It ends when it is dropped.
pub(crate) struct Session {
    connection: TcpStream,
    text: String,
    /// The full address of the client.
    pub(crate) own: String,
}

impl Session {
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

    /// Everything that comes until the client ends the connection.
    pub(crate) async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon("the end", self.connection.read_to_end(&mut bytes)).await;
        self.text + &String::from_utf8_lossy(&bytes)
    }

    /// Sends a text. False: the client has ended the connection.
    pub(crate) async fn send(&mut self, text: &str) -> bool {
        let sending = self.connection.write_all(text.as_bytes());
        soon("sent", sending).await.is_ok()
    }

    /// Answers the beginning of a stream.
    pub(crate) async fn greet(&mut self, features: &str) {
        self.until("http://etherx.jabber.org/streams'>").await;
        self.send(&format!(
            "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' id='1' \
             from='localhost' version='1.0'><stream:features>{features}</stream:features>"
        ))
        .await;
    }

    async fn authenticate(&mut self) {
        let auth = self.until("</auth>").await;
        let first = auth.trim_end_matches("</auth>").rsplit('>').next().unwrap();
        let first = String::from_utf8(STANDARD.decode(first).unwrap()).unwrap();
        let bare = first.strip_prefix("n,,").unwrap().to_owned();
        let nonce = bare.split("r=").nth(1).unwrap();
        let challenge = format!("r={nonce}server,s={},i=4096", STANDARD.encode("salt"));
        let encoded = STANDARD.encode(&challenge);
        self.send(&format!(
            "<challenge xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{encoded}</challenge>"
        ))
        .await;
        self.until("</response>").await;
        let key = hmac(&salted(PASSWORD, b"salt"), b"Server Key");
        let message = format!("{bare},{challenge},c=biws,r={nonce}server");
        let signature = STANDARD.encode(hmac(&key, message.as_bytes()));
        let last = STANDARD.encode(format!("v={signature}"));
        self.send(&format!(
            "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</success>"
        ))
        .await;
    }

    /// Binds the resource that the client asks for.
    pub(crate) async fn bind(&mut self) {
        let request = self.until("</iq>").await;
        let resource = request.split("<resource>").nth(1).unwrap();
        let resource = resource.split('<').next().unwrap();
        self.own = format!("resyncd@localhost/{resource}");
        self.send(&format!(
            "<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>{}</jid></bind></iq>",
            self.own
        ))
        .await;
    }

    /// Resumes the session that the client asks for. Returns what it asks.
    pub(crate) async fn resumed(&mut self) -> String {
        let resume = self.until("/>").await;
        assert!(resume.contains("<resume xmlns='urn:xmpp:sm:3'"), "{resume}");
        self.send("<resumed xmlns='urn:xmpp:sm:3' h='2' previd='s1'/>")
            .await;
        resume
    }

    /// Reads a request of this kind. Returns its identifier.
    pub(crate) async fn request(&mut self, wanted: &str) -> String {
        let request = self.until("</iq>").await;
        assert!(request.contains(wanted), "{request}");
        let id = request.split(" id='").nth(1).unwrap();
        id.split('\'').next().unwrap().to_owned()
    }

    /// The service confirms a request of this kind.
    pub(crate) async fn confirm(&mut self, wanted: &str) {
        let id = self.request(wanted).await;
        self.send(&format!("<iq type='result' id='{id}' from='{SERVICE}'/>"))
            .await;
    }

    /// The service answers a request for items.
    pub(crate) async fn answer(&mut self, wanted: &str, items: &str) {
        let id = self.request(wanted).await;
        self.send(&format!(
            "<iq type='result' id='{id}' from='{SERVICE}'><pubsub xmlns='{PUBSUB}'><items node='changes'>{items}</items></pubsub></iq>"
        ))
        .await;
    }

    /// An event of the node.
    pub(crate) async fn event(&mut self, content: &str) {
        self.send(&format!(
            "<message from='{SERVICE}'><event xmlns='{PUBSUB}#event'>{content}</event></message>"
        ))
        .await;
    }

    /// Items of the node.
    pub(crate) async fn items(&mut self, items: &str) {
        self.event(&format!("<items node='changes'>{items}</items>"))
            .await;
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// `Hi` of RFC 5802, with 4096 iterations.
fn salted(password: &str, salt: &[u8]) -> Vec<u8> {
    let mut last = hmac(password.as_bytes(), &[salt, &[0, 0, 0, 1]].concat());
    let mut result = last.clone();
    for _ in 1..4096 {
        last = hmac(password.as_bytes(), &last);
        for (sum, byte) in result.iter_mut().zip(&last) {
            *sum ^= byte;
        }
    }
    result
}
