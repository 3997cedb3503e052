//! The subscription to a node of a PubSub service (XEP-0060), and what the service sends.
//!
//! Invariants: only what the service itself has sent counts as of the node. A stanza counts as processed, to the server and to who
//! has sent it, once all of its documents are stored.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Interval;

use super::element::Element;
use super::error::XmppError;
use super::login::{Login, Resumption};
use super::names::{CLIENT, PING, PUBSUB, PUBSUB_EVENT, SM, STANZA_ERRORS};
use super::stream::{XmlStream, condition, escaped, shown, unexpected};

/// How often the server is asked whether it is there.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How many intervals may pass without a byte: one before the first ping, and two pings.
const MOST_SILENT: u32 = 3;
/// How many intervals a stanza may take.
const LONGEST_STANZA: u32 = 10;
/// How long a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
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
    /// The request for the newest items is answered: they came before.
    Answered,
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

/// What a session is resumed with whose connection was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeResumption(pub(super) Resumption);

/// What is to be done, in its order.
enum Pending {
    Event(NodeEvent),
    /// A stanza is processed: what is sent then.
    Stanza(Option<String>),
    /// The subscription has ended.
    Ended(String),
}

/// A session that is subscribed to a node. When it is dropped, the connection ends, and the subscription stays.
pub struct NodeSession {
    stream: XmlStream,
    name: NodeName,
    /// The full address of this session.
    own: String,
    managed: Option<Option<String>>,
    /// How many stanzas were processed.
    handled: u32,
    pending: VecDeque<Pending>,
    /// How many requests were sent.
    requests: u64,
    /// The request for the newest items that is not answered.
    newest_asked: Option<String>,
    ticks: Interval,
    silent: u32,
    in_stanza: u32,
    /// How many bytes had been received at the last tick.
    received: u64,
}

impl NodeSession {
    /// Subscribes to a node, unless the session goes on that is subscribed already, and asks for the newest items.
    pub(super) async fn begin(
        login: Login,
        name: NodeName,
        handled: u32,
        newest: u32,
    ) -> Result<Self, XmppError> {
        let is_resumed = login.is_resumed;
        let mut session = Self::over(login, name);
        if is_resumed {
            session.handled = handled;
        } else {
            session.subscribe().await?;
            if newest > 0 {
                let asked = session.ask_for_items(&format!(" max_items='{newest}'"), "")?;
                session.newest_asked = Some(asked);
                session.stream.flush().await?;
            }
        }
        Ok(session)
    }

