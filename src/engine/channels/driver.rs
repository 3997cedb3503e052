//! Drives one channel over its transport. Each transport has a file of its own: [`websub`], `websocket`, `xmpp` and [`callback`].

use std::sync::Arc;

use resyncd_core::Transport;

use super::context::ChannelContext;
use super::websocket::Websockets;
use super::xmpp::Nodes;
use super::{callback, connection, websub};
use crate::engine::restarts::{Panicked, Restarts, catch_panic};
use crate::store::ChannelRecord;

/// Drives a channel until its subscription has ended, or until the driver is stopped. After a panic it is driven on after a pause,
/// as after the start of the process: what was committed is all that counts.
pub(super) async fn drive(context: Arc<ChannelContext>, channel: ChannelRecord) {
    let driving = drive_restarting(&context, &channel);
    // The result is the stop.
    let _ = context.stop.run_until_cancelled(driving).await;
}

async fn drive_restarting(context: &ChannelContext, channel: &ChannelRecord) {
    // Until the machine reports that the channel is healthy.
    let show = |error| context.runtime_status.note_channel(channel.id, Some(error));
    let mut restarts = Restarts::of("driver of a channel", &context.source);
    while catch_panic(drive_to_end(context, channel))
        .await
        .flatten()
        .is_err()
        && restarts.rest(&context.stop, show).await
    {}
}

async fn drive_to_end(context: &ChannelContext, channel: &ChannelRecord) -> Result<(), Panicked> {
    match channel.transport {
        Transport::Websub => websub::drive_to_end(context, channel).await,
        Transport::Websocket => connection::drive_to_end(context, channel, Websockets).await,
        Transport::Xmpp => {
            let nodes = Nodes::of(channel, context.longest_message);
            connection::drive_to_end(context, channel, nodes).await
        }
        Transport::Callback => callback::drive_to_end(context, channel).await,
    }
}
