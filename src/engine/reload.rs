//! Replaces the Sources that a running engine follows.
//!
//! Invariants: a Source that stays as it is is not touched: its workers, downloads, channels and subscriptions go on. One that is
//! changed is stopped in order, and started with its new configuration, as by a restart of the process. One that is removed is stopped
//! in order; its subscriptions are ended, its rows and files stay. Hooks have a life of their own: one that stays as it is goes on.
//! A Source whose mirror was moved is started again in the same way.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::context::SourceContext;
use super::followed::{FollowedSource, followed_sets};
use super::hooks::configured_hooks;
use super::lifecycle::Engine;
use super::store_retries::rest_unless_stopped;
use super::trimming::TrimRules;
use crate::clock;
use crate::config::{self, Config};
use crate::status::{ConfigurationStatus, StatusError};
use crate::store::{SetRecord, StoreError};

impl Engine {
    /// Follows the Sources of this configuration instead of the current ones. What it states besides them, the trimming of the feed, and
    /// who is told what waits for people, is not read. `restart_required`: the keys that were changed and are not applied.
    pub async fn reload(&self, config: &Config, restart_required: Vec<String>) {
        let _configuring = self.configuring.lock().await;
        let current = self.sources.current();
        let is_same = |source: &config::Source| {
            let mut known = current.iter();
            known.any(|known| known.context.source.is_followed_as(source))
        };
        let stays = |known: &&FollowedSource| {
            let mut sources = config.sources.iter();
            sources.any(|source| known.context.source.is_followed_as(source))
        };
        let ends: Vec<FollowedSource> = current.iter().filter(|it| !stays(it)).cloned().collect();
        join_all(ends.iter().map(FollowedSource::stop)).await;
        for source in &config.sources {
            self.forgetting.interrupt(&source.name).await;
        }
        let followed = followed_sets(&config.sources);
        self.until_stored("left subscriptions", || {
            let now = clock::now().wall;
            self.store.leave_unfollowed(now, followed.clone())
        })
        .await;
        for source in &ends {
            self.forget_facts(&config.sources, source).await;
        }
        let begins = config.sources.iter().filter(|source| !is_same(source));
        let mut begun = self.start_sources(begins).await.into_iter();
        let sources = config.sources.iter().filter_map(|source| {
            let mut known = current.iter();
            let known = known.find(|known| known.context.source.is_followed_as(source));
            known.cloned().or_else(|| begun.next())
        });
        let sources: Vec<FollowedSource> = sources.collect();
        self.sources.replace(sources);
        let configured = configured_hooks(&config.sources);
        self.until_stored("hooks", || self.store.retain_hooks(configured.clone()))
            .await;
        self.adapt_hooks(&config.sources).await;
        self.followed.send_replace(followed);
        self.trimmed.send_replace(TrimRules::of(config));
        {
            let mut in_use = self.config.lock();
            *in_use = Arc::new(Config {
                sources: config.sources.clone(),
                notify: config.notify.clone(),
                ..(**in_use).clone()
            });
        }
        let loaded = ConfigurationStatus::loaded(clock::now().wall, restart_required);
        *self.configuration.lock() = loaded;
        self.until_stored("shares", || self.share_configured())
            .await;
        for source in &ends {
            self.report_removal(config, &source.context.source);
        }
    }

    /// Starts a Source again whose worker has ended because the mirror was moved: as [`reload`](Self::reload) starts one that is changed.
    pub(super) async fn restart(&self, ended: Arc<SourceContext>) {
        let _configuring = self.configuring.lock().await;
        self.restart_configured(&ended).await;
    }

    /// The same, while nothing else changes the list of Sources.
    pub(super) async fn restart_configured(&self, ended: &Arc<SourceContext>) {
        let mut sources = self.sources.current().to_vec();
        let mut known = sources.iter();
        let Some(at) = known.position(|it| Arc::ptr_eq(&it.context, ended)) else {
            // A reload has replaced it.
            return;
        };
        sources[at].stop().await;
        let followed = std::slice::from_ref(&ended.source);
        self.forget_facts(followed, &sources[at]).await;
        let begun = self.start_sources(followed.iter()).await;
        sources.splice(at..=at, begun);
        self.sources.replace(sources);
    }

    /// Records why a configuration was not loaded. What is in use stays.
    pub fn refuse_configuration(&self, error: StatusError) {
        self.configuration.lock().error = Some(error);
    }

    /// Drops what the runtime status and the counters have of a Source that was stopped. If it is followed again, it begins as after
    /// a restart: nothing of it was polled.
    pub(super) async fn forget_facts(&self, sources: &[config::Source], stopped: &FollowedSource) {
        let name = stopped.context.name();
        let sets = self.until_stored("sets", || self.store.sets(name)).await;
        let sets = sets.unwrap_or_default();
        let ids: Vec<_> = sets.iter().map(|set| set.id).collect();
        self.runtime_status.end_source(name, &ids);
        let now = sources.iter().find(|source| source.name == name);
        let is_followed =
            |set: &SetRecord| now.is_some_and(|source| source.wants_set(&set.capability_list));
        for set in sets.iter().filter(|set| !is_followed(set)) {
            stopped.context.counters.end_set(set.id.0);
        }
        if now.is_none() {
            self.counters.end_source(name);
        }
    }

    /// Logs what becomes of a Source that was removed.
    fn report_removal(&self, config: &Config, removed: &config::Source) {
        let names: BTreeSet<&str> = config.sources.iter().map(|it| it.name.as_str()).collect();
        if names.contains(removed.name.as_str()) {
            return;
        }
        let (source, mirror) = (&removed.name, removed.mirror.display());
        tracing::info!(source, %mirror, next_step = format!("resyncd forget {source} [--delete-files]"),
            "Source removed: its subscriptions are being ended, its files and its rows in the database stay");
    }

    /// Repeats an access to the database until it succeeds; `None`: the daemon stops.
    async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        what: &str,
        access: impl Fn() -> F,
    ) -> Option<T> {
        loop {
            match access().await {
                Ok(done) => return Some(done),
                Err(error) => {
                    tracing::error!(code = error.code(), %error, what, "database error; retrying before the reload goes on");
                }
            }
            if !rest_unless_stopped(&self.stop).await {
                return None;
            }
        }
    }
}