    /// A session that is not subscribed.
    pub(super) fn over(login: Login, name: NodeName) -> Self {
        let mut ticks = tokio::time::interval(PING_INTERVAL);
        ticks.reset();
        Self {
            stream: login.stream,
            name,
            own: login.own,
            managed: login.managed,
            handled: 0,
            pending: VecDeque::new(),
            requests: 0,
            newest_asked: None,
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
        loop {
            match self.pending.front() {
                Some(Pending::Event(NodeEvent::Foreign(_) | NodeEvent::Answered)) => {
                    if let Some(Pending::Event(event)) = self.pending.pop_front() {
                        return Ok(event);
                    }
                }
                Some(Pending::Event(event)) => return Ok(event.clone()),
                Some(Pending::Ended(why)) => return Err(XmppError::Refused(why.clone())),
                Some(Pending::Stanza(_)) => self.conclude()?,
                None => {
                    let element = tokio::select! {
                        element = self.stream.read() => Some(element?),
                        _ = self.ticks.tick() => None,
                    };
                    match element {
                        Some(element) => {
                            self.in_stanza = 0;
                            self.take(element)?;
                        }
                        None => self.tick()?,
                    }
                }
            }
        }
    }

    /// The item that [`next`](Self::next) has returned is on disk.
    pub fn stored(&mut self) {
        if matches!(self.pending.front(), Some(Pending::Event(_))) {
            self.pending.pop_front();
        }
    }

    /// Whether the newest items were asked for and have not come.
    #[must_use]
    pub fn awaits_newest(&self) -> bool {
        self.newest_asked.is_some()
    }

    /// What the session is resumed with after its connection is lost, if the server allows that.
    #[must_use]
    pub fn resumption(&self) -> Option<NodeResumption> {
        let id = self.managed.clone().flatten()?;
        Some(NodeResumption(Resumption {
            id,
            handled: self.handled,
            own: self.own.clone(),
        }))
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
            self.request(&form).await?;
            self.stream.send("</stream:stream>")?;
            self.stream.flush().await
        };
        match tokio::time::timeout(ENDING_TIME, ending).await {
            Ok(Err(XmppError::Refused(text))) if is_gone(&text) => Ok(()),
            Ok(ended) => ended,
            Err(_) => Err(XmppError::Refused("no answer".to_owned())),
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
        let answering = tokio::time::timeout(PATIENCE, self.request(&form));
        let answer = match answering.await {
            Ok(answer) => answer?,
            Err(_) => return Err(XmppError::Refused("no answer".to_owned())),
        };
        let subscription = answer.child(PUBSUB, "pubsub");
        let subscription = subscription.and_then(|it| it.child(PUBSUB, "subscription"));
        match subscription.and_then(|it| it.attribute("subscription")) {
            None | Some("subscribed") => Ok(()),
            Some(other) => Err(XmppError::Refused(shown(&format!("it is {other:?}")))),
        }
    }

    /// Sends a request to the service and waits for the answer.
    async fn request(&mut self, form: &str) -> Result<Element, XmppError> {
        let id = self.send_request("set", &format!("<pubsub xmlns='{PUBSUB}'>{form}</pubsub>"))?;
        loop {
            let element = self.stream.read().await?;
            let is_answer = element.is(CLIENT, "iq")
                && element.attribute("id") == Some(&id)
                && matches!(element.attribute("type"), Some("result" | "error"))
                && self.is_of_service(&element);
            if !is_answer {
                self.take(element)?;
                if self.pending.len() > MOST_WAITING {
                    let text = "the service answers nothing, and sends other things".to_owned();
                    return Err(XmppError::Protocol(text));
                }
                continue;
            }
            self.pending.push_back(Pending::Stanza(None));
            return match element.child(CLIENT, "error") {
                Some(error) => Err(XmppError::Refused(condition(error, STANZA_ERRORS))),
                None if element.attribute("type") == Some("error") => {
                    Err(XmppError::Refused("undefined-condition".to_owned()))
                }
                None => Ok(element),
            };
        }
    }

    fn send_request(&mut self, kind: &str, content: &str) -> Result<String, XmppError> {
        self.requests += 1;
        let (id, to) = (format!("r{}", self.requests), escaped(&self.name.service));
        self.stream.send(&format!(
            "<iq type='{kind}' id='{id}' to='{to}'>{content}</iq>"
        ))?;
        Ok(id)
    }

    /// Asks for items of the node. They come as an event does.
    fn ask_for_items(&mut self, attributes: &str, items: &str) -> Result<String, XmppError> {
        let node = escaped(&self.name.node);
        let form = format!(
            "<pubsub xmlns='{PUBSUB}'><items node='{node}'{attributes}>{items}</items></pubsub>"
        );
        self.send_request("get", &form)
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

    /// Takes an element that the server has sent.
    fn take(&mut self, element: Element) -> Result<(), XmppError> {
        match (element.namespace.as_str(), element.name.as_str()) {
            (SM, "r") => return self.acknowledge(),
            (SM, _) => return Ok(()),
            (CLIENT, "message") => self.take_message(&element)?,
            // Example 5.5 of the draft has the namespace of PubSub.
            (CLIENT | PUBSUB, "iq") => return self.take_iq(&element),
            (CLIENT, "presence") => {}
            _ => return Err(unexpected(&element)),
        }
        self.pending.push_back(Pending::Stanza(None));
        Ok(())
    }

    fn take_message(&mut self, message: &Element) -> Result<(), XmppError> {
        let Some(event) = message.child(PUBSUB_EVENT, "event") else {
            return Ok(());
        };
        if message.attribute("type") == Some("error") {
            return Ok(());
        }
        if !self.is_of_service(message) {
            self.note_foreign(message);
            return Ok(());
        }
        for child in &event.children {
            if child.namespace != PUBSUB_EVENT || child.attribute("node") != Some(&self.name.node) {
                continue;
            }
            match child.name.as_str() {
                "items" => self.take_items(child, false)?,
                "delete" => self.end("the node is deleted"),
                "subscription" if child.attribute("subscription") == Some("none") => {
                    self.end("it has ended the subscription");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_iq(&mut self, iq: &Element) -> Result<(), XmppError> {
        let kind = iq.attribute("type");
        let pubsub = iq.child(PUBSUB, "pubsub");
        if matches!(kind, Some("result" | "error")) {
            let items = pubsub.and_then(|it| it.child(PUBSUB, "items"));
            let is_own = self.is_of_service(iq);
            let of_newest = |asked: &mut String| is_own && iq.attribute("id") == Some(asked);
            let is_newest = self.newest_asked.take_if(of_newest).is_some();
            if let Some(items) = items
                && kind == Some("result")
                && is_own
                && items.attribute("node") == Some(&self.name.node)
            {
                self.take_items(items, is_newest)?;
            }
            if is_newest {
                self.pending.push_back(Pending::Event(NodeEvent::Answered));
            }
            self.pending.push_back(Pending::Stanza(None));
            return Ok(());
        }
        let published = pubsub.and_then(|it| it.child(PUBSUB, "publish"));
        let is_own = self.is_of_service(iq);
        let answer = match published {
            Some(items) if is_own && items.attribute("node") == Some(&self.name.node) => {
                self.take_items(items, false)?;
                answer_to(iq, "result", "")
            }
            published => {
                if published.is_some() && !is_own {
                    self.note_foreign(iq);
                }
                let error = format!(
                    "<error type='cancel'><service-unavailable xmlns='{STANZA_ERRORS}'/></error>"
                );
                answer_to(iq, "error", &error)
            }
        };
        self.pending.push_back(Pending::Stanza(Some(answer)));
        Ok(())
    }

    fn take_items(&mut self, items: &Element, is_answer: bool) -> Result<(), XmppError> {
        for item in items.children.iter().filter(|it| it.name == "item") {
            let id = item.attribute("id").unwrap_or_default().to_owned();
            match &item.document {
                Some(document) => {
                    let document = document.clone();
                    let event = NodeEvent::Item(NodeItem {
                        id,
                        document,
                        is_answer,
                    });
                    self.pending.push_back(Pending::Event(event));
                }
                // The service sends the documents only on request.
                None if items.namespace == PUBSUB_EVENT => {
                    let item = format!("<item id='{}'/>", escaped(&id));
                    let _ = self.ask_for_items("", &item)?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn note_foreign(&mut self, stanza: &Element) {
        let from = shown(stanza.attribute("from").unwrap_or_default());
        self.pending
            .push_back(Pending::Event(NodeEvent::Foreign(from)));
    }

    fn end(&mut self, why: &str) {
        self.pending.push_back(Pending::Ended(why.to_owned()));
    }

    /// Whether the service itself has sent a stanza.
    fn is_of_service(&self, stanza: &Element) -> bool {
        let from = stanza.attribute("from").unwrap_or_default();
        from.eq_ignore_ascii_case(&self.name.service)
    }

    /// A stanza is processed.
    fn conclude(&mut self) -> Result<(), XmppError> {
        if let Some(Pending::Stanza(answer)) = self.pending.pop_front() {
            self.handled = self.handled.wrapping_add(1);
            if let Some(answer) = answer {
                self.stream.send(&answer)?;
            }
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Tells the server how many stanzas are processed.
    fn acknowledge(&mut self) -> Result<(), XmppError> {
        match self.managed {
            None => Ok(()),
            Some(_) => self
                .stream
                .send(&format!("<a xmlns='{SM}' h='{}'/>", self.handled)),
        }
    }
}

/// Whether a service says that there is no subscription.
fn is_gone(text: &str) -> bool {
    let conditions = ["item-not-found", "unexpected-request", "gone"];
    conditions
        .iter()
        .any(|condition| text.starts_with(condition))
}

fn answer_to(iq: &Element, kind: &str, content: &str) -> String {
    let id = escaped(iq.attribute("id").unwrap_or_default());
    let to = iq
        .attribute("from")
        .map(|from| format!(" to='{}'", escaped(from)));
    format!(
        "<iq type='{kind}' id='{id}'{}>{content}</iq>",
        to.unwrap_or_default()
    )
}
