//! A WebSocket to a Source (RFC 6455; Notification 0.8, section 6): opened by a request like any other, so that the guard, the proxy,
//! the certificates, the credentials and the limits of requests are those of every request. Nothing but this file knows how messages
//! are framed.
//!
//! Invariants: a message has no more bytes than its limit, whatever a frame states of its length. A connection whose server is gone,
//! or never ends a message, ends after a while. The connections of one Source are limited in number, and few of them may have a long
//! message at once, of which they have read a part, or which is not in the inbox yet.
//!
//! Must not know what a message means.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use reqwest::Upgraded;
use reqwest::header::{CONNECTION, HeaderMap, UPGRADE};
use resyncd_core::{Redaction, TopicUri};
use resyncd_fetch::{FetchError, SizeLimit, UpgradeAnswer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::PollSemaphore;

use crate::Transports;

/// How often the server is sent a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How many pings in a row a server may leave unanswered.
const MOST_UNANSWERED: u32 = 2;
/// How many intervals a message may take.
const LONGEST_MESSAGE: u32 = 10;
/// How long the end of a connection may take.
const CLOSING_TIME: Duration = Duration::from_secs(1);
/// How much is read at once, in bytes: each connection has a buffer of that size.
const READ_BUFFER: usize = 16 << 10;
/// How much may wait to be sent, in bytes: there are only pings, and answers to pings.
const WRITE_BUFFER: usize = 4 << 10;
/// The most bytes of a short message.
const SHORT: u64 = 256 << 10;
/// How many bytes a ping may carry (RFC 6455, section 5.5).
const LONGEST_CONTROL: usize = 125;
/// How much of a reason is shown, in characters.
const LONGEST_REASON: usize = 200;

/// How many WebSockets a Source may have.
const MOST_SOCKETS: usize = 256;
/// How many of them may have a long message in memory, or a part of one.
const MOST_LONG: usize = 4;

/// The WebSockets of one Source. Clones share the limits.
#[derive(Clone)]
pub(crate) struct SocketLimits {
    /// One permit for each that is open.
    pub(crate) open: Arc<Semaphore>,
    /// One permit for each long message, from its middle until it is dropped.
    pub(crate) long: Arc<Semaphore>,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            open: Arc::new(Semaphore::new(MOST_SOCKETS)),
            long: Arc::new(Semaphore::new(MOST_LONG)),
        }
    }
}

/// Why there is no connection, or no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The request has failed.
    #[error("{0}")]
    Request(#[from] FetchError),
    /// The server does not open a WebSocket.
    #[error("no WebSocket: {0}")]
    Refused(String),
    /// The Source has too many.
    #[error("{MOST_SOCKETS} WebSockets of the Source are open, and no more are opened")]
    TooMany,
    /// The server has closed the connection.
    #[error("the server has closed the connection{0}")]
    Closed(String),
    /// The connection is broken.
    #[error("the connection is lost: {0}")]
    Lost(String),
    /// The server answers no pings.
    #[error("the server has answered none of {MOST_UNANSWERED} pings")]
    Unanswered,
    /// A message does not end.
    #[error("a message was not complete within {} seconds", (PING_INTERVAL * LONGEST_MESSAGE).as_secs())]
    Endless,
    /// A message is longer than allowed.
    #[error("a message is larger than {0}")]
    TooLarge(SizeLimit),
    /// The server violates RFC 6455.
    #[error("the server violates the WebSocket protocol: {0}")]
    Protocol(String),
}

impl SocketError {
    /// The stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Request(error) => error.code(),
            Self::Refused(_) => "no-websocket",
            Self::TooMany => "too-many-sockets",
            Self::Closed(_) => "connection-closed",
            Self::Lost(_) => "connection-lost",
            Self::Unanswered => "unanswered-pings",
            Self::Endless => "endless-message",
            Self::TooLarge(_) => "too-large",
            Self::Protocol(_) => "websocket-protocol",
        }
    }

    /// How long the server asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Request(error) => error.retry_after(),
            _ => None,
        }
    }

    /// Whether a message was received that is not accepted.
    pub fn is_of_message(&self) -> bool {
        matches!(self, Self::Endless | Self::TooLarge(_))
    }
}

