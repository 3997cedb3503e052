//! XMPP PubSub: a service sends items to a session that is subscribed to the node of the Source (version 0.1, section 5.2.1).
//!
//! The subscription outlives connections: it is ended when the channel is left, and until the service has confirmed that. A session
//! whose connection is lost is resumed, or else the newest items are asked for. Only among these an item that came before is skipped:
//! whatever else comes is new, also if it states the same again. A resumed session repeats nothing that was stored.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use bytes::Bytes;
use resyncd_channels::{
    NodeEvent, NodeItem, NodeMemory, NodeSession, SessionPermit, Transports, XmppError,
};

use super::connection::{Connection, ConnectionFailure, Connector};
use super::context::ChannelContext;
use crate::clock;
use crate::store::{CallbackSlot, ChannelRecord};

/// How many of the newest items are asked for.
const NEWEST: u32 = 50;
/// A session that has lasted so long has worked.
const LASTING: Duration = Duration::from_secs(60);
/// How many items are remembered.
const MOST_REMEMBERED: usize = 1000;
/// How often somebody else is reported who sends something to a session, then once a minute: anybody can.
const MOST_FOREIGN: u32 = 10;
/// How often the resumption of a session is tried while the server does not answer.
const MOST_RESUMPTIONS: u32 = 5;
/// How many letters of a token name a session.
const NAME_LENGTH: usize = 16;

/// Opens the sessions of a channel.
pub(super) struct Nodes {
    memory: NodeMemory,
    /// How often a resumption of the same session has failed.
    resumptions: u32,
    seen: SeenItems,
}

impl Nodes {
    pub(super) fn of(channel: &ChannelRecord, longest_message: u64) -> Self {
        let token = channel.keys(CallbackSlot::Own).token;
        // Nobody calls back at this token.
        let name: String = token.chars().take(NAME_LENGTH).collect();
        Self {
            memory: NodeMemory {
                resource: format!("resyncd-{name}"),
                limit: longest_message,
                newest: NEWEST,
                resumption: None,
                unanswered: Vec::new(),
            },
            resumptions: 0,
            seen: SeenItems::default(),
        }
    }

    /// Ends the subscription: one attempt.
    pub(super) async fn unsubscribe(
        &self,
        transports: &Transports,
        channel: &ChannelRecord,
    ) -> Result<(), XmppError> {
        let resource = &self.memory.resource;
        match transports.leave_node(&channel.topic, resource).await {
            // Nothing is subscribed to without a node, or without an account. One that was taken out of the configuration may come back:
            // until then the service delivers to it.
            Err(XmppError::NoNode) => Ok(()),
            Err(XmppError::NoAccount) if channel.begun == 0 => Ok(()),
            ended => ended,
        }
    }
}

/// A session, and what it shares with those before it.
pub(super) struct OpenNode {
    session: NodeSession,
    opened_at: Instant,
    /// Whether the answer to the request for the newest items is what has ended it.
    was_asked_for: bool,
    seen: SeenItems,
    repetition: Repetition,
    /// Why something may be missing that is not asked for; it is reported first.
    gap: Option<&'static str>,
    /// How often somebody else who has sent something was reported, and when last.
    foreign: u32,
    foreign_at: Instant,
    _permit: SessionPermit,
}

impl Connector for Nodes {
    type Open = OpenNode;

