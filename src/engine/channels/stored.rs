//! The stored half of a channel without hubs, as its driver changes it. Database errors are waited for here.

use resyncd_core::Channel;

use super::context::ChannelContext;
use crate::clock;
use crate::engine::restarts::Panicked;
use crate::engine::store_retries::STORE_PAUSE;
use crate::status::StatusError;
use crate::store::{CallbackSlot, ChannelRecord, StoreError};

/// Why a driver does not go on.
pub(super) enum Ended {
    /// The channel is gone, or was left.
    Gone,
    /// The store has panicked.
    Panicked,
}

/// The result of a driver. Fails if the store has panicked.
pub(super) fn result_of(driven: Result<(), Ended>) -> Result<(), Panicked> {
    match driven {
        Ok(()) | Err(Ended::Gone) => Ok(()),
        Err(Ended::Panicked) => Err(Panicked),
    }
}

/// A channel as its driver sees it.
#[derive(Clone, Copy)]
pub(super) struct StoredChannel<'a> {
    pub(super) context: &'a ChannelContext,
    /// As it was when the driver began.
    pub(super) channel: &'a ChannelRecord,
}

impl StoredChannel<'_> {
    /// The stored channel.
    pub(super) async fn record(&self) -> Result<ChannelRecord, Ended> {
        loop {
            match self.context.store.channel(self.channel.id).await {
                Ok(Some(record)) => return Ok(record),
                Ok(None) => return Err(Ended::Gone),
                Err(error) => self.rest_after(error).await?,
            }
        }
    }

    /// Changes the stored channel; wakes the worker of the set if its state has changed. A driver that only ends channels leaves
    /// alone one that is wanted again.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        change: impl Fn(&mut Channel) -> T + Clone + Send + 'static,
    ) -> Result<T, Ended> {
        let ends_only = self.context.ends_only;
        loop {
            let change = change.clone();
            let changing = self.context.store.step_channel(
                self.channel.id,
                self.channel.keys(CallbackSlot::Own),
                move |channel| (!ends_only || channel.is_unwanted).then(|| change(channel)),
            );
            match changing.await {
                Ok((changed, _)) => return changed.ok_or(Ended::Gone),
                Err(error) => self.rest_after(error).await?,
            }
        }
    }

    /// Rests after a database error.
    pub(super) async fn rest_after(&self, error: StoreError) -> Result<(), Ended> {
        match error {
            StoreError::Panicked => return Err(Ended::Panicked),
            StoreError::NoChannel => return Err(Ended::Gone),
            _ => {}
        }
        let store = &self.context.store;
        store.note_unreadable(&self.context.source, &error);
        tracing::error!(code = error.code(), source = self.context.source, topic = %self.channel.topic, %error,
            "database error; retrying");
        tokio::time::sleep(STORE_PAUSE).await;
        Ok(())
    }

    /// Shows an error in the status, and logs it as `event` unless it is shown already.
    pub(super) fn report(&self, code: &str, message: &str, event: &'static str) {
        let Self { context, channel } = self;
        let known = context.runtime_status.channel(channel.id);
        if !known.is_some_and(|known| known.code == code && known.message == message) {
            tracing::warn!(code, source = context.source, topic = %channel.topic, transport = channel.transport.code(), error = message, "{event}");
        }
        let error = StatusError::new(code, message, clock::now().wall);
        context.runtime_status.note_channel(channel.id, Some(error));
    }
}
