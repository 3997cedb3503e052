//! The way from the Source to the Destination: what is sent arrives later, twice, in another order, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::source::{Notification, SetNo};

/// What becomes of a publication on its way; delays in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered(u64),
    Lost,
    Doubled(u64, u64),
    /// The hub does not relay it: after a while it delivers what was published last.
    Coalesced(u64),
}

#[derive(Clone, Debug)]
enum Flight {
    Relayed(Arc<Notification>),
    Newest(SetNo),
}

/// What is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    flights: BTreeMap<(u64, usize), Flight>,
    sent: usize,
    newest: BTreeMap<SetNo, Arc<Notification>>,
}

impl Network {
    pub(crate) fn send(&mut self, now: u64, notification: &Arc<Notification>, fate: Fate) {
        self.newest
            .insert(notification.set, Arc::clone(notification));
        let relayed = || Flight::Relayed(Arc::clone(notification));
        let flights = match fate {
            Fate::Delivered(delay) => vec![(delay, relayed())],
            Fate::Lost => Vec::new(),
            Fate::Doubled(first, second) => vec![(first, relayed()), (second, relayed())],
            Fate::Coalesced(delay) => vec![(delay, Flight::Newest(notification.set))],
        };
        for (delay, flight) in flights {
            self.sent += 1;
            self.flights.insert((now + delay, self.sent), flight);
        }
    }

    /// When the next one arrives.
    pub(crate) fn next_arrival(&self) -> Option<u64> {
        self.flights.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next one that has arrived by now.
    pub(crate) fn arrive(&mut self, now: u64) -> Option<Arc<Notification>> {
        self.next_arrival().filter(|&at| at <= now)?;
        match self.flights.pop_first()?.1 {
            Flight::Relayed(notification) => Some(notification),
            Flight::Newest(set) => self.newest.get(&set).cloned(),
        }
    }
}
