//! The network between the Source's hub and the Destination: what is sent arrives later, twice, in another order, or not at
//! all.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::source::{Notification, SetNo};

/// What becomes of a publication on its way; delays in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Delivered(u64),
    Lost,
    /// It arrives twice. A hub may repeat the same bytes, or write the document anew.
    Doubled(u64, u64),
    /// It arrives cut short.
    Garbled(u64),
    /// The hub does not relay it: after a while it delivers what was published last.
    Coalesced(u64),
}

/// The bytes in which a notification arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Original,
    /// The same document in other bytes.
    Rewritten,
    CutShort,
}

#[derive(Debug)]
enum Flight {
    Relayed(Arc<Notification>, Form),
    Newest(SetNo),
}

/// A notification that arrives.
pub(super) type Arrival = (Arc<Notification>, Form);

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Network {
    flights: BTreeMap<(u64, usize), Flight>,
    sent: usize,
    newest: BTreeMap<SetNo, Arc<Notification>>,
}

impl Network {
    pub(super) fn send(&mut self, now: u64, notification: &Arc<Notification>, fate: Fate) {
        self.newest
            .insert(notification.set, Arc::clone(notification));
        let relayed = |form| Flight::Relayed(Arc::clone(notification), form);
        let again = if self.sent.is_multiple_of(2) {
            Form::Original
        } else {
            Form::Rewritten
        };
        let original = Form::Original;
        let flights = match fate {
            Fate::Delivered(delay) => vec![(delay, relayed(original))],
            Fate::Lost => Vec::new(),
            Fate::Doubled(first, second) => {
                vec![(first, relayed(original)), (second, relayed(again))]
            }
            Fate::Garbled(delay) => vec![(delay, relayed(Form::CutShort))],
            Fate::Coalesced(delay) => vec![(delay, Flight::Newest(notification.set))],
        };
        for (delay, flight) in flights {
            self.sent += 1;
            self.flights.insert((now + delay, self.sent), flight);
        }
    }

    /// When the next one arrives.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        self.flights.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next one that has arrived by now.
    pub(super) fn arrive(&mut self, now: u64) -> Option<Arrival> {
        self.next_arrival().filter(|&at| at <= now)?;
        match self.flights.pop_first()?.1 {
            Flight::Relayed(notification, form) => Some((notification, form)),
            Flight::Newest(set) => Some((Arc::clone(self.newest.get(&set)?), Form::Original)),
        }
    }
}
