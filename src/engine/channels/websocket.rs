//! WebSocket: the Source sends notifications over a connection that this Destination opens (Notification 0.8, sections 3 to 6).
//!
//! Nothing outlives a connection.

use bytes::Bytes;
use resyncd_channels::{Socket, SocketError, SocketMessage};

use super::connection::{Connection, ConnectionFailure, Connector};
use super::context::ChannelContext;
use crate::store::ChannelRecord;

/// Opens WebSockets.
pub(super) struct Websockets;

impl Connector for Websockets {
    type Open = Socket;

    async fn open(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> Result<Socket, ConnectionFailure> {
        let limit = context.longest_message;
        let opening = context.transports.open_socket(&channel.topic, limit);
        opening.await.map_err(ConnectionFailure::from)
    }

    async fn close(&mut self, open: Socket, _: bool) -> bool {
        open.close().await;
        true
    }

    fn lose(&mut self, _: Socket, _: &ConnectionFailure) {}

    async fn leave(
        &mut self,
        _: &ChannelContext,
        _: &ChannelRecord,
    ) -> Result<(), ConnectionFailure> {
        Ok(())
    }
}

impl Connection for Socket {
    type Message = SocketMessage;

    async fn next(&mut self) -> Result<SocketMessage, ConnectionFailure> {
        Socket::next(self).await.map_err(ConnectionFailure::from)
    }

    fn bytes(message: &SocketMessage) -> &Bytes {
        message.bytes()
    }

    fn stored(&mut self, _: SocketMessage) {}
}

impl From<SocketError> for ConnectionFailure {
    fn from(error: SocketError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retry_after: error.retry_after(),
            is_of_message: error.is_of_message(),
            ends: true,
        }
    }
}
