//! Drives a channel that is a connection which this Destination opens. Each transport of that kind has a file of its own, which opens
//! the connection and reads from it.
//!
//! Invariants:
//! - A message is in the inbox, on disk, before the next one is read. If the inbox is full, nothing is read until there is room.
//! - A connection that is lost is opened again, after a pause that the core decides; the poll after it finds what was missed.
//! - It ends as soon as the channel is not wanted any more.

use std::time::Duration;

use bytes::Bytes;
use resyncd_core::{Channel, ConnectionStep};
use tokio::sync::broadcast;

use super::context::ChannelContext;
use super::stored::{Ended, StoredChannel, result_of};
use super::waiting::wait;
use crate::clock;
use crate::engine::restarts::Panicked;
use crate::random::spread;
use crate::store::{CallbackSlot, ChannelRecord, Receipt, Recipient, Wake};

/// The code of a connection that waits for room in the inbox.
const INBOX_FULL: &str = "inbox-full";
/// What is logged of a fault that does not end the connection. It lasts until the next message is stored.
const GOES_ON: &str = "message rejected; the connection stays open";
/// What is logged of a connection that could not be opened, was lost, or could not be ended.
const UNUSABLE: &str = "connection unusable";

/// How the connections of a channel are opened.
pub(super) trait Connector: Send {
    /// One that is open.
    type Open: Connection;

    /// Opens one.
    fn open(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> impl Future<Output = Result<Self::Open, ConnectionFailure>> + Send;

    /// Ends one that is not wanted any more. `is_left`: the channel itself is not. Returns whether nothing is left to end then.
    fn close(&mut self, open: Self::Open, is_left: bool) -> impl Future<Output = bool> + Send;

    /// One is lost.
    fn lose(&mut self, open: Self::Open, failure: &ConnectionFailure);

    /// Ends what outlives connections, if anything does: the channel is left, and none is open. What fails is tried again.
    fn leave(
        &mut self,
        context: &ChannelContext,
        channel: &ChannelRecord,
    ) -> impl Future<Output = Result<(), ConnectionFailure>> + Send;
}

/// A connection that is open.
pub(super) trait Connection: Send {
    /// What keeps a message in memory.
    type Message: Send + Sync;

    /// Waits for the next message. After a failure that does not end it the connection goes on: what was received is not accepted, or
    /// something was missed.
    fn next(&mut self) -> impl Future<Output = Result<Self::Message, ConnectionFailure>> + Send;

    /// What a message consists of.
    fn bytes(message: &Self::Message) -> &Bytes;

    /// A message is on disk.
    fn stored(&mut self, message: Self::Message);
}

/// Why there is no connection, or why something that came over one is not accepted.
pub(super) struct ConnectionFailure {
    pub(super) code: &'static str,
    pub(super) message: String,
    /// The pause that the server asks for.
    pub(super) retry_after: Option<Duration>,
    /// Whether something was received that is not accepted.
    pub(super) is_of_message: bool,
    /// Whether the connection has ended.
    pub(super) ends: bool,
}

/// Keeps a channel connected until it is left. Fails if the store panics.
pub(super) async fn drive_to_end(
    context: &ChannelContext,
    channel: &ChannelRecord,
    mut connector: impl Connector,
) -> Result<(), Panicked> {
    let stored = StoredChannel { context, channel };
    result_of(Driver { stored }.drive(&mut connector).await)
}

struct Driver<'a> {
    stored: StoredChannel<'a>,
}

