//! The limits of the sessions of the XMPP account: of all Sources together, and of one.
//!
//! A server that allows fewer ends the oldest session for a new one, which then takes the place of the next, without end.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many sessions listen to nodes: ejabberd allows ten of an account unless configured otherwise (`max_user_sessions`).
pub(crate) const MOST_SESSIONS: usize = 8;
/// How many of them are of one Source: it must not take the place of all others.
pub(crate) const MOST_OF_SOURCE: usize = 4;
/// How many sessions end subscriptions, beside them.
const MOST_ENDINGS: usize = 2;

/// The sessions of one Source. Clones share the limits; all Sources share those of the account, and the addresses.
#[derive(Clone)]
pub(crate) struct NodeLimits {
    account: Arc<Semaphore>,
    endings: Arc<Semaphore>,
    source: Arc<Semaphore>,
    /// The full addresses of the sessions whose server has assigned another resource than they have asked for, by the latter: what they
    /// have subscribed to is ended with them.
    addresses: Arc<Mutex<HashMap<String, String>>>,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            account: Arc::new(Semaphore::new(MOST_SESSIONS)),
            endings: Arc::new(Semaphore::new(MOST_ENDINGS)),
            source: Arc::new(Semaphore::new(MOST_OF_SOURCE)),
            addresses: Arc::default(),
        }
    }
}

impl NodeLimits {
    /// Those of another Source.
    pub(crate) fn of_source(&self) -> Self {
        Self {
            source: Arc::new(Semaphore::new(MOST_OF_SOURCE)),
            ..self.clone()
        }
    }

    /// Remembers the address of a session that has asked for a resource.
    pub(crate) fn note_address(&self, resource: &str, address: &str) {
        let assigned = address.split_once('/').map(|(_, resource)| resource);
        let mut addresses = self.addresses.lock();
        if assigned == Some(resource) {
            addresses.remove(resource)
        } else {
            addresses.insert(resource.to_owned(), address.to_owned())
        };
    }

    /// The address of the last session that has asked for a resource, if its server has assigned another one.
    pub(crate) fn address(&self, resource: &str) -> Option<String> {
        self.addresses.lock().get(resource).cloned()
    }

    /// The permit of a session that listens; `None`: there are as many as there may be.
    pub(crate) fn session_permit(&self) -> Option<SessionPermit> {
        Some(SessionPermit {
            _source: Arc::clone(&self.source).try_acquire_owned().ok()?,
            _account: Arc::clone(&self.account).try_acquire_owned().ok()?,
        })
    }

    /// Waits for the permit of a session that ends a subscription.
    pub(crate) async fn ending_permit(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.endings).acquire_owned().await.ok()
    }
}

/// The permit of a session, until it is dropped.
pub struct SessionPermit {
    _source: OwnedSemaphorePermit,
    _account: OwnedSemaphorePermit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_takes_a_part_of_the_sessions_and_all_sources_take_no_more_than_there_are() {
        let of_first = NodeLimits::default();
        let take = |limits: &NodeLimits| -> Vec<SessionPermit> {
            std::iter::from_fn(|| limits.clone().session_permit()).collect()
        };
        let mut first = take(&of_first);
        assert_eq!(first.len(), 4);
        let second = take(&of_first.of_source());
        assert_eq!(second.len(), 4);
        let of_third = of_first.of_source();
        assert!(
            of_third.session_permit().is_none(),
            "the account has no more"
        );
        first.pop();
        let third = of_third.session_permit();
        assert!(third.is_some());
        assert!(of_first.session_permit().is_none());
    }
}
