//! An XMPP stream over a connection (RFC 6120, section 4): elements in, text out.
//!
//! What waits to be sent is short. All that waits here can be dropped while it waits, and done anew.

use bytes::BytesMut;
use resyncd_core::one_line;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::element::StanzaElement;
use super::error::XmppError;
use super::names::{STREAM, STREAM_ERRORS};
use super::stanza::{Piece, StanzaReader};

/// How much is read at once, in bytes.
const CHUNK: usize = 16 << 10;
/// How much may wait to be sent, in bytes.
const MOST_UNSENT: usize = 64 << 10;
/// How much of it may be answers to others, in bytes: anybody can ask, and what they ask must not end the session.
const MOST_OF_ANSWERS: usize = MOST_UNSENT / 2;
/// How much of a text is shown, in bytes.
const LONGEST_TEXT: usize = 200;

/// A connection.
pub(super) trait XmppConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> XmppConnection for T {}

/// A connection of any kind.
pub(super) type AnyConnection = Box<dyn XmppConnection>;

/// A stream.
pub(super) struct XmlStream {
    connection: BufReader<AnyConnection>,
    reader: StanzaReader,
    /// The longest stanza, in bytes.
    limit: usize,
    unsent: BytesMut,
    /// How many bytes were received.
    received: u64,
}

impl XmlStream {
    pub(super) fn new(connection: AnyConnection, limit: usize) -> Self {
        Self {
            connection: BufReader::with_capacity(CHUNK, connection),
            reader: StanzaReader::new(limit, None),
            limit,
            unsent: BytesMut::new(),
            received: 0,
        }
    }

    /// The connection alone. Fails if something was received that belongs to the stream: somebody has put it before what follows.
    pub(super) fn into_connection(self) -> Result<AnyConnection, XmppError> {
        if self.has_received_more() {
            Err(XmppError::Protocol(
                "something was received before TLS began".to_owned(),
            ))
        } else {
            Ok(self.connection.into_inner())
        }
    }

    /// Begins a stream, also in place of the one before. Returns what the server offers. `service`: who sends documents.
    pub(super) async fn begin(
        &mut self,
        domain: &str,
        service: Option<&str>,
    ) -> Result<StanzaElement, XmppError> {
        if self.has_received_more() {
            let text = "something was received before the stream began".to_owned();
            return Err(XmppError::Protocol(text));
        }
        self.reader = StanzaReader::new(self.limit, service.map(str::to_owned));
        self.send(&format!(
            "<?xml version='1.0'?><stream:stream to='{}' version='1.0' xml:lang='en' xmlns='jabber:client' xmlns:stream='{STREAM}'>",
            escaped(domain)
        ))?;
        self.flush().await?;
        let header = match self.piece().await? {
            Piece::Header(header) => header,
            _ => return Err(XmppError::Protocol("no stream begins".to_owned())),
        };
        if !header.is(STREAM, "stream") {
            return Err(XmppError::Protocol("it is no stream of XMPP".to_owned()));
        }
        let features = self.read().await?;
        if features.is(STREAM, "features") {
            Ok(features)
        } else {
            Err(unexpected(&features))
        }
    }

    /// In the next stream stanzas may have so many bytes.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// How many bytes were received.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Whether a part of a stanza was received.
    pub(super) fn is_in_stanza(&self) -> bool {
        self.reader.is_in_stanza()
    }

    /// Fails if more was received since then than may wait while something else is awaited.
    pub(super) fn check_received_since(&self, then: u64) -> Result<(), XmppError> {
        let most = self.limit.saturating_mul(2) as u64;
        if self.received - then > most {
            Err(XmppError::Protocol(format!(
                "{most} bytes were received, and no answer"
            )))
        } else {
            Ok(())
        }
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

    /// Adds an answer to what waits to be sent, unless there is no room for it.
    pub(super) fn offer(&mut self, answer: &str) {
        if self.unsent.len() + answer.len() <= MOST_OF_ANSWERS {
            self.unsent.extend_from_slice(answer.as_bytes());
        }
    }

    /// Sends what waits.
    pub(super) async fn flush(&mut self) -> Result<(), XmppError> {
        // If it is dropped, what is sent is not in the buffer any more.
        self.connection.write_all_buf(&mut self.unsent).await?;
        Ok(self.connection.flush().await?)
    }

    /// The next element. An error of the stream is an error.
    pub(super) async fn read(&mut self) -> Result<StanzaElement, XmppError> {
        self.flush().await?;
        let element = match self.piece().await? {
            Piece::Stanza(element) => element,
            Piece::End => return Err(XmppError::Closed),
            Piece::Header(_) => return Err(XmppError::Protocol("a second stream".to_owned())),
        };
        if element.is(STREAM, "error") {
            return Err(XmppError::Stream(condition(&element, STREAM_ERRORS)));
        }
        Ok(element)
    }

    async fn piece(&mut self) -> Result<Piece, XmppError> {
        loop {
            let mut input = self.connection.buffer();
            let available = input.len();
            let piece = self.reader.next(&mut input);
            let parsed = available - input.len();
            self.connection.consume(parsed);
            if let Some(piece) = piece? {
                return Ok(piece);
            }
            let received = self.connection.fill_buf().await?.len();
            if received == 0 {
                return Err(XmppError::Lost("closed by the server".to_owned()));
            }
            self.received += received as u64;
        }
    }

    fn has_received_more(&self) -> bool {
        self.reader.is_in_stanza() || !self.connection.buffer().is_empty()
    }
}

/// The condition of an error, and its text.
pub(super) fn condition(error: &StanzaElement, namespace: &str) -> String {
    let mut children = error.children.iter();
    let named =
        children.find(|it| it.namespace.as_str() == namespace && it.name.as_str() != "text");
    let name = named.map_or("undefined-condition", |it| it.name.as_str());
    let text = error.child(namespace, "text");
    match text.map(|it| it.text.trim()).filter(|it| !it.is_empty()) {
        Some(text) => shown(&format!("{name} ({text})")),
        None => shown(name),
    }
}

/// A text of the server, shortened, without what a terminal would obey.
pub(super) fn shown(text: &str) -> String {
    one_line(text, LONGEST_TEXT)
}

/// The error for an element that has no place there.
pub(super) fn unexpected(element: &StanzaElement) -> XmppError {
    XmppError::Protocol(shown(&format!("an unexpected {}", element.name.as_str())))
}

/// A text as the value of an attribute.
pub(super) fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}
