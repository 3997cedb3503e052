//! Which Sources this node follows, where several nodes work on one database.
//!
//! Invariants:
//! - A Source that is given up has no worker, no hook and no repair any more when another node may take it, and what one node does for all
//!   has ended likewise. Tasks in progress are published and committed first; the subscriptions stay.
//! - What another node may have changed of a Source is read anew when it is taken.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::audits::stored_audits;
use super::followed::FollowedSource;
use super::lifecycle::Engine;
use crate::clock;
use crate::store::{HeldSources, RENEWAL, StoreError, Wake};

/// What belongs to no Source: the node that holds it leads.
const LEAD: &str = "";

/// The least time between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How often it is checked what this node has beyond its share.
const BALANCE: Duration = Duration::from_secs(30);

/// The Sources that this node follows.
#[derive(Clone)]
pub(super) struct HeldHere {
    /// `None`: all.
    sources: Arc<Mutex<Option<BTreeSet<String>>>>,
    leads: watch::Sender<bool>,
    /// Locked for reading by what runs while this node leads.
    leading: Arc<RwLock<()>>,
}

impl HeldHere {
    /// All: there is no other node.
    pub(super) fn all() -> Self {
        Self {
            sources: Arc::default(),
            leads: watch::Sender::new(true),
            leading: Arc::default(),
        }
    }

    /// None so far.
    pub(super) fn none() -> Self {
        Self {
            sources: Arc::new(Mutex::new(Some(BTreeSet::new()))),
            leads: watch::Sender::new(false),
            leading: Arc::default(),
        }
    }

    /// Whether this node follows that Source.
    pub(super) fn has(&self, source: &str) -> bool {
        let sources = self.sources.lock();
        sources.as_ref().is_none_or(|held| held.contains(source))
    }

    /// Replaces the Sources; returns those that were added or removed.
    fn replace(&self, held: BTreeSet<String>) -> BTreeSet<String> {
        self.leads.send_replace(held.contains(LEAD));
        let mut sources = self.sources.lock();
        let former = sources.replace(held.clone()).unwrap_or_default();
        former.symmetric_difference(&held).cloned().collect()
    }

    /// Runs something whenever this node leads, until it does not, or the stop.
    pub(super) async fn while_leading<F: Future<Output = ()>>(
        self,
        start: impl Fn(CancellationToken) -> F,
        stop: CancellationToken,
    ) {
        let mut leads = self.leads.subscribe();
        while !stop.is_cancelled() {
            let begun = stop.run_until_cancelled(leads.wait_for(|leads| *leads));
            // The sender is in `self`.
            let _ = begun.await;
            let _leading = self.leading.read().await;
            let (stop, leads) = (stop.child_token(), *self.leads.borrow());
            if !leads {
                continue;
            }
            let ending = async {
                let mut leads = self.leads.subscribe();
                let _ = leads.wait_for(|leads| !*leads).await;
                stop.cancel();
                std::future::pending().await
            };
            tokio::select! {
                () = start(stop.clone()) => {}
                never = ending => never,
            }
            if !stop.is_cancelled() {
                return;
            }
        }
    }
}

/// Takes and gives up Sources until the engine stops or is gone.
pub(super) async fn share_sources(engine: Weak<Engine>, stop: CancellationToken) {
    // The result is the stop, which holds the list of the workers.
    let _ = stop.run_until_cancelled(share_each(engine)).await;
}

async fn share_each(engine: Weak<Engine>) {
    let Some(mut wakes) = engine.upgrade().map(|engine| engine.store.wakes()) else {
        return;
    };
    let mut balanced = clock::now().mono;
    loop {
        let news = Wake::until(&mut wakes, |wake| *wake == Wake::Nodes);
        // After the time-out it is tried anyway.
        let is_told = tokio::time::timeout(RENEWAL, news).await.is_ok();
        let Some(engine) = engine.upgrade() else {
            return;
        };
        if is_told {
            // What another node held may not be followed any more.
            engine.followed.send_modify(|_| {});
        }
        let is_due = is_told || clock::now().mono.duration_since(balanced) >= BALANCE;
        let shared = match engine.store.has_free_sources().await {
            Ok(false) if !is_due => continue,
            Ok(_) => engine.share().await,
            Err(error) => Err(error),
        };
        balanced = clock::now().mono;
        if let Err(error) = shared {
            tracing::debug!(code = error.code(), %error, "database error; no Sources are taken or given up");
        }
        // There may be more wakes than can be read meanwhile.
        tokio::time::sleep(PAUSE).await;
    }
}

impl Engine {
    /// Takes what is free up to the share of this node, and gives up what is beyond it.
    pub(super) async fn share(&self) -> Result<(), StoreError> {
        let _configuring = self.configuring.lock().await;
        self.share_configured().await
    }

    /// The same, while nothing else changes the list of Sources.
    pub(super) async fn share_configured(&self) -> Result<(), StoreError> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let contexts = self.sources.contexts();
        let configured = contexts.iter().map(|context| context.name().to_owned());
        let shared = self.store.share_sources(configured.collect()).await?;
        let HeldSources { mut held, given_up } = shared;
        for source in &given_up {
            // A repair ends first, as it is like the worker of the Source, and an audit that a person has asked for begins.
            let is_audited = self.audit_requests.lock().contains_key(source);
            if !is_audited && !self.repairing.lock().contains(source) {
                held.remove(source);
            }
        }
        let given_up: Vec<String> = given_up
            .into_iter()
            .filter(|it| !held.contains(it))
            .collect();
        if held.iter().any(|source| !self.held.has(source)) {
            // Before the workers start.
            *self.paused.lock() = self.store.paused().await?.into_iter().collect();
            *self.audits.lock() = stored_audits(&self.store).await?;
        }
        let changed = self.held.replace(held);
        self.follow_changed(&changed).await;
        if given_up.is_empty() {
            return Ok(());
        }
        if given_up.iter().any(|source| source == LEAD) {
            drop(self.held.leading.write().await);
        }
        self.store.give_up_sources(given_up).await
    }

    /// Stops or starts what works on these Sources, which were given up or taken.
    async fn follow_changed(&self, changed: &BTreeSet<String>) {
        let config = Arc::clone(&self.config.lock());
        let mut sources = self.sources.current().to_vec();
        let of_changed = |it: &&mut FollowedSource| changed.contains(it.context.name());
        let of_changed: Vec<&mut FollowedSource> = sources.iter_mut().filter(of_changed).collect();
        if of_changed.is_empty() {
            return;
        }
        let stopping = of_changed.iter().map(|followed| followed.stop());
        join_all(stopping).await;
        for followed in &of_changed {
            // What never had a worker has no facts.
            if followed.commands.is_some() {
                self.forget_facts(&config.sources, followed).await;
            }
        }
        let configured = of_changed.iter().map(|it| it.context.source.clone());
        let configured: Vec<_> = configured.collect();
        let begun = self.start_sources(configured.iter()).await;
        let contexts: Vec<_> = begun.iter().map(|it| Arc::clone(&it.context)).collect();
        self.restore_recent_changes(&contexts).await;
        let taken = contexts.iter().filter(|it| self.held.has(it.name()));
        let taken = taken.count();
        let given_up = contexts.len() - taken;
        tracing::info!(taken, given_up, "Sources shared among the nodes");
        for (followed, begun) in of_changed.into_iter().zip(begun) {
            *followed = begun;
        }
        self.sources.replace(sources);
        self.adapt_hooks(&config.sources).await;
    }
}
