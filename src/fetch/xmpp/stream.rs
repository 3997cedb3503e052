//! An XMPP stream over a connection (RFC 6120, section 4): elements in, text out.
//!
//! What waits to be sent is short. All that waits here can be dropped while it waits, and done anew.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::element::{Element, Scope};
use super::error::XmppError;
use super::names::{STREAM, STREAM_ERRORS};
use super::stanza::{Piece, StanzaBuffer};

/// How much is read at once, in bytes.
const CHUNK: usize = 16 << 10;
/// How much may wait to be sent, in bytes.
const MOST_UNSENT: usize = 64 << 10;
/// How much of a text is shown, in characters.
const LONGEST_TEXT: usize = 200;

/// A connection.
pub(super) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// A connection of any kind.
pub(super) type AnyConnection = Box<dyn Connection>;

/// A stream.
pub(super) struct XmlStream {
    connection: AnyConnection,
    buffer: StanzaBuffer,
    /// The longest stanza, in bytes.
    limit: usize,
    /// The declarations of the start tag that the server has sent.
    scope: Scope,
    unsent: Vec<u8>,
    chunk: Box<[u8]>,
    /// How many bytes were received.
    received: u64,
}

impl XmlStream {
    pub(super) fn new(connection: AnyConnection, limit: usize) -> Self {
        Self {
            connection,
            buffer: StanzaBuffer::new(limit),
            limit,
            scope: Scope::new(),
            unsent: Vec::new(),
            chunk: vec![0; CHUNK].into_boxed_slice(),
            received: 0,
        }
    }

    /// The connection alone. Fails if something was received that belongs to the stream: somebody has put it before what follows.
    pub(super) fn into_connection(self) -> Result<AnyConnection, XmppError> {
        match self.buffer.is_empty() {
            true => Ok(self.connection),
            false => Err(XmppError::Protocol(
                "something was received before TLS began".to_owned(),
            )),
        }
    }

    /// Begins a stream, also in place of the one before. Returns what the server offers.
    pub(super) async fn begin(&mut self, domain: &str) -> Result<Element, XmppError> {
        if !self.buffer.is_empty() {
            let text = "something was received before the stream began".to_owned();
            return Err(XmppError::Protocol(text));
        }
        self.buffer = StanzaBuffer::new(self.limit);
        self.send(&format!(
            "<?xml version='1.0'?><stream:stream to='{}' version='1.0' xml:lang='en' xmlns='jabber:client' xmlns:stream='{STREAM}'>",
            escaped(domain)
        ))?;
        self.flush().await?;
        let header = match self.piece().await? {
            Piece::Header(header) => header,
            _ => return Err(XmppError::Protocol("no stream begins".to_owned())),
        };
        let (header, scope) = Element::scope_of_header(&header)?;
        if !header.is(STREAM, "stream") {
            return Err(XmppError::Protocol("it is no stream of XMPP".to_owned()));
        }
        self.scope = scope;
        let features = self.read().await?;
        match features.is(STREAM, "features") {
            true => Ok(features),
            false => Err(unexpected(&features)),
        }
    }

    /// From now on stanzas may have so many bytes.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.buffer.set_limit(limit);
    }

    /// How many bytes were received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether a part of a stanza was received.
    pub(super) fn is_in_stanza(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Adds a text to what waits to be sent.
    pub(super) fn send(&mut self, text: &str) -> Result<(), XmppError> {
        if self.unsent.len() + text.len() > MOST_UNSENT {
            let text = "the server reads nothing of what it is sent".to_owned();
            return Err(XmppError::Protocol(text));
        }
        self.unsent.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Sends what waits.
    pub(super) async fn flush(&mut self) -> Result<(), XmppError> {
        while !self.unsent.is_empty() {
            let sent = self.connection.write(&self.unsent).await?;
            if sent == 0 {
                return Err(XmppError::Lost("it takes no more".to_owned()));
            }
            self.unsent.drain(..sent);
        }
        Ok(self.connection.flush().await?)
    }

    /// The next element. An error of the stream is an error.
    pub(super) async fn read(&mut self) -> Result<Element, XmppError> {
        self.flush().await?;
        let text = match self.piece().await? {
            Piece::Stanza(text) => text,
            Piece::End => return Err(XmppError::Closed),
            Piece::Header(_) => return Err(XmppError::Protocol("a second stream".to_owned())),
        };
        let element = Element::parse(&text, &self.scope)?;
        if element.is(STREAM, "error") {
            return Err(XmppError::Stream(condition(&element, STREAM_ERRORS)));
        }
        Ok(element)
    }

    async fn piece(&mut self) -> Result<Piece, XmppError> {
        loop {
            if let Some(piece) = self.buffer.next()? {
                return Ok(piece);
            }
            let received = self.connection.read(&mut self.chunk).await?;
            if received == 0 {
                return Err(XmppError::Lost("the server has ended it".to_owned()));
            }
            self.received += received as u64;
            self.buffer.add(&self.chunk[..received]);
        }
    }
}

/// The condition of an error, and its text.
pub(super) fn condition(error: &Element, namespace: &str) -> String {
    let mut children = error.children.iter();
    let named = children.find(|it| it.namespace == namespace && it.name != "text");
    let name = named.map_or("undefined-condition", |it| it.name.as_str());
    let text = error.child(namespace, "text");
    match text.map(|it| it.text.trim()).filter(|it| !it.is_empty()) {
        Some(text) => shown(&format!("{name} ({text})")),
        None => shown(name),
    }
}

/// A text of the server, shortened, without what a terminal would obey.
pub(super) fn shown(text: &str) -> String {
    let letters = text.chars().take(LONGEST_TEXT);
    letters
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// The error for an element that has no place there.
pub(super) fn unexpected(element: &Element) -> XmppError {
    XmppError::Protocol(shown(&format!("an unexpected {}", element.name)))
}

/// A text as the value of an attribute.
pub(super) fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}
