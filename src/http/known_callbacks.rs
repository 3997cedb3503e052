//! The callbacks whose deliveries were accepted recently, so that not each delivery reads its channel.
//!
//! What is remembered may be outdated. It only serves to accept a delivery, and the write that stores the delivery checks the keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::ChannelRecord;

/// How many callbacks are remembered.
const MOST: usize = 1000;

/// Channels by the tokens of their callbacks.
#[derive(Clone, Default)]
pub(super) struct KnownCallbacks(Arc<Mutex<HashMap<String, Arc<ChannelRecord>>>>);

impl KnownCallbacks {
    /// The channel with that token, as it was.
    pub(super) fn get(&self, token: &str) -> Option<Arc<ChannelRecord>> {
        self.0.lock().get(token).cloned()
    }

    pub(super) fn insert(&self, token: &str, channel: Arc<ChannelRecord>) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(token.to_owned(), channel);
    }

    pub(super) fn remove(&self, token: &str) {
        self.0.lock().remove(token);
    }
}
