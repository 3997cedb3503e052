//! Drives one channel over its transport. Each transport has a file of its own: [`websub`], `websocket`, `xmpp` and [`callback`].

use std::sync::Arc;

use resyncd_core::Transport;

use super::context::ChannelContext;
use super::websocket::Websockets;
use super::xmpp::Nodes;
use super::{callback, connection, websub};
use crate::engine::restarts::{Restarts, catch_panic};
use crate::store::ChannelRecord;

/// Drives a channel until its subscription has ended, or until the driver is stopped. After a panic it is driven on after a pause,
/// as after the start of the process: what was committed is all that counts.
pub(super) async fn drive(context: Arc<ChannelContext>, channel: ChannelRecord) {
    tokio::select! {
        () = context.stop.cancelled() => {}
        () = drive_restarting(&context, &channel) => {}
    }
}

async fn drive_restarting(context: &ChannelContext, channel: &ChannelRecord) {
    let mut restarts = Restarts::of("driver of a channel", &context.source);
    loop {
        let driven = match channel.transport {
            Transport::Websub => catch_panic(websub::drive_to_end(context, channel)).await,
            Transport::Websocket => {
                catch_panic(connection::drive_to_end(context, channel, Websockets)).await
            }
            Transport::Xmpp => {
                let nodes = Nodes::of(channel, context.longest_message);
                catch_panic(connection::drive_to_end(context, channel, nodes)).await
            }
            Transport::Callback => catch_panic(callback::drive_to_end(context, channel)).await,
        };
        if driven.and_then(|driven| driven).is_ok() {
            return;
        }
        let (error, pause) = restarts.after_panic();
        // Until the machine reports that the channel is healthy.
        context.runtime_status.note_channel(channel.id, Some(error));
        tokio::time::sleep(pause).await;
    }
}