    async fn open(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> Result<OpenNode, ConnectionFailure> {
        let opening = context
            .transports
            .open_node(&channel.topic, &mut self.memory);
        let opened = opening.await;
        self.resumptions = match opened {
            Err(_) if self.resumptions + 1 < MOST_RESUMPTIONS => self.resumptions + 1,
            _ => 0,
        };
        if self.resumptions == 0 {
            self.memory.resumption = None;
        }
        let (session, is_resumed, permit) = opened?;
        tracing::info!(source = context.source, topic = %channel.topic, is_resumed, "subscribed to the node");
        let seen = std::mem::take(&mut self.seen);
        let repetition = Repetition::new(&seen);
        let asks_for_none = !is_resumed && self.memory.newest == 0;
        let now = clock::now().mono;
        Ok(OpenNode {
            session,
            opened_at: now,
            was_asked_for: false,
            gap: (asks_for_none && repetition.has_seen)
                .then_some("the newest items are not asked for: they are too long"),
            repetition,
            seen,
            foreign: 0,
            foreign_at: now,
            _permit: permit,
        })
    }

    async fn close(&mut self, open: OpenNode, is_left: bool) -> bool {
        self.seen = open.seen;
        is_left && open.session.unsubscribe().await.is_ok()
    }

    fn lose(&mut self, open: OpenNode, _: &ConnectionFailure) {
        let lasted = clock::now().mono.duration_since(open.opened_at);
        self.memory.newest = newest_after(self.memory.newest, open.was_asked_for, lasted);
        self.memory.resumption = open.session.resumption();
        self.memory.unanswered = open.session.unanswered();
        self.seen = open.seen;
    }

    async fn leave(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> Result<(), ConnectionFailure> {
        Ok(self.unsubscribe(&context.transports, channel).await?)
    }
}

/// How many of the newest items the next session asks for. `was_asked_for`: the answer to that has ended this one, and so it was too
/// long.
fn newest_after(newest: u32, was_asked_for: bool, lasted: Duration) -> u32 {
    if was_asked_for {
        newest / 2
    } else if lasted >= LASTING {
        NEWEST
    } else {
        newest
    }
}

impl OpenNode {
    /// The session has ended.
    fn failure(&mut self, error: XmppError) -> ConnectionFailure {
        self.was_asked_for = error.is_of_content() && self.session.awaits_newest();
        let is_of_message = error.is_of_message() && !self.was_asked_for;
        ConnectionFailure {
            is_of_message,
            ..error.into()
        }
    }

    /// Counts somebody else who sends something. `None`: it was reported often enough.
    fn foreign(&mut self, from: &str) -> Option<ConnectionFailure> {
        let now = clock::now().mono;
        if !is_reported(self.foreign, now.duration_since(self.foreign_at)) {
            return None;
        }
        self.foreign = self.foreign.saturating_add(1);
        self.foreign_at = now;
        Some(ConnectionFailure {
            is_of_message: true,
            ..note(
                "foreign-publisher",
                format!(
                    "{from:?} is not the PubSub service, and sends what looks like an item of it"
                ),
            )
        })
    }
}

/// Whether somebody else is reported who sends something, after so many reports, the last of which is so old. Where the service itself
/// has another address than the node, each causes a poll.
fn is_reported(reports: u32, age: Duration) -> bool {
    reports < MOST_FOREIGN || age >= LASTING
}

/// Items may be missing.
fn gap(why: &str) -> ConnectionFailure {
    note(
        "missed-items",
        format!("{why}: the poll finds what is missing"),
    )
}

/// What does not end the session.
fn note(code: &'static str, message: String) -> ConnectionFailure {
    ConnectionFailure {
        code,
        message,
        retry_after: None,
        is_of_message: false,
        ends: false,
    }
}

impl Connection for OpenNode {
    type Message = NodeItem;

    async fn next(&mut self) -> Result<NodeItem, ConnectionFailure> {
        if let Some(why) = self.gap.take() {
            return Err(gap(why));
        }
        loop {
            let event = match self.session.next().await {
                Ok(event) => event,
                Err(error) => return Err(self.failure(error)),
            };
            match event {
                NodeEvent::Item(item) if self.repetition.repeats(&self.seen, &item) => {
                    self.session.stored();
                }
                NodeEvent::Item(item) => return Ok(item),
                NodeEvent::Rejected(error) => {
                    return Err(ConnectionFailure {
                        ends: false,
                        is_of_message: true,
                        ..ConnectionFailure::from(error)
                    });
                }
                NodeEvent::Answered if self.repetition.is_incomplete() => {
                    let text = "none of the newest items of the node had come before: others may be missing, which the poll finds";
                    return Err(note("missed-items", text.to_owned()));
                }
                NodeEvent::Answered => {}
                NodeEvent::Refused(why) if self.repetition.has_seen => {
                    return Err(gap(&format!(
                        "the service does not send the newest items ({why})"
                    )));
                }
                // Nothing came before: the first poll finds all of it.
                NodeEvent::Refused(_) => {}
                NodeEvent::Missing(why) => return Err(gap(&why)),
                NodeEvent::Foreign(from) => {
                    if let Some(failure) = self.foreign(&from) {
                        return Err(failure);
                    }
                }
            }
        }
    }

    fn bytes(item: &NodeItem) -> &Bytes {
        &item.document
    }

    fn stored(&mut self, item: NodeItem) {
        self.seen.add(&item);
        self.session.stored();
    }
}

impl From<XmppError> for ConnectionFailure {
    fn from(error: XmppError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            retry_after: None,
            is_of_message: error.is_of_message(),
            ends: true,
        }
    }
}

/// Which items of a session may have come before.
#[derive(Debug)]
struct Repetition {
    /// Whether items came before this session.
    has_seen: bool,
    /// Whether one of the newest items is new, and whether one is known.
    has_new: bool,
    has_known: bool,
}

impl Repetition {
    fn new(seen: &SeenItems) -> Self {
        Self {
            has_seen: !seen.order.is_empty(),
            has_new: false,
            has_known: false,
        }
    }