impl Transports {
    /// Opens the WebSocket of a channel. `limit`: the longest message, in bytes.
    ///
    /// # Errors
    /// [`SocketError`] if the server does not open it.
    pub async fn open_socket(&self, uri: &TopicUri, limit: u64) -> Result<Socket, SocketError> {
        let place = Arc::clone(&self.sockets.open).try_acquire_owned();
        let place = place.map_err(|_| SocketError::TooMany)?;
        let key = generate_key();
        let (client, url) = (self.client(), uri.http_form());
        let asking = client.upgrade(&url, |request| {
            request
                .header(CONNECTION, "Upgrade")
                .header(UPGRADE, "websocket")
                .header("sec-websocket-version", "13")
                .header("sec-websocket-key", &key)
        });
        let upgraded = match asking.await? {
            UpgradeAnswer::Switched {
                headers,
                connection,
            } => {
                check_answer(&headers, &key)?;
                connection
            }
            UpgradeAnswer::Kept(status) => {
                let text = format!("the server answered with status {status}");
                return Err(SocketError::Refused(text));
            }
        };
        let redaction = client.redaction().clone();
        let mut socket = Socket::over(upgraded, limit, &self.sockets, redaction).await;
        socket.place = Some(place);
        Ok(socket)
    }
}

/// Whether the server has understood the request (RFC 6455, section 4.1).
fn check_answer(headers: &HeaderMap, key: &str) -> Result<(), SocketError> {
    let header = |name: &str| {
        let value = headers.get(name);
        value.and_then(|value| value.to_str().ok())
    };
    let names = |name: &str, wanted: &str| {
        let mut words = header(name).unwrap_or_default().split(',');
        words.any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    let refused = |text: &str| Err(SocketError::Refused(text.to_owned()));
    if !names("upgrade", "websocket") || !names("connection", "upgrade") {
        return refused("the server speaks another protocol");
    }
    if header("sec-websocket-accept") != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return refused("the answer is not to this request");
    }
    let extras = ["sec-websocket-extensions", "sec-websocket-protocol"];
    if extras
        .into_iter()
        .any(|name| header(name).is_some_and(|it| !it.is_empty()))
    {
        return refused("the server wants an extension or a protocol that was not requested");
    }
    Ok(())
}

/// A message. While it is long, it counts among the long ones of its Source: whoever holds it has it in memory.
#[derive(Debug)]
pub struct SocketMessage {
    bytes: Bytes,
    /// The permit of a long one.
    _long: Option<OwnedSemaphorePermit>,
}

impl SocketMessage {
    /// What it consists of.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// A WebSocket that is open. Messages only come from the server. When it is dropped, the connection ends.
pub struct Socket<S = Upgraded> {
    stream: WebSocketStream<Counting<S>>,
    limit: u64,
    redaction: Redaction,
    /// Its place among those of the Source.
    place: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// The client's end of a connection on which a WebSocket was agreed.
    async fn over(connection: S, limit: u64, limits: &SocketLimits, redaction: Redaction) -> Self {
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_BUFFER)
            .max_message_size(Some(most))
            .max_frame_size(Some(most.max(LONGEST_CONTROL)));
        let connection = Counting {
            connection,
            received: 0,
            finished: 0,
            permits: PollSemaphore::new(Arc::clone(&limits.long)),
            long: None,
            is_waiting: false,
        };
        let stream = WebSocketStream::from_raw_socket(connection, Role::Client, Some(config));
        Self {
            stream: stream.await,
            limit,
            redaction,
            place: None,
        }
    }

