//! The items that a session asks its service for: those that it has missed, and those whose document an event leaves out.
//!
//! One request at a time is sent, so that a service which answers nothing has nothing pile up. What is not answered is asked for again
//! by the session that resumes this one.

use std::collections::VecDeque;

use super::stream::escaped;

/// How many items may be wanted.
const MOST_WANTED: usize = 1000;
/// How long the identifier of one may be, in bytes.
const LONGEST_ID: usize = 1024;
/// How many items a request asks for, and how long that may be, in bytes.
const MOST_ASKED: usize = 50;
const LONGEST_REQUEST: usize = 16 << 10;
/// How many intervals an answer may take.
const MOST_INTERVALS: u32 = 4;

/// What is asked for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// So many of the newest items.
    Newest(u32),
    /// The item of this identifier.
    Item(String),
}

/// A request that is not answered.
struct Asked {
    id: String,
    /// How many of the first in the queue it asks for.
    count: usize,
    /// For how many intervals it waits.
    intervals: u32,
}

/// What is wanted, in its order.
#[derive(Default)]
pub(super) struct WantedItems {
    queue: VecDeque<Wanted>,
    asked: Option<Asked>,
}

impl WantedItems {
    /// Adds one. False: there is no room for it.
    pub(super) fn add(&mut self, wanted: Wanted) -> bool {
        if self.queue.contains(&wanted) {
            return true;
        }
        let is_short = match &wanted {
            Wanted::Newest(_) => true,
            Wanted::Item(id) => id.len() <= LONGEST_ID,
        };
        let has_room = is_short && self.queue.len() < MOST_WANTED;
        if has_room {
            self.queue.push_back(wanted);
        }
        has_room
    }

    /// Whether the newest items are wanted.
    pub(super) fn has_newest(&self) -> bool {
        let mut queue = self.queue.iter();
        queue.any(|wanted| matches!(wanted, Wanted::Newest(_)))
    }

    /// What is not answered.
    pub(super) fn unanswered(&self) -> Vec<Wanted> {
        self.queue.iter().cloned().collect()
    }

    /// The form of the next request, which is sent with this identifier; `None`: there is nothing to ask for now.
    pub(super) fn ask(&mut self, id: &str, node: &str) -> Option<String> {
        if self.asked.is_some() {
            return None;
        }
        let (mut attributes, mut items, mut count) = (String::new(), String::new(), 0);
        for wanted in self.queue.iter().take(MOST_ASKED) {
            match wanted {
                Wanted::Newest(newest) if count == 0 => {
                    attributes = format!(" max_items='{newest}'");
                    count = 1;
                    break;
                }
                Wanted::Item(id) if items.len() < LONGEST_REQUEST => {
                    items += &format!("<item id='{}'/>", escaped(id));
                    count += 1;
                }
                _ => break,
            }
        }
        if count == 0 {
            return None;
        }
        self.asked = Some(Asked {
            id: id.to_owned(),
            count,
            intervals: 0,
        });
        let node = escaped(node);
        Some(format!("<items node='{node}'{attributes}>{items}</items>"))
    }

    /// The service has answered a request. Returns what that has asked for; `None`: it is not one of these.
    pub(super) fn answered(&mut self, id: &str) -> Option<Vec<Wanted>> {
        let asked = self.asked.take_if(|asked| asked.id == id)?;
        Some(self.queue.drain(..asked.count).collect())
    }

    /// An interval has passed. False: the service does not answer.
    pub(super) fn wait(&mut self) -> bool {
        self.asked.as_mut().is_none_or(|asked| {
            asked.intervals += 1;
            asked.intervals <= MOST_INTERVALS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_asked_for_one_request_at_a_time() {
        let mut wanted = WantedItems::default();
        assert!(wanted.add(Wanted::Newest(5)));
        for number in 0..60 {
            assert!(wanted.add(Wanted::Item(format!("<{number}"))));
            assert!(wanted.add(Wanted::Item(format!("<{number}"))), "once");
        }
        let newest = wanted.ask("r1", "a'").unwrap();
        assert_eq!(newest, "<items node='a&apos;' max_items='5'></items>");
        assert_eq!(wanted.ask("r2", "a"), None);
        assert_eq!(wanted.answered("r2"), None);
        assert_eq!(wanted.unanswered().len(), 61);
        assert_eq!(wanted.answered("r1"), Some(vec![Wanted::Newest(5)]));
        let items = wanted.ask("r3", "a").unwrap();
        assert!(
            items.starts_with("<items node='a'><item id='&lt;0'/>"),
            "{items}"
        );
        assert_eq!(items.matches("<item ").count(), MOST_ASKED);
        assert_eq!(wanted.answered("r3").unwrap().len(), MOST_ASKED);
        assert!(wanted.ask("r4", "a").is_some());
        assert_eq!(wanted.answered("r4").unwrap().len(), 10);
        assert_eq!(wanted.ask("r5", "a"), None);
    }

    #[test]
    fn what_is_wanted_and_a_request_are_bounded() {
        let mut wanted = WantedItems::default();
        assert!(!wanted.add(Wanted::Item("x".repeat(LONGEST_ID + 1))));
        for number in 0..MOST_WANTED {
            let id = format!("{number}{}", "&".repeat(1000));
            assert!(wanted.add(Wanted::Item(id)));
        }
        assert!(!wanted.add(Wanted::Item("one more".to_owned())));
        let request = wanted.ask("r1", "a").unwrap();
        assert!(request.len() < 2 * LONGEST_REQUEST, "{}", request.len());
        for _ in 0..MOST_INTERVALS {
            assert!(wanted.wait());
        }
        assert!(!wanted.wait());
        assert!(wanted.answered("r1").is_some());
        assert!(wanted.wait(), "nothing is asked");
    }
}