    /// Whether an item that has come is one that came before.
    fn repeats(&mut self, seen: &SeenItems, item: &NodeItem) -> bool {
        if !item.is_answer {
            return false;
        }
        let is_known = seen.has(item);
        self.has_known |= is_known;
        self.has_new |= !is_known;
        is_known
    }

    /// Whether items may be missing between those that came before and the newest ones, which have all come.
    fn is_incomplete(&self) -> bool {
        self.has_seen && self.has_new && !self.has_known
    }
}

/// The items that came last. Where one may come again, one with the identifier and the content of an earlier one is the same; with
/// another content it is a new one.
#[derive(Default)]
struct SeenItems {
    hasher: RandomState,
    digests: HashMap<String, u64>,
    order: VecDeque<String>,
}

impl SeenItems {
    fn has(&self, item: &NodeItem) -> bool {
        let digest = self.hasher.hash_one(&item.document);
        self.digests.get(&item.id) == Some(&digest)
    }

    fn add(&mut self, item: &NodeItem) {
        let digest = self.hasher.hash_one(&item.document);
        if self.digests.insert(item.id.clone(), digest).is_none() {
            self.order.push_back(item.id.clone());
        }
        if self.order.len() > MOST_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, text: &str) -> NodeItem {
        NodeItem {
            id: id.to_owned(),
            document: Bytes::from(text.to_owned()),
            is_answer: false,
        }
    }

    fn answer(id: &str, text: &str) -> NodeItem {
        NodeItem {
            is_answer: true,
            ..item(id, text)
        }
    }

    #[test]
    fn somebody_else_who_sends_something_is_reported_again_after_a_while() {
        let (short, long) = (Duration::from_secs(3), LASTING);
        for (reports, age, expected) in [
            (0, short, true),
            (MOST_FOREIGN - 1, short, true),
            (MOST_FOREIGN, short, false),
            (MOST_FOREIGN, long, true),
            (u32::MAX, short, false),
        ] {
            assert_eq!(is_reported(reports, age), expected, "{reports} {age:?}");
        }
    }

    #[test]
    fn only_answers_repeat_anything() {
        let mut seen = SeenItems::default();
        seen.add(&item("1", "a"));
        let mut begun = Repetition::new(&seen);
        assert!(!begun.repeats(&seen, &item("1", "a")), "it states it again");
        assert!(begun.repeats(&seen, &answer("1", "a")));
        assert!(!begun.repeats(&seen, &answer("1", "b")));
        assert!(!begun.repeats(&seen, &answer("2", "a")));
    }

    #[test]
    fn newest_items_of_which_none_is_known_leave_a_gap() {
        let mut seen = SeenItems::default();
        for (is_first, answers, expected) in [
            (true, &["3", "4"][..], false),
            (false, &["3", "4"], true),
            (false, &["3", "1"], false),
            (false, &["1"], false),
            // The node retains nothing.
            (false, &[], false),
        ] {
            if !is_first {
                seen.add(&item("1", "a"));
            }
            let mut repetition = Repetition::new(&seen);
            for id in answers {
                repetition.repeats(&seen, &answer(id, "a"));
            }
            assert_eq!(
                repetition.is_incomplete(),
                expected,
                "{is_first} {answers:?}"
            );
        }
    }

    #[test]
    fn fewer_items_are_asked_for_after_too_long_an_answer_until_a_session_has_lasted() {
        let (short, long) = (Duration::from_secs(3), LASTING);
        let mut newest = NEWEST;
        for expected in [25, 12, 6, 3, 1, 0, 0] {
            newest = newest_after(newest, true, short);
            assert_eq!(newest, expected);
        }
        assert_eq!(newest_after(newest, false, short), 0);
        assert_eq!(newest_after(newest, false, long), NEWEST);
        assert_eq!(newest_after(12, true, long), 6);
    }

    #[test]
    fn items_are_distinguished_by_their_identifiers() {
        let mut seen = SeenItems::default();
        seen.add(&item("1", "a"));
        for (id, text, is_known) in [("1", "a", true), ("2", "a", false), ("1", "b", false)] {
            assert_eq!(seen.has(&item(id, text)), is_known, "{id} {text}");
        }
        for number in 2..=MOST_REMEMBERED + 1 {
            seen.add(&item(&number.to_string(), "a"));
        }
        assert!(!seen.has(&item("1", "a")));
        assert!(seen.has(&item("2", "a")));
        assert_eq!(seen.order.len(), seen.digests.len());
    }
}
