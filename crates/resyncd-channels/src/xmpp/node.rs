//! The subscription to a node of a PubSub service (XEP-0060), and what the service sends.
//!
//! Invariants: only what the service itself has sent counts as of the node. A stanza counts as processed, to the server and to who
//! has sent it, once all of its documents are stored; a document that it leaves out is asked for, over a resumption if need be.
//! An item that is not accepted is reported and counts as processed: it would only come again.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Interval, MissedTickBehavior};

use super::element::StanzaElement;
use super::error::XmppError;
use super::login::{Login, Management};
use super::names::{CLIENT, PING, PUBSUB, PUBSUB_EVENT, SM, STANZA_ERRORS};
use super::stream::{XmlStream, condition, escaped, shown, unexpected};
use super::wanted::{ItemQuery, WantedItems};

/// How often the server is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How many intervals may pass without a byte: one before the first ping, and two pings.
const MOST_SILENT: u32 = 3;
/// How many intervals a stanza may take.
const LONGEST_STANZA: u32 = 10;
/// How long a service may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the end of a subscription may take.
const ENDING_TIME: Duration = Duration::from_secs(10);
/// How many documents may wait while the service answers.
const MOST_WAITING: usize = 10_000;

/// A node, and the service that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeName {
    /// The address of the service, in lower case.
    pub(super) service: String,
    pub(super) node: String,
}

/// What a service has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// An item. It is to be passed to [`NodeSession::stored`] once it is on disk.
    Item(NodeItem),
    /// Somebody else has sent something as if it was an item of a node: the address.
    Foreign(String),
    /// An item, or a whole stanza of the service, is not accepted.
    Rejected(XmppError),
    /// The request for the newest items is answered: they came before.
    Answered,
    /// The service does not send the newest items: why.
    Refused(String),
    /// The service has announced something that it does not send: why.
    Missing(String),
}

/// An item of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeItem {
    /// What distinguishes it from the others of the node.
    pub id: String,
    /// The document that it consists of.
    pub document: Bytes,
    /// Whether it is one of the newest items that were asked for: it may have come before.
    pub is_answer: bool,
}

/// What a session is resumed with whose connection was lost (XEP-0198, section 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResumption {
    /// The name that the server gave it.
    pub(super) id: String,
    /// How many stanzas were processed.
    pub(super) handled: u32,
    /// The full address.
    pub(super) own: String,
    /// What the service was asked for and has not answered.
    wanted: Vec<ItemQuery>,
    /// How many requests were sent: an answer to one of them may still come.
    requests: u64,
}

/// What is to be done, in its order.
enum PendingStep {
    Event(NodeEvent),
    /// A stanza is processed.
    Stanza {
        /// What is sent then.
        answer: Option<String>,
        /// Whether the server counts it.
        is_counted: bool,
    },
    /// The subscription has ended.
    Ended(String),
}

/// A session that is subscribed to a node. When it is dropped, the connection ends, and the subscription stays.
pub struct NodeSession {
    stream: XmlStream,
    name: NodeName,
    /// The full address of this session.
    own: String,
    management: Management,
    /// How many stanzas were processed.
    handled: u32,
    /// Whether the server must be sent an acknowledgement.
    is_unacknowledged: bool,
    pending: VecDeque<PendingStep>,
    /// Whether something in the stanza that is taken was not accepted.
    has_rejected: bool,
    wanted: WantedItems,
    /// How many requests were sent.
    requests: u64,
    /// Whether the session can be resumed if it has ended.
    can_resume: bool,
    ticks: Interval,
    silent: u32,
    in_stanza: u32,
    /// How many bytes had been received at the last tick.
    received: u64,
}

impl NodeSession {
    /// Subscribes to a node, unless the session goes on that is subscribed already, and asks for the newest items. `resumption`: what
    /// was to be resumed, which may have failed.
    pub(super) async fn begin(
        mut login: Login,
        name: NodeName,
        resumption: Option<NodeResumption>,
        newest: u32,
    ) -> Result<Self, XmppError> {
        let (is_resumed, early) = (login.is_resumed, std::mem::take(&mut login.early));
        let mut session = Self::over(login, name);
        for element in early {
            session.take(&element, false)?;
        }
        let mut unanswered = Vec::new();
        if let Some(known) = resumption {
            unanswered = known.wanted;
            if is_resumed {
                session.handled = known.handled;
                session.requests = known.requests;
            } else {
                unanswered.retain(|wanted| matches!(wanted, ItemQuery::Item(_)));
            }
        }
        if !is_resumed {
            session.subscribe().await?;
            if newest > 0 {
                session.want(ItemQuery::Newest(newest));
            }
        }
        for wanted in unanswered {
            session.want(wanted);
        }
        session.ask()?;
        session.stream.flush().await?;
        Ok(session)
    }