    /// Waits for the next message. The server is sent pings meanwhile, and its own are answered.
    ///
    /// A server is heard as long as any bytes come: in the middle of a long message it can answer no ping. While nothing is read because
    /// others are in the middle of theirs, nothing is held against it.
    ///
    /// # Errors
    /// [`SocketError`] if there will be none: nothing more is read of the connection.
    pub async fn next(&mut self) -> Result<SocketMessage, SocketError> {
        let mut interval = Box::pin(tokio::time::sleep(PING_INTERVAL));
        let (mut heard, mut unanswered, mut unfinished) = (self.received(), 0, 0);
        loop {
            tokio::select! {
                received = self.stream.next() => match received {
                    Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                        return Ok(SocketMessage {
                            bytes: message.into_data(),
                            _long: self.stream.get_mut().finish(),
                        });
                    }
                    Some(Ok(Message::Close(reason))) => return Err(self.closed(reason).await),
                    Some(Ok(control)) => {
                        self.stream.get_mut().finished += control_length(&control);
                    }
                    Some(Err(error)) => return Err(self.error_of(error)),
                    None => return Err(SocketError::Closed(String::new())),
                },
                () = &mut interval => {
                    let is_waiting = self.stream.get_ref().is_waiting;
                    if self.received() > heard || is_waiting {
                        (heard, unanswered) = (self.received(), 0);
                    } else if unanswered == MOST_UNANSWERED {
                        return Err(SocketError::Unanswered);
                    }
                    unfinished = match self.stream.get_ref().unfinished() {
                        0 => 0,
                        _ if is_waiting => unfinished,
                        _ => unfinished + 1,
                    };
                    if unfinished >= LONGEST_MESSAGE {
                        return Err(SocketError::Endless);
                    }
                    self.ping().await?;
                    unanswered += 1;
                    interval.set(tokio::time::sleep(PING_INTERVAL));
                }
            }
        }
    }

    /// Closes the connection (RFC 6455, section 7.1).
    pub async fn close(mut self) {
        // It ends in any case.
        let _ = tokio::time::timeout(CLOSING_TIME, self.stream.close(None)).await;
    }

    async fn ping(&mut self) -> Result<(), SocketError> {
        let sending = self.stream.send(Message::Ping(Bytes::new()));
        match tokio::time::timeout(CLOSING_TIME, sending).await {
            Ok(sent) => sent.map_err(|error| self.error_of(error)),
            // The server reads nothing: that counts as an answer that is missing.
            Err(_) => Ok(()),
        }
    }

    fn received(&self) -> u64 {
        self.stream.get_ref().received
    }

    /// The server closes the connection: that is confirmed.
    async fn closed(&mut self, reason: Option<CloseFrame>) -> SocketError {
        let _ = tokio::time::timeout(CLOSING_TIME, self.stream.next()).await;
        let reason = reason.map_or_else(String::new, |frame| {
            let text = self.redaction.excerpt(&frame.reason, LONGEST_REASON);
            let code = u16::from(frame.code);
            if text.is_empty() {
                format!(" ({code})")
            } else {
                format!(" ({code}: {text})")
            }
        });
        SocketError::Closed(reason)
    }

    fn error_of(&self, error: tungstenite::Error) -> SocketError {
        let text = self.redaction.excerpt(&error.to_string(), LONGEST_REASON);
        match error {
            tungstenite::Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                SocketError::TooLarge(SizeLimit::notification(self.limit))
            }
            tungstenite::Error::ConnectionClosed
            | tungstenite::Error::AlreadyClosed
            | tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                SocketError::Closed(String::new())
            }
            tungstenite::Error::Io(_) | tungstenite::Error::WriteBufferFull(_) => {
                SocketError::Lost(text)
            }
            _ => SocketError::Protocol(text),
        }
    }
}

/// The length of the frame of a ping or a pong of the server.
fn control_length(message: &Message) -> u64 {
    2 + message.len() as u64
}

/// A connection that counts the bytes which it has received, and reads no more of a long message while others are in the middle of
/// one.
struct Counting<S> {
    connection: S,
    received: u64,
    /// How many of them belong to nothing that is unfinished.
    finished: u64,
    permits: PollSemaphore,
    /// The permit for a long message.
    long: Option<OwnedSemaphorePermit>,
    /// Whether nothing is read because other connections have the permits.
    is_waiting: bool,
}

impl<S> Counting<S> {
    /// A message is complete. Returns the permit of a long one.
    fn finish(&mut self) -> Option<OwnedSemaphorePermit> {
        self.finished = self.received;
        self.long.take()
    }

    fn unfinished(&self) -> u64 {
        self.received.saturating_sub(self.finished)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counting<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.unfinished() > SHORT && this.long.is_none() {
            this.is_waiting = true;
            this.long = ready!(this.permits.poll_acquire(context));
            this.is_waiting = false;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.connection).poll_read(context, buffer))?;
        this.received += (buffer.filled().len() - before) as u64;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counting<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().connection).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().connection).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
