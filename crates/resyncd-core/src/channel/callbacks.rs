//! The callbacks of a channel: which hub was given which of them.
//!
//! A hub is recognized by the callback that it requests, so each subscription has its own. While a subscription may still
//! deliver, another hub, topic or address is requested with a second callback: the first one is left only when the second one
//! is verified, and neither hub can end the subscription of the other.

use crate::{HubUri, TopicUri};

/// What a hub was asked for with one callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallbackOwner {
    /// The hub.
    pub hub: HubUri,
    /// The topic.
    pub topic: TopicUri,
    /// The public URL that the callback begins with.
    pub base: String,
}

/// One of the callbacks of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallbackSlot {
    /// The callback of the subscription.
    Own,
    /// The callback of the subscription that is to replace it.
    Next,
}

/// The callbacks of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callbacks {
    /// Of the subscription; `None`: no hub was asked yet.
    pub own: Option<CallbackOwner>,
    /// Of the subscription that is to replace it, if one is requested.
    pub next: Option<CallbackOwner>,
}

/// How the callbacks have changed: what the shell does to their tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackChange {
    /// Not.
    Same,
    /// The own one has become useless, and needs a new token.
    OwnIsNew,
    /// The next one needs a new token.
    NextIsNew,
    /// The next one has replaced the own one.
    Replaced,
    /// The next one is not needed any more.
    NextIsGone,
}

impl Callbacks {
    /// Chooses the callback of a request. `may_deliver`: whether the own subscription may still run.
    pub(super) fn assign(&mut self, to: CallbackOwner, may_deliver: bool) {
        match &self.own {
            Some(own) if *own != to && may_deliver => self.next = Some(to),
            _ => {
                self.own = Some(to);
                self.next = None;
            }
        }
    }

    /// The callback of the request that was sent last.
    pub fn of_request(&self) -> CallbackSlot {
        match self.next {
            Some(_) => CallbackSlot::Next,
            None => CallbackSlot::Own,
        }
    }

    /// What a hub was asked for with a callback.
    pub fn owner(&self, slot: CallbackSlot) -> Option<&CallbackOwner> {
        match slot {
            CallbackSlot::Own => self.own.as_ref(),
            CallbackSlot::Next => self.next.as_ref(),
        }
    }

    /// Replaces the own callback by the next one, if there is one.
    pub(super) fn replace(&mut self) {
        if let Some(next) = self.next.take() {
            self.own = Some(next);
        }
    }

    /// How the callbacks differ from those before.
    pub fn change_since(&self, before: &Self) -> CallbackChange {
        let differ = |one: &Option<CallbackOwner>, other: &Option<CallbackOwner>| match (one, other)
        {
            (Some(one), Some(other)) => one != other,
            (one, other) => one.is_some() != other.is_some(),
        };
        if self.next.is_some() {
            return if differ(&self.next, &before.next) {
                CallbackChange::NextIsNew
            } else {
                CallbackChange::Same
            };
        }
        let is_replaced = before.next.is_some() && self.own == before.next;
        if is_replaced {
            CallbackChange::Replaced
        } else if before.own.is_some() && differ(&self.own, &before.own) {
            CallbackChange::OwnIsNew
        } else if before.next.is_some() {
            CallbackChange::NextIsGone
        } else {
            CallbackChange::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The owner of a text like `a t x`: hub, topic and the public URL.
    fn owner(text: &str) -> Option<CallbackOwner> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let uri = |name: &str| format!("http://{name}.example/");
        let (hub, topic, base) = (words.first()?, words.get(1)?, words.get(2)?);
        Some(CallbackOwner {
            hub: HubUri::parse(&uri(hub)).unwrap(),
            topic: TopicUri::parse(&uri(topic)).unwrap(),
            base: uri(base),
        })
    }

    fn callbacks(own: &str, next: &str) -> Callbacks {
        Callbacks {
            own: owner(own),
            next: owner(next),
        }
    }

    #[test]
    fn another_subscription_has_a_callback_of_its_own() {
        use CallbackChange::{NextIsGone, NextIsNew, OwnIsNew, Same};
        for (own, next, to, may_deliver, expected, change) in [
            ("", "", "a t x", false, ("a t x", ""), Same),
            ("a t x", "", "a t x", true, ("a t x", ""), Same),
            ("a t x", "", "b t x", true, ("a t x", "b t x"), NextIsNew),
            ("a t x", "", "a u x", true, ("a t x", "a u x"), NextIsNew),
            ("a t x", "", "a t y", true, ("a t x", "a t y"), NextIsNew),
            ("a t x", "", "b t x", false, ("b t x", ""), OwnIsNew),
            ("a t x", "b t x", "b t x", true, ("a t x", "b t x"), Same),
            (
                "a t x",
                "b t x",
                "c t x",
                true,
                ("a t x", "c t x"),
                NextIsNew,
            ),
            ("a t x", "b t x", "a t x", true, ("a t x", ""), NextIsGone),
            ("a t x", "b t x", "c t x", false, ("c t x", ""), OwnIsNew),
        ] {
            let before = callbacks(own, next);
            let mut after = before.clone();
            after.assign(owner(to).unwrap(), may_deliver);
            let what = format!("{own}, {next}, {to}");
            assert_eq!(after, callbacks(expected.0, expected.1), "{what}");
            assert_eq!(after.change_since(&before), change, "{what}");
        }
    }

    #[test]
    fn next_callback_replaces_the_own_one() {
        let before = callbacks("a t x", "b t x");
        let mut after = before.clone();
        after.replace();
        assert_eq!(after, callbacks("b t x", ""));
        assert_eq!(after.change_since(&before), CallbackChange::Replaced);
        let mut again = after.clone();
        again.replace();
        assert_eq!(again.change_since(&after), CallbackChange::Same);
    }
}