impl Driver<'_> {
    async fn drive(&self, connector: &mut impl Connector) -> Result<(), Ended> {
        let mut wakes = self.stored.context.store.wakes();
        let begun = clock::now().wall;
        self.stored
            .change(move |channel| channel.begin_connecting(begun))
            .await?;
        loop {
            let now = clock::now();
            let next = move |channel: &mut Channel| channel.next_connection_step(now.wall);
            match self.stored.change(next).await? {
                ConnectionStep::Open => self.connect(connector, &mut wakes).await?,
                ConnectionStep::WaitUntil(time) => {
                    wait(&mut wakes, self.stored.channel.id, time, now).await;
                }
                // There is none.
                ConnectionStep::Stay => {
                    self.stored
                        .change(move |channel| channel.begin_connecting(now.wall))
                        .await?;
                }
                ConnectionStep::Leave => self.leave(connector).await?,
                ConnectionStep::End => {
                    self.stored.context.clear(self.stored.channel);
                    return Ok(());
                }
            }
        }
    }

    /// Ends what outlives connections.
    async fn leave(&self, connector: &mut impl Connector) -> Result<(), Ended> {
        let StoredChannel { context, channel } = self.stored;
        let left = {
            let _work = context.asks(channel);
            connector.leave(context, channel).await
        };
        let Err(failure) = left else {
            return self.stored.change(Channel::ended).await;
        };
        let (now, spread) = (clock::now().wall, spread());
        self.stored
            .change(move |channel| channel.not_ended(now, spread))
            .await?;
        self.stored.report(failure.code, &failure.message, UNUSABLE);
        Ok(())
    }

    /// Opens the connection, and listens until it ends.
    async fn connect<C: Connector>(
        &self,
        connector: &mut C,
        wakes: &mut broadcast::Receiver<Wake>,
    ) -> Result<(), Ended> {
        let StoredChannel { context, channel } = self.stored;
        let opened = {
            let _work = context.asks(channel);
            connector.open(context, channel).await
        };
        match opened {
            Ok(open) => {
                self.stored.change(Channel::connected).await?;
                context.clear(channel);
                self.listen(connector, open, wakes).await?;
                let (now, spread) = (clock::now().wall, spread());
                self.stored
                    .change(move |channel| channel.disconnected(now, spread))
                    .await?;
            }
            Err(failure) => {
                self.stored.report(failure.code, &failure.message, UNUSABLE);
                let (now, spread) = (clock::now().wall, spread());
                self.stored
                    .change(move |channel| channel.unconnected(now, failure.retry_after, spread))
                    .await?;
            }
        }
        Ok(())
    }

    /// Stores what comes, until the connection ends, or is to end.
    async fn listen<C: Connector>(
        &self,
        connector: &mut C,
        mut open: C::Open,
        wakes: &mut broadcast::Receiver<Wake>,
    ) -> Result<(), Ended> {
        let mut has_fault = false;
        while !self.is_to_be_closed().await? {
            let received = {
                let mut next = std::pin::pin!(open.next());
                loop {
                    tokio::select! {
                        received = &mut next => break Some(received),
                        () = self.changed(wakes) => if self.is_to_be_closed().await? {
                            break None;
                        }
                    }
                }
            };
            match received {
                None => break,
                Some(Ok(message)) => {
                    if self.store(C::Open::bytes(&message), wakes).await? {
                        open.stored(message);
                        if std::mem::take(&mut has_fault) {
                            self.stored.context.clear(self.stored.channel);
                        }
                    }
                }
                Some(Err(failure)) => {
                    // Reported before it is counted, so that the status never shows a rejected message without its reason.
                    let event = if failure.ends { UNUSABLE } else { GOES_ON };
                    self.stored.report(failure.code, &failure.message, event);
                    if failure.is_of_message {
                        self.count_rejected().await;
                    } else if !failure.ends {
                        // Nothing is there to be rejected: it was missed.
                        let store = &self.stored.context.store;
                        store.report_missed_notification(self.stored.channel);
                    }
                    if failure.ends {
                        connector.lose(open, &failure);
                        return Ok(());
                    }
                    has_fault = true;
                }
            }
        }
        let is_left = self.stored.record().await?.channel().is_ending();
        if connector.close(open, is_left).await && is_left {
            self.stored.change(Channel::ended).await?;
        }
        Ok(())
    }

    /// Puts a message into the inbox. Returns when it is on disk: true; or when the channel is not wanted any more.
    async fn store(
        &self,
        message: &Bytes,
        wakes: &mut broadcast::Receiver<Wake>,
    ) -> Result<bool, Ended> {
        let StoredChannel { context, channel } = self.stored;
        let mut is_full = false;
        loop {
            let recipient = Recipient {
                channel: channel.id,
                keys: Some(channel.keys(CallbackSlot::Own)),
            };
            let (now, room) = (clock::now().wall, context.inbox_limit);
            let (store, bytes) = (&context.store, message.clone());
            let receiving = store.receive(now, recipient, bytes, room, None);
            match receiving.await {
                Ok(Receipt::Stored | Receipt::Known) => {
                    if is_full {
                        context.clear(channel);
                    }
                    return Ok(true);
                }
                Ok(Receipt::Full) => {
                    if !std::mem::replace(&mut is_full, true) {
                        let why = "the inbox is full; nothing is read meanwhile";
                        self.stored.report(INBOX_FULL, why, GOES_ON);
                    }
                    self.has_room(message.len() as u64, wakes).await?;
                }
                // It was left.
                Ok(Receipt::Outdated) => return Ok(false),
                Err(error) => self.stored.rest_after(error).await?,
            }
        }
    }

    /// Waits until the stored channel may have changed.
    async fn changed(&self, wakes: &mut broadcast::Receiver<Wake>) {
        let id = self.stored.channel.id;
        let is_of_channel = |wake: &Wake| matches!(wake, Wake::Channel(_, of) if *of == id);
        Wake::until(wakes, is_of_channel).await;
    }

    /// Waits until there is room in the inbox for so many bytes, or the channel is left. Whoever tries to store a message has it hashed
    /// for that.
    async fn has_room(
        &self,
        bytes: u64,
        wakes: &mut broadcast::Receiver<Wake>,
    ) -> Result<(), Ended> {
        let (id, name) = (self.stored.channel.id, &self.stored.context.source);
        // Whatever takes a delivery out of the inbox may have made tasks.
        let frees = |wake: &Wake| match wake {
            Wake::Tasks(source) => source == name,
            Wake::Channel(_, channel) => *channel == id,
            _ => false,
        };
        loop {
            let record = self.stored.record().await?;
            let filled = record.inbox_bytes.saturating_add(bytes);
            if filled <= self.stored.context.inbox_limit || record.is_unwanted {
                return Ok(());
            }
            Wake::until(wakes, frees).await;
        }
    }

    async fn is_to_be_closed(&self) -> Result<bool, Ended> {
        Ok(self.stored.record().await?.channel().is_to_be_closed())
    }

    async fn count_rejected(&self) {
        let store = &self.stored.context.store;
        let counted = store.count_rejected(self.stored.channel.id, clock::now().wall, None);
        if let Err(error) = counted.await {
            store.report_missed_notification(self.stored.channel);
            tracing::error!(code = error.code(), source = self.stored.context.source, %error, "database error; a rejected message is not counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use resourcesync::Capability;
    use resyncd_core::{TopicUri, Transport};
    use url::Url;

    use super::*;
    use crate::engine::tests::{Answering, NAME, TestSource};
    use crate::store::tests::database::TestDatabase;
    use crate::store::{
        CallbackKeys, ChangeBatch, DeletionRules, DeliveryOutcome, DocumentEnd, Origin, SetId,
    };

    /// Ends a test that would hang.
    const LIMIT: Duration = Duration::from_secs(180);

    /// Takes the oldest delivery out of the inbox.
    async fn conclude_one(source: &TestSource, set: SetId) {
        let delivery = source.store.deliveries(set, 0, 1).await.unwrap().remove(0);
        let rules = DeletionRules {
            max_share: 1.0,
            of_absence: false,
            holds_all: false,
        };
        let concluded = delivery.processed(DeliveryOutcome::Applied);
        let applied = source.store.ingest(ChangeBatch {
            set,
            source: NAME.to_owned(),
            origin: Origin::Notification,
            now: clock::now().wall,
            begins: false,
            changes: Vec::new(),
            end: Some(DocumentEnd {
                deliveries: vec![concluded],
                ..DocumentEnd::new(rules)
            }),
        });
        applied.await.unwrap();
    }

    /// The store of a Source, with a channel that is a connection; its set.
    async fn stored_channel() -> (TestSource, ChannelRecord, SetId) {
        let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
        let source = TestSource::new(&list, |client| {
            client.with_network(Arc::new(Answering(|_: &Url| None)))
        });
        let (store, now) = (&source.store, clock::now().wall);
        let set = store.begin_set(NAME, &list).await.unwrap().id;
        let topic = Url::parse("wss://example.org/changes").unwrap();
        let topic = TopicUri::of_channel(topic).unwrap();
        let channel = Channel::without_hubs(Transport::Websocket, now, &topic);
        let keys = CallbackKeys {
            token: "unused".to_owned(),
            secret: None,
        };
        let kind = Capability::ChangeNotification;
        let channel = store.insert_channel(set, &kind, channel, keys);
        let channel = channel.await.unwrap();
        (source, channel, set)
    }

    /// Over which first something comes that is not accepted, and then nothing more.
    struct OneFault(Option<ConnectionFailure>);

    impl Connection for OneFault {
        type Message = Bytes;

        async fn next(&mut self) -> Result<Bytes, ConnectionFailure> {
            match self.0.take() {
                Some(failure) => Err(failure),
                None => std::future::pending().await,
            }
        }

        fn bytes(message: &Bytes) -> &Bytes {
            message
        }

        fn stored(&mut self, _message: Bytes) {}
    }

    /// Opens nothing.
    struct NoConnector;

    impl Connector for NoConnector {
        type Open = OneFault;

        async fn open(
            &mut self,
            _context: &ChannelContext,
            _channel: &ChannelRecord,
        ) -> Result<OneFault, ConnectionFailure> {
            std::future::pending().await
        }

        async fn close(&mut self, _open: OneFault, _is_left: bool) -> bool {
            true
        }

        fn lose(&mut self, _open: OneFault, _failure: &ConnectionFailure) {}

        async fn leave(
            &mut self,
            _context: &ChannelContext,
            _channel: &ChannelRecord,
        ) -> Result<(), ConnectionFailure> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn rejected_message_is_counted_after_its_reason_is_shown() {
        for ends in [false, true] {
            let (source, channel, _) = stored_channel().await;
            let context = ChannelContext::of(&source.context);
            let driver = Driver {
                stored: StoredChannel {
                    context: &context,
                    channel: &channel,
                },
            };
            let failure = ConnectionFailure {
                code: "foreign-publisher",
                message: "by somebody else".to_owned(),
                retry_after: None,
                is_of_message: true,
                ends,
            };
            assert!(driver.stored.change(Channel::connected).await.is_ok());
            // Nothing can be counted meanwhile; what waits too long for the lock is given up, and is not counted later.
            let database = TestDatabase::open(source.mirror.root().parent().unwrap());
            let lock = database.lock();
            let observed = async {
                while context.runtime_status.channel(channel.id).is_none() {
                    source.store.channel(channel.id).await.unwrap();
                }
                drop(lock);
                let counted = async || source.store.channel(channel.id).await.unwrap().unwrap();
                while counted().await.rejected == 0 {}
            };
            let mut wakes = source.store.wakes();
            let listening = async {
                let (mut connector, failing) = (NoConnector, OneFault(Some(failure)));
                let ended = driver.listen(&mut connector, failing, &mut wakes).await;
                assert!(ended.is_ok());
                assert!(ends);
                std::future::pending().await
            };
            let observed = tokio::time::timeout(LIMIT, observed);
            tokio::select! {
                () = listening => {}
                observed = observed => observed.unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn message_is_not_tried_again_before_there_is_room_for_it() {
        let (source, channel, set) = stored_channel().await;
        let (store, now) = (&source.store, clock::now().wall);
        for length in [30, 60] {
            let receiving = store.receive(now, channel.id, vec![b'x'; length], 100, None);
            assert_eq!(receiving.await.unwrap(), Receipt::Stored);
        }
        let context = ChannelContext {
            inbox_limit: 100,
            ..ChannelContext::of(&source.context)
        };
        let driver = Driver {
            stored: StoredChannel {
                context: &context,
                channel: &channel,
            },
        };
        let mut wakes = store.wakes();
        conclude_one(&source, set).await;
        {
            let mut waiting = std::pin::pin!(driver.has_room(50, &mut wakes));
            let elsewhere = async {
                for _ in 0..100 {
                    store.channel(channel.id).await.unwrap();
                }
            };
            tokio::select! {
                _ = &mut waiting => panic!("there is room for 40 bytes only"),
                () = elsewhere => {}
            }
            conclude_one(&source, set).await;
            let waited = tokio::time::timeout(LIMIT, waiting).await.unwrap();
            assert!(waited.is_ok());
        }
    }
}
