//! The items that a session asks its service for: those that it has missed, and those whose document an event leaves out.
//!
//! One request at a time is sent, so that a service which answers nothing has nothing pile up, and each for one item: a service may answer
//! a request for several with an error because one of them is gone, and together they may be too long. What is not answered is asked for
//! again by the session that resumes this one.

use std::collections::VecDeque;

use super::stream::escaped;

/// How many items may be wanted.
const MOST_WANTED: usize = 1000;
/// How long the identifier of one may be, in bytes.
const LONGEST_ID: usize = 1024;
/// How many intervals an answer may take.
const MOST_INTERVALS: u32 = 4;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ItemQuery {
    /// So many of the newest items.
    Newest(u32),
    /// The item of this identifier.
    Item(String),
}

/// What is wanted, in its order.
#[derive(Default)]
pub(super) struct WantedItems {
    queue: VecDeque<ItemQuery>,
    /// The identifier of the request for the first of them, and for how many intervals it waits.
    asked: Option<(String, u32)>,
}

impl WantedItems {
    /// Adds one. False: there is no room for it.
    pub(super) fn add(&mut self, wanted: ItemQuery) -> bool {
        if self.queue.contains(&wanted) {
            return true;
        }
        let is_short = match &wanted {
            ItemQuery::Newest(_) => true,
            ItemQuery::Item(id) => id.len() <= LONGEST_ID,
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
        queue.any(|wanted| matches!(wanted, ItemQuery::Newest(_)))
    }

    /// Whether the first that is not answered was asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// What is not answered.
    pub(super) fn unanswered(&self) -> Vec<ItemQuery> {
        self.queue.iter().cloned().collect()
    }

    /// The form of the next request, which is sent with this identifier; `None`: there is nothing to ask for now.
    pub(super) fn ask(&mut self, id: &str, node: &str) -> Option<String> {
        if self.asked.is_some() {
            return None;
        }
        let (attributes, item) = match self.queue.front()? {
            ItemQuery::Newest(newest) => (format!(" max_items='{newest}'"), String::new()),
            ItemQuery::Item(id) => (String::new(), format!("<item id='{}'/>", escaped(id))),
        };
        self.asked = Some((id.to_owned(), 0));
        let node = escaped(node);
        Some(format!("<items node='{node}'{attributes}>{item}</items>"))
    }

    /// The service has answered a request. Returns what that has asked for; `None`: it is not one of these.
    pub(super) fn answered(&mut self, id: &str) -> Option<ItemQuery> {
        self.asked.take_if(|(asked, _)| asked == id)?;
        self.queue.pop_front()
    }

    /// An interval has passed. False: the service does not answer.
    pub(super) fn wait(&mut self) -> bool {
        self.asked.as_mut().is_none_or(|(_, intervals)| {
            *intervals += 1;
            *intervals <= MOST_INTERVALS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_asked_for_one_after_the_other() {
        let mut wanted = WantedItems::default();
        assert!(wanted.add(ItemQuery::Newest(5)));
        for number in 0..2 {
            assert!(wanted.add(ItemQuery::Item(format!("<{number}"))));
            assert!(wanted.add(ItemQuery::Item(format!("<{number}"))), "once");
        }
        let newest = wanted.ask("r1", "a'").unwrap();
        assert_eq!(newest, "<items node='a&apos;' max_items='5'></items>");
        assert_eq!(wanted.ask("r2", "a"), None);
        assert_eq!(wanted.answered("r2"), None);
        assert_eq!(wanted.unanswered().len(), 3);
        assert_eq!(wanted.answered("r1"), Some(ItemQuery::Newest(5)));
        for number in 0..2 {
            let form = wanted.ask("r3", "a").unwrap();
            let expected = format!("<items node='a'><item id='&lt;{number}'/></items>");
            assert_eq!(form, expected);
            let item = ItemQuery::Item(format!("<{number}"));
            assert_eq!(wanted.answered("r3"), Some(item));
        }
        assert_eq!(wanted.ask("r5", "a"), None);
    }

    #[test]
    fn what_is_wanted_is_bounded() {
        let mut wanted = WantedItems::default();
        assert!(!wanted.add(ItemQuery::Item("x".repeat(LONGEST_ID + 1))));
        for number in 0..MOST_WANTED {
            assert!(wanted.add(ItemQuery::Item(number.to_string())));
        }
        assert!(!wanted.add(ItemQuery::Item("one more".to_owned())));
        assert!(wanted.ask("r1", "a").is_some());
        for _ in 0..MOST_INTERVALS {
            assert!(wanted.wait());
        }
        assert!(!wanted.wait());
        assert!(wanted.answered("r1").is_some());
        assert!(wanted.wait(), "nothing is asked");
    }
}
