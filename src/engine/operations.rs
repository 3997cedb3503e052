//! What operators request of a running engine: at the status listener, and by the commands.

use std::sync::Arc;

use resyncd_core::ResourceUri;
use resyncd_mirror::MirrorPlace;
use tokio::sync::oneshot;

use super::attention;
use super::channels::{EndingSource, end_subscriptions};
use super::context::SourceContext;
use super::error::EngineError;
use super::forget::{ForgetError, ForgetRequest, forget_source};
use super::lifecycle::Engine;
use super::recent_changes;
use super::restarts::{Panicked, catch_panic};
use super::set::worker::Command;
use super::status_view::{self, failed_resource, held_deletion};
use super::versions::view::versions_of;
use crate::clock;
use crate::config;
use crate::metrics::exposition;
use crate::status::{
    Activity, FailedResource, Forgotten, FormerSource, HeldDeletion, Page, ResourceVersion,
    SeenDeletions, Status, StatusError, UnsubscribeResult, rfc3339,
};
use crate::store::{DecisionResult, DeletionDecision, ResourceId, SetId, SetTotals, StoreError};

impl Engine {
    /// The status of all Sources, as far as this node knows it.
    pub(super) async fn status_of_sources(&self) -> Result<Status, EngineError> {
        self.status_of(|_| true).await
    }