    /// A session that is not subscribed.
    pub(super) fn over(login: Login, name: NodeName) -> Self {
        let mut ticks = tokio::time::interval(PING_INTERVAL);
        ticks.reset();
        // Nobody waits here while an item is stored: that says nothing of the server.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            stream: login.stream,
            name,
            own: login.own,
            management: login.management,
            handled: 0,
            is_unacknowledged: false,
            pending: VecDeque::new(),
            has_rejected: false,
            wanted: WantedItems::default(),
            requests: 0,
            can_resume: true,
            ticks,
            silent: 0,
            in_stanza: 0,
            received: 0,
        }
    }

    /// Waits for what the service sends next. The server is sent pings meanwhile. It may be dropped while it waits.
    ///
    /// # Errors
    /// [`XmppError`]: the session has ended.
    pub async fn next(&mut self) -> Result<NodeEvent, XmppError> {
        let next = self.wait().await.map_err(XmppError::in_session);
        if let Err(error) = &next {
            // Whatever else has ended it would come again.
            self.can_resume = error.is_of_connection();
        }
        next
    }

    async fn wait(&mut self) -> Result<NodeEvent, XmppError> {
        loop {
            match self.pending.front() {
                Some(PendingStep::Event(item @ NodeEvent::Item(_))) => return Ok(item.clone()),
                Some(PendingStep::Event(_)) => {
                    if let Some(PendingStep::Event(event)) = self.pending.pop_front() {
                        return Ok(event);
                    }
                }
                Some(PendingStep::Ended(why)) => return Err(XmppError::Refused(why.clone())),
                Some(PendingStep::Stanza { answer, is_counted }) => {
                    if let Some(answer) = answer {
                        self.stream.offer(answer);
                    }
                    if *is_counted {
                        self.handled = self.handled.wrapping_add(1);
                        self.is_unacknowledged = true;
                    }
                    self.pending.pop_front();
                }
                None => {
                    // Once for all that came before an answer.
                    if self.is_unacknowledged {
                        self.acknowledge()?;
                    }
                    // While something is there to be read, nothing is waited for.
                    tokio::select! {
                        biased;
                        element = self.stream.read() => {
                            self.in_stanza = 0;
                            self.take(&element?, true)?;
                        }
                        _ = self.ticks.tick() => self.tick()?,
                    }
                }
            }
        }
    }

    /// The item that [`next`](Self::next) has returned is on disk.
    pub fn stored(&mut self) {
        if matches!(self.pending.front(), Some(PendingStep::Event(_))) {
            self.pending.pop_front();
        }
    }

    /// Whether the newest items were asked for and have not come.
    #[must_use]
    pub fn awaits_newest(&self) -> bool {
        self.wanted.has_newest()
    }

    /// The items that were asked for and have not come. Whatever else than its connection has ended the session may have been the one
    /// that is asked for: it is not one of them.
    #[must_use]
    pub fn unanswered(&self) -> Vec<String> {
        let asked = usize::from(!self.can_resume && self.wanted.is_asked());
        let unanswered = self.wanted.unanswered().into_iter().skip(asked);
        let items = unanswered.filter_map(|wanted| match wanted {
            ItemQuery::Item(id) => Some(id),
            ItemQuery::Newest(_) => None,
        });
        items.collect()
    }

    /// Asks for these items.
    pub(super) fn ask_for(&mut self, items: &[String]) -> Result<(), XmppError> {
        for id in items {
            self.want(ItemQuery::Item(id.clone()));
        }
        self.ask()
    }

    /// What the session is resumed with, if the server allows that, and nothing but its connection has failed.
    #[must_use]
    pub fn resumption(&self) -> Option<NodeResumption> {
        let Management::Resumable(id) = &self.management else {
            return None;
        };
        self.can_resume.then(|| NodeResumption {
            id: id.clone(),
            handled: self.handled,
            own: self.own.clone(),
            wanted: self.wanted.unanswered(),
            requests: self.requests,
        })
    }

    /// Ends the subscription and the session.
    ///
    /// # Errors
    /// [`XmppError`] if the service does not confirm it.
    pub async fn unsubscribe(self) -> Result<(), XmppError> {
        let own = self.own.clone();
        self.end_subscription_of(&own).await
    }

    /// Ends the subscription of a session of the same account, and this session.
    pub(super) async fn end_subscription_of(mut self, own: &str) -> Result<(), XmppError> {
        let (node, own) = (escaped(&self.name.node), escaped(own));
        let form = format!("<unsubscribe node='{node}' jid='{own}'/>");
        let ending = async {
            self.request(&form, false).await?;
            self.stream.send("</stream:stream>")?;
            self.stream.flush().await
        };
        match tokio::time::timeout(ENDING_TIME, ending).await {
            Ok(Err(XmppError::Refused(text))) if is_gone(&text) => Ok(()),
            Ok(ended) => ended,
            Err(_) => Err(XmppError::NoAnswer),
        }
    }

    /// The full address that this session would have with another resource.
    pub(super) fn own_with(&self, resource: &str) -> String {
        let bare = self.own.split('/').next().unwrap_or_default();
        format!("{bare}/{resource}")
    }

    async fn subscribe(&mut self) -> Result<(), XmppError> {
        let (node, own) = (escaped(&self.name.node), escaped(&self.own));
        let form = format!("<subscribe node='{node}' jid='{own}'/>");
        let answering = tokio::time::timeout(ANSWER_TIMEOUT, self.request(&form, true));
        let answer = answering.await.map_err(|_| XmppError::NoAnswer)??;
        let subscription = answer.child(PUBSUB, "pubsub");
        let subscription = subscription.and_then(|it| it.child(PUBSUB, "subscription"));
        match subscription.and_then(|it| it.attribute("subscription")) {
            None | Some("subscribed") => Ok(()),
            Some(other) => Err(XmppError::Refused(shown(&format!("it is {other:?}")))),
        }
    }

    /// Sends a request to the service and waits for the answer. `is_used`: whether stanzas that arrive meanwhile are processed.
    async fn request(&mut self, form: &str, is_used: bool) -> Result<StanzaElement, XmppError> {
        let begun = self.stream.received();
        let id = self.send_request("set", form)?;
        loop {
            let element = self.stream.read().await;
            let element = element.map_err(XmppError::in_session)?;
            let is_answer = element.is(CLIENT, "iq")
                && element.attribute("id") == Some(&id)
                && matches!(element.attribute("type"), Some("result" | "error"))
                && element.is_from(&self.name.service);
            if is_answer {
                self.processed(&element, true, None);
                return match element.child(CLIENT, "error") {
                    Some(error) => Err(XmppError::Refused(condition(error, STANZA_ERRORS))),
                    None if element.attribute("type") == Some("error") => {
                        Err(XmppError::Refused("undefined-condition".to_owned()))
                    }
                    None => Ok(element),
                };
            }
            if is_used {
                self.take(&element, true)?;
                self.stream.check_received_since(begun)?;
                if self.pending.len() > MOST_WAITING {
                    let text = "the PubSub service sends other stanzas in place of an answer";
                    return Err(XmppError::Protocol(text.to_owned()));
                }
            }
        }
    }

    fn send_request(&mut self, kind: &str, form: &str) -> Result<String, XmppError> {
        self.requests += 1;
        let (id, to) = (format!("r{}", self.requests), escaped(&self.name.service));
        self.stream.send(&format!(
            "<iq type='{kind}' id='{id}' to='{to}'><pubsub xmlns='{PUBSUB}'>{form}</pubsub></iq>"
        ))?;
        Ok(id)
    }

    /// Notes what is to be asked for.
    fn want(&mut self, wanted: ItemQuery) {
        if !self.wanted.add(wanted) {
            let text = "too many items without a document, or an item id too long to request";
            self.reject(XmppError::Item(text.to_owned()));
        }
    }

    /// Asks for what is wanted, once the service has answered what it was asked before. Items come as those of an event do.
    fn ask(&mut self) -> Result<(), XmppError> {
        let id = format!("r{}", self.requests + 1);
        if let Some(form) = self.wanted.ask(&id, &self.name.node) {
            self.send_request("get", &form)?;
        }
        Ok(())
    }

    /// Asks whether the server is there; ends a session whose server is gone, or never ends a stanza.
    fn tick(&mut self) -> Result<(), XmppError> {
        let received = self.stream.received();
        self.in_stanza = if self.stream.is_in_stanza() {
            self.in_stanza + 1
        } else {
            0
        };
        if self.in_stanza > LONGEST_STANZA {
            return Err(XmppError::Endless);
        }
        // What is incomplete may be the answer.
        if self.in_stanza == 0 && !self.wanted.wait() {
            return Err(XmppError::NoAnswer);
        }
        if std::mem::replace(&mut self.received, received) != received {
            self.silent = 0;
            return Ok(());
        }
        self.silent += 1;
        if self.silent >= MOST_SILENT {
            return Err(XmppError::Unanswered);
        }
        self.requests += 1;
        let id = self.requests;
        self.stream.send(&format!(
            "<iq type='get' id='p{id}'><ping xmlns='{PING}'/></iq>"
        ))
    }

    /// Takes an element that the server has sent. `is_counted`: whether the server counts stanzas by now.
    fn take(&mut self, element: &StanzaElement, is_counted: bool) -> Result<(), XmppError> {
        if let Some(fault) = &element.fault
            && element.is_from(&self.name.service)
        {
            self.reject(fault.clone());
        }
        let answer = match (element.namespace.as_str(), element.name.as_str()) {
            (SM, "r") => return self.acknowledge(),
            (SM, _) => return Ok(()),
            (CLIENT, "message") => {
                self.take_message(element)?;
                None
            }
            // Example 5.5 of the draft has the namespace of PubSub.
            (CLIENT | PUBSUB, "iq") => self.take_iq(element)?,
            (CLIENT, "presence") => None,
            _ => return Err(unexpected(element)),
        };
        self.processed(element, is_counted, answer);
        Ok(())
    }

    /// All that a stanza consists of is taken.
    fn processed(&mut self, stanza: &StanzaElement, is_counted: bool, answer: Option<String>) {
        self.has_rejected = false;
        self.pending.push_back(PendingStep::Stanza {
            answer,
            // XEP-0198 counts what RFC 6120 calls a stanza.
            is_counted: is_counted && stanza.namespace.as_str() == CLIENT,
        });
    }

    fn take_message(&mut self, message: &StanzaElement) -> Result<(), XmppError> {
        let event = message.child(PUBSUB_EVENT, "event");
        let Some(event) = event.filter(|_| message.attribute("type") != Some("error")) else {
            return Ok(());
        };
        if !message.is_from(&self.name.service) {
            self.note_foreign(message);
            return Ok(());
        }
        for child in &event.children {
            if child.namespace.as_str() != PUBSUB_EVENT
                || child.attribute("node") != Some(&self.name.node)
            {
                continue;
            }
            match child.name.as_str() {
                "items" if child.children.is_empty() && message.fault.is_none() => {
                    self.miss("the service announces a change without an item");
                }
                "items" => self.take_items(child, false)?,
                "delete" => self.end("the node was deleted"),
                "subscription" if child.attribute("subscription") == Some("none") => {
                    self.end("subscription='none' received");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Processes a request, or an answer. Returns what is sent once it is processed.
    fn take_iq(&mut self, iq: &StanzaElement) -> Result<Option<String>, XmppError> {
        let is_own = iq.is_from(&self.name.service);
        let pubsub = iq.child(PUBSUB, "pubsub");
        if let Some("result" | "error") = iq.attribute("type") {
            if is_own {
                self.take_answer(iq, pubsub)?;
            }
            return Ok(None);
        }
        let published = pubsub.and_then(|it| it.child(PUBSUB, "publish"));
        match published {
            Some(items) if is_own && items.attribute("node") == Some(&self.name.node) => {
                self.take_items(items, false)?;
                return Ok(Some(answer_to(iq, "result", "")));
            }
            Some(_) if !is_own => self.note_foreign(iq),
            _ => {}
        }
        let error =
            format!("<error type='cancel'><service-unavailable xmlns='{STANZA_ERRORS}'/></error>");
        Ok(Some(answer_to(iq, "error", &error)))
    }

    /// Processes what the service answers when it is asked for items.
    fn take_answer(
        &mut self,
        iq: &StanzaElement,
        pubsub: Option<&StanzaElement>,
    ) -> Result<(), XmppError> {
        let id = iq.attribute("id").unwrap_or_default();
        let answered = self.wanted.answered(id);
        let items = pubsub.and_then(|it| it.child(PUBSUB, "items"));
        let items = items.filter(|it| it.attribute("node") == Some(&self.name.node));
        let error = iq.child(CLIENT, "error");
        let error = error.map(|error| condition(error, STANZA_ERRORS));
        match (&answered, error, items) {
            // It may have been retracted meanwhile.
            (Some(ItemQuery::Item(_)), Some(error), _) if is_gone(&error) => {
                self.miss("an item that the service has announced is gone");
            }
            (Some(ItemQuery::Item(_)), Some(error), _) => {
                let text = format!("the service does not send it: {error}");
                self.reject(XmppError::Item(text));
            }
            (Some(ItemQuery::Item(_)), None, Some(items)) if has_document(items) => {
                self.take_items(items, false)?;
            }
            (Some(ItemQuery::Item(_)), None, _) => {
                self.miss("the service has no document of an item that it has announced");
            }
            (Some(ItemQuery::Newest(_)), Some(error), _) => self.note(NodeEvent::Refused(error)),
            (_, None, Some(items)) => self.take_items(items, true)?,
            _ => {}
        }
        if let Some(ItemQuery::Newest(_)) = answered {
            self.note(NodeEvent::Answered);
        }
        self.ask()
    }

    /// `is_answer`: they are the newest ones, which were asked for.
    fn take_items(&mut self, items: &StanzaElement, is_answer: bool) -> Result<(), XmppError> {
        for item in items.children.iter().filter(|it| it.is_item()) {
            let id = item.attribute("id").unwrap_or_default().to_owned();
            match item.document.clone() {
                Some(Ok(document)) => self.note(NodeEvent::Item(NodeItem {
                    id,
                    document,
                    is_answer,
                })),
                Some(Err(fault)) => self.reject(fault),
                // The service sends the documents only on request.
                None if items.namespace.as_str() == PUBSUB_EVENT => self.want(ItemQuery::Item(id)),
                None => {}
            }
        }
        self.ask()
    }

    /// Something was announced that does not come.
    fn miss(&mut self, why: &str) {
        self.note(NodeEvent::Missing(why.to_owned()));
    }

    fn note_foreign(&mut self, stanza: &StanzaElement) {
        let from = shown(stanza.attribute("from").unwrap_or_default());
        self.note(NodeEvent::Foreign(from));
    }

    /// Something in a stanza is not accepted. That counts once, however many of its items are concerned.
    fn reject(&mut self, error: XmppError) {
        if !std::mem::replace(&mut self.has_rejected, true) {
            self.note(NodeEvent::Rejected(error));
        }
    }

    fn note(&mut self, event: NodeEvent) {
        self.pending.push_back(PendingStep::Event(event));
    }

    fn end(&mut self, why: &str) {
        self.pending.push_back(PendingStep::Ended(why.to_owned()));
    }

    /// Acknowledges the stanzas that are processed.
    fn acknowledge(&mut self) -> Result<(), XmppError> {
        self.is_unacknowledged = false;
        if matches!(self.management, Management::Off) {
            return Ok(());
        }
        let answer = format!("<a xmlns='{SM}' h='{}'/>", self.handled);
        self.stream.send(&answer)
    }
}

/// Whether one of these items has a document, accepted or not.
fn has_document(items: &StanzaElement) -> bool {
    let mut items = items.children.iter();
    items.any(|item| item.is_item() && item.document.is_some())
}

/// Whether a service says that there is no subscription.
fn is_gone(text: &str) -> bool {
    let mut conditions = ["item-not-found", "unexpected-request", "gone"].iter();
    conditions.any(|condition| text.starts_with(condition))
}

fn answer_to(iq: &StanzaElement, kind: &str, content: &str) -> String {
    let id = escaped(iq.attribute("id").unwrap_or_default());
    let from = iq.attribute("from");
    let to = from.map_or_else(String::new, |from| format!(" to='{}'", escaped(from)));
    format!("<iq type='{kind}' id='{id}'{to}>{content}</iq>")
}