    /// The status of some Sources, by their names.
    pub(super) async fn status_of(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Status, EngineError> {
        // Noted first: a configuration is never shown as loaded with Sources and hooks of the former one.
        let configuration = self.configuration.lock().clone();
        let mut contexts = self.sources.contexts();
        contexts.retain(|context| is_wanted(context.name()));
        let (store, runtime_status) = (&self.store, &self.runtime_status);
        let status = status_view::status(store, runtime_status, self.started_at, &contexts);
        let mut status = status.await?;
        let channels = self.store.unfollowed_channels(self.sources.sets()).await?;
        status.unfollowed = status_view::unfollowed(&self.runtime_status, channels);
        status.former_sources = self.former_sources().await?;
        let published = self.published.lock().clone();
        if let Some(published) = published {
            status.publish = published().await;
        }
        status
            .attention
            .extend(attention::of_configuration(&configuration));
        status.configuration = configuration;
        let public_url = self.public_url_error.lock().clone();
        // A router may not lead requests from inside to its own public address.
        let public_url =
            public_url.filter(|_| !status_view::has_delivery_since(&status, self.started_at));
        status
            .attention
            .extend(public_url.as_ref().map(attention::of_public_url));
        let of_notify = self.notify_errors.lock();
        status
            .attention
            .extend(of_notify.iter().map(attention::of_notify));
        drop(of_notify);
        let paused = self.paused.lock().clone();
        let config = Arc::clone(&self.config.lock());
        for source in &mut status.sources {
            let configured = config.sources.iter().find(|it| it.name == source.name);
            source.audit = configured.and_then(|configured| self.audit_status(configured));
            let of_audit = source.audit.as_ref();
            let of_audit = of_audit.and_then(|audit| attention::of_audit(&source.name, audit));
            source.attention.extend(of_audit);
            let since = paused.get(&source.name).copied();
            source.paused_since = since.map(rfc3339);
            let of_pause = since.map(|since| attention::of_pause(&source.name, since));
            source.attention.extend(of_pause);
        }
        let mut loads = self.shared.transports.client().host_loads();
        for context in self.sources.contexts() {
            // Others share their limits.
            if context.source.pace.connections_per_host.is_some() {
                loads.extend(context.client.host_loads());
            }
        }
        status.hosts = status_view::hosts(loads);
        Ok(status)
    }

    /// This status, and what has been counted since the start, in Prometheus' text format, version 0.0.4.
    pub fn metrics(&self, status: &Status) -> Result<String, StatusError> {
        exposition(status, &self.counters).map_err(|error| {
            let message = format!("the metrics cannot be encoded: {error}");
            StatusError::new("metrics", message, clock::now().wall)
        })
    }

    /// A mirror that cannot be written: the name of its Source and the error.
    pub fn unwritable_mirror(&self) -> Option<(String, StatusError)> {
        self.runtime_status.recent_disk_error(clock::now().mono)
    }

    /// Whether a Source of that name is followed, and the configuration names that Capability List, as far as they are stated. It may
    /// have no set yet.
    pub fn is_followed(&self, source: Option<&str>, set: Option<&str>) -> bool {
        let Some(selected) = self.selected(source) else {
            return false;
        };
        let names = |context: &Arc<SourceContext>, list: &str| {
            let mut sets = context.source.sets.iter();
            sets.any(|set| set.as_str() == list)
        };
        set.is_none_or(|list| selected.iter().any(|context| names(context, list)))
    }

    /// Polls a Source now; `false` if there is no such Source. One that is paused is an error.
    pub fn poll(&self, source: &str) -> Result<bool, StatusError> {
        let Some(followed) = self.sources.find(source) else {
            return Ok(false);
        };
        self.refuse_paused(source)?;
        if let Some(commands) = &followed.commands {
            // A full queue has a command already.
            let _ = commands.try_send(Command::Poll);
        }
        Ok(true)
    }

    /// Approves those held-back deletions of a Source that a person has seen; returns how many, `None` if there is no such Source. If
    /// more are held back than the number that the person has seen it is an error (`more-deletions-held`), and none is approved.
    pub async fn approve(
        &self,
        source: &str,
        seen: SeenDeletions,
    ) -> Result<Option<u64>, StatusError> {
        let decision = DeletionDecision::Approve {
            seen: seen.held,
            through: seen.through,
        };
        self.decide(source, decision).await
    }

    /// Rejects held-back deletions of a Source, those up to that number or all: the files stay. Returns how many, `None` if there is
    /// no such Source.
    pub async fn reject(
        &self,
        source: &str,
        through: Option<u64>,
    ) -> Result<Option<u64>, StatusError> {
        let decision = DeletionDecision::Reject { through };
        self.decide(source, decision).await
    }

    /// Has the deletions of a Source that were rejected held back again. Returns how many, `None` if there is no such Source.
    pub async fn undo_reject(&self, source: &str) -> Result<Option<u64>, StatusError> {
        self.decide(source, DeletionDecision::Undo).await
    }

    async fn decide(
        &self,
        source: &str,
        decision: DeletionDecision,
    ) -> Result<Option<u64>, StatusError> {
        if self.sources.find(source).is_none() {
            return Ok(None);
        }
        let (store, stop, name) = (
            Arc::clone(&self.store),
            self.stop.clone(),
            source.to_owned(),
        );
        let deciding = async move {
            let (now, goes_on) = (clock::now().wall, || !stop.is_cancelled());
            let decided = store.decide_deletions(&name, decision, now, goes_on);
            let decided = decided.await?;
            if let DecisionResult::Decided(deletions) = decided {
                let event = match decision {
                    DeletionDecision::Approve { .. } => "held-back deletions approved",
                    DeletionDecision::Reject { .. } => {
                        "held-back deletions rejected; the files stay"
                    }
                    DeletionDecision::Undo => "rejected deletions are held back again",
                };
                tracing::info!(source = name, deletions, "{event}");
            }
            Ok(decided)
        };
        let decided = self.complete("decision on deletions", deciding).await;
        match decided.unwrap_or(Err(StoreError::Panicked)) {
            Ok(DecisionResult::Decided(deletions)) => Ok(Some(deletions)),
            Ok(DecisionResult::MoreHeldBack { held, seen }) => Err(more_held(source, held, seen)),
            Err(error) => Err(store_failed(error)),
        }
    }

    /// Tries now what was given up of a Source; returns how many changes, `None` if there is no such Source.
    pub async fn retry(&self, source: &str) -> Result<Option<u64>, StatusError> {
        if self.sources.find(source).is_none() {
            return Ok(None);
        }
        let (store, stop, name) = (
            Arc::clone(&self.store),
            self.stop.clone(),
            source.to_owned(),
        );
        let retrying = async move {
            let goes_on = || !stop.is_cancelled();
            let retried = store.retry_given_up(&name, clock::now().wall, goes_on);
            let versions = store.retry_versions(&name, clock::now().wall);
            let retried = retried.await? + versions.await?;
            tracing::info!(source = name, retried, "failed changes are tried again");
            Ok(retried)
        };
        let retried = self.complete("retry of failed changes", retrying).await;
        let retried = retried.unwrap_or(Err(StoreError::Panicked));
        retried.map(Some).map_err(store_failed)
    }

    /// A page of the resources of a Source, or of all, whose changes were given up, in the order of their numbers; `None` if
    /// there is no such Source.
    pub async fn failed(
        &self,
        source: Option<&str>,
        page: Page,
    ) -> Result<Option<Vec<FailedResource>>, StatusError> {
        let Some(sources) = self.selected(source) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for context in sources {
            let after = ResourceId(page.after);
            let tasks = self.store.given_up(context.name(), after, page.limit).await;
            let tasks = tasks.map_err(store_failed)?.into_iter();
            found.extend(tasks.map(|task| failed_resource(&context, task)));
        }
        found.sort_by_key(|resource| resource.id);
        found.truncate(page.limit);
        Ok(Some(found))
    }

    /// As [`failed`](Self::failed), of the deletions that are held back, or of those that were rejected.
    pub async fn held(
        &self,
        source: Option<&str>,
        is_rejected: bool,
        page: Page,
    ) -> Result<Option<Vec<HeldDeletion>>, StatusError> {
        let Some(sources) = self.selected(source) else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for context in sources {
            let (name, after) = (context.name(), ResourceId(page.after));
            let held = self.store.held_back(name, is_rejected, after, page.limit);
            let tasks = held.await.map_err(store_failed)?.into_iter();
            found.extend(tasks.map(|task| held_deletion(&context, task)));
        }
        found.sort_by_key(|deletion| deletion.id);
        found.truncate(page.limit);
        Ok(Some(found))
    }

    /// What was applied of a Source, or of all, in the last hour and day; `None` if there is no such Source.
    pub fn activity(&self, source: Option<&str>) -> Option<Activity> {
        let sources = self.selected(source)?;
        let counts = sources.iter().map(|context| &context.recent_changes);
        Some(recent_changes::activity(counts, clock::now().wall))
    }

    /// Ends a Source's subscriptions and waits for the hubs' confirmations; `None` if there is no such Source.
    pub async fn unsubscribe(&self, source: &str) -> Option<Vec<UnsubscribeResult>> {
        let (transports, public_url) = (&self.shared.transports, self.shared.public_url.as_ref());
        let Some(followed) = self.sources.find(source) else {
            let ending = EndingSource::unfollowed(source, transports, public_url);
            let ended = end_subscriptions(&self.store, &ending).await;
            return Some(ended).filter(|ended| !ended.is_empty());
        };
        followed.context.retired.cancel();
        let ending = EndingSource::of(&followed.context.source, transports, public_url);
        Some(end_subscriptions(&self.store, &ending).await)
    }

    /// The versions of a resource, of this Source or of all that store versions, by time. `None`: there is no such Source.
    pub async fn versions(
        &self,
        source: Option<&str>,
        uri: &ResourceUri,
    ) -> Result<Option<Vec<ResourceVersion>>, StatusError> {
        let Some(sources) = self.selected(source) else {
            return Ok(None);
        };
        let mut versions = Vec::new();
        for context in &sources {
            let found = versions_of(context, uri).await;
            versions.extend(found.map_err(|error| error.status_error())?);
        }
        Ok(Some(versions))
    }

    /// Has the TimeMap of a resource read, of this Source or of all that store versions; the versions that it names are stored. Returns
    /// of how many Sources it is read, `None` if there is no such Source.
    pub async fn backfill(
        &self,
        source: Option<&str>,
        uri: &ResourceUri,
    ) -> Result<Option<u64>, StatusError> {
        match self.selected(source) {
            Some(sources) => self.request_time_maps(&sources, uri).await.map(Some),
            None => Ok(None),
        }
    }

    /// Has the TimeMaps of a resource read; returns of how many Sources.
    pub(super) async fn request_time_maps(
        &self,
        sources: &[Arc<SourceContext>],
        uri: &ResourceUri,
    ) -> Result<u64, StatusError> {
        let now = clock::now().wall;
        let failed = |code: &str, message: String| StatusError::new(code, message, now);
        let (mut requested, mut is_known) = (0, false);
        let storing = sources.iter().filter(|it| it.versions.is_some());
        let storing: Vec<&Arc<SourceContext>> = storing.collect();
        if storing.is_empty() {
            let message = "no versions are stored: `versions` is not set in the configuration";
            return Err(failed("no-versions", message.to_owned()));
        }
        for context in storing {
            let request = self.store.request_time_map(context.name(), uri, now);
            let request = request.await.map_err(store_failed)?;
            is_known |= request.is_some();
            requested += u64::from(request == Some(true));
        }
        match (requested, is_known) {
            (0, true) => {
                let message = format!("the Source links to no TimeMap of {uri}");
                Err(failed("no-time-map", message))
            }
            (0, false) => {
                let message = format!("no resource {uri} is known");
                Err(failed("unknown-resource", message))
            }
            _ => Ok(requested),
        }
    }

    /// Where the mirror of a Source is; `None`: it is not followed.
    pub fn mirror_of(&self, source: &str) -> Option<MirrorPlace> {
        let found = self.sources.find(source)?;
        Some(found.context.source.mirror.clone())
    }

    /// Forgets a Source that is not followed any more, with its files or without.
    pub async fn forget(&self, source: &str, delete_files: bool) -> Result<Forgotten, StatusError> {
        let failed = |error: ForgetError| {
            StatusError::new(error.code(), error.to_string(), clock::now().wall)
        };
        let configuring = self.configuring.lock().await;
        if self.sources.find(source).is_some() {
            return Err(failed(ForgetError::Followed(source.to_owned())));
        }
        let begun = self.forgetting.begin(source, &self.stop).map_err(failed)?;
        drop(configuring);
        let sources = self.sources.current();
        let mirrors = sources.iter().map(|source| &source.context.source);
        let request = ForgetRequest {
            name: source.to_owned(),
            delete_files,
            mirrors: mirrors
                .map(|source| (source.name.clone(), source.mirror.to_path_buf()))
                .collect(),
            objects: self.config.lock().objects.clone(),
        };
        let store = Arc::clone(&self.store);
        let (transports, public_url) = (&self.shared.transports, self.shared.public_url.as_ref());
        let ending = EndingSource::unfollowed(source, transports, public_url);
        let forgetting =
            async move { forget_source(&store, &ending, &request, begun.stop()).await };
        let forgotten = self.complete("forgetting a Source", forgetting).await;
        forgotten
            .unwrap_or(Err(ForgetError::Interrupted))
            .map_err(failed)
    }

    /// Plans the deletion of the resources that only sets of a Source have that are not followed any more. Returns how many, `None` if
    /// there is no such Source.
    pub async fn forget_former_sets(&self, source: &str) -> Result<Option<u64>, StatusError> {
        let Some(followed) = self.sources.find(source) else {
            return Ok(None);
        };
        let deletions = self.delete_former_sets(&followed.context.source).await;
        let deletions = deletions.map_err(store_failed)?;
        tracing::info!(source, deletions, "resources of former sets are deleted");
        Ok(Some(deletions))
    }

    async fn delete_former_sets(&self, source: &config::Source) -> Result<u64, StoreError> {
        let (name, now) = (source.name.as_str(), clock::now().wall);
        let totals = self.store.set_totals(name).await?.into_iter();
        let former = totals.filter(|set| status_view::is_former(source, set));
        let former: Vec<SetTotals> = former.collect();
        // One that is only not selected would need its memberships to go on.
        for set in former.iter().filter(|set| set.is_ended) {
            self.store.leave_shared(set.id).await?;
        }
        let former: Vec<SetId> = former.into_iter().map(|set| set.id).collect();
        let mut planned = 0;
        for &set in &former {
            let mut after = ResourceId(0);
            while let Some((last, resources)) = self
                .store
                .delete_next_of_former(name, now, set, &former, after)
                .await?
            {
                after = last;
                planned += resources as u64;
            }
        }
        Ok(planned)
    }

    /// The Sources that are not followed any more, and were not forgotten.
    async fn former_sources(&self) -> Result<Vec<FormerSource>, StoreError> {
        let mut former = Vec::new();
        for location in self.store.locations().await? {
            if self.sources.find(&location.name).is_none() {
                let totals = match self.store.set_totals(&location.name).await {
                    Err(error) if self.store.note_unreadable(&location.name, &error) => Vec::new(),
                    totals => totals?,
                };
                former.push(status_view::former_source(location, &totals));
            }
        }
        Ok(former)
    }

    /// The Source of that name, or all; `None` if there is none of that name.
    fn selected(&self, name: Option<&str>) -> Option<Vec<Arc<SourceContext>>> {
        match name {
            Some(name) => Some(vec![self.sources.find(name)?.context]),
            None => Some(self.sources.contexts()),
        }
    }

    /// Runs a long operation to its end, or until the stop, also if the request for it is cut off.
    pub(super) async fn complete<T: Send + 'static>(
        &self,
        name: &str,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Panicked> {
        let (result, results) = oneshot::channel();
        let running = async move {
            let _ = result.send(catch_panic(operation).await);
        };
        self.spawn(self.heartbeats.watched(name, running)).await;
        results.await.unwrap_or(Err(Panicked))
    }
}

pub(super) fn store_failed(error: StoreError) -> StatusError {
    StatusError::new(error.code(), error.to_string(), clock::now().wall)
}

/// The error of an approval of fewer deletions than are held back.
fn more_held(source: &str, held: u64, seen: u64) -> StatusError {
    let message = format!(
        "nothing is approved: {held} deletions of {source} are held back by now, and {seen} were shown; look at them again (the page \
         of the Source, or `resyncd approve {source} --list`), then approve"
    );
    StatusError::new("more-deletions-held", message, clock::now().wall)
}
