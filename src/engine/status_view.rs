//! Builds the status of all Sources from the database and the runtime status.
//!
//! Invariant: a set is `in-sync` only if it was polled since the start, has no gap and no error of the last poll, and nothing is
//! pending, failed or held back. What is unavailable is counted only.
//!
//! Must not know how the status is served, and changes nothing.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use resourcesync::uri::parse_uri;
use resourcesync::{Capability, SourceTime};
use resyncd_channels::XmppAccount;
use resyncd_core::{
    ChannelState, Coverage, DeliveryFault, DeliveryFaultKind, Gap, HubUri, TopicUri, one_line,
};
use resyncd_fetch::HostLoad;
use url::Url;

use super::attention::{self, ChannelNeeds, DATABASE_ROW};
use super::context::SourceContext;
use super::error::EngineError;
use super::faults::Faults;
use super::runtime_status::{
    HookFacts, RuntimeStatus, SetFacts, SourceFacts, SourceState, each_once,
};
use super::source::discovery::TOO_MANY_SETS;
use super::{restarts, unencrypted_hubs};
use crate::status::{
    Attention, ChannelStatus, ClosedGapStatus, ConfigurationStatus, CountedError, CoveredStatus,
    FailedResource, FormerSource, GapStatus, HeldDeletion, HookStatus, HostStatus, SetStatus,
    SourceStatus, Status, StatusError, UnfollowedStatus, VersionsStatus, rfc3339,
};
use crate::store::{
    ChannelRecord, ClosedGap, GivenUpTask, HeldBackTask, Overview, OverviewQuery, SetId,
    SetOverview, SetRecord, SetStatistics, SetTotals, SourceLocation, Store, UnfollowedChannel,
    VersionsOverview,
};
use crate::{clock, config};

/// How many hosts are shown.
pub(super) const MOST_HOSTS: usize = 100;
/// How many intervals of a coverage are shown.
const MOST_COVERED: usize = 100;
/// How much of an origin is shown, in bytes.
const LONGEST_ORIGIN: usize = 300;
/// How much of the message of a failed task is shown, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// What the workers of a Source have reported: of the Source, why its mirror can't be used, and of its hooks in the order of the
/// configuration.
type WorkerReports = (SourceFacts, Option<StatusError>, Vec<HookFacts>);

/// The status of these Sources, each of them there once, with their own `store` and `runtime_status`. The database is read once for
/// all of them.
pub(super) async fn status(
    store: &Arc<Store>,
    runtime_status: &RuntimeStatus,
    started_at: DateTime<Utc>,
    contexts: &[Arc<SourceContext>],
) -> Result<Status, EngineError> {
    // What a worker reports is in the database by then: the numbers must not be of a time before it.
    let reports = contexts.iter().map(|context| {
        let (facts, mirror_error) = runtime_status.source_and_mirror(context.name());
        (facts, mirror_error, runtime_status.hooks(context.name()))
    });
    let reports: Vec<WorkerReports> = reports.collect();
    let mut set_facts = runtime_status.sets();
    let queries = contexts.iter().map(|context| OverviewQuery {
        source: context.name().to_owned(),
        with_versions: context.source.versions.is_some(),
    });
    let positions = reports.iter().flat_map(|(_, _, hooks)| hooks);
    let positions = positions.filter_map(|hook| hook.status.position).collect();
    let overview = store.overview(queries.collect(), positions).await?;
    let Overview { sources, behind } = overview;
    let write_failure = store.write_failure().await;
    let sources = contexts.iter().zip(reports).zip(sources);
    let sources = sources.map(|((context, reports), overview)| {
        let sets = sets(context, &mut set_facts, overview.sets);
        let former = former_sets(started_at, &context.source, &overview.totals);
        source(context, reports, &behind, sets, former, overview.versions)
    });
    let sources: Vec<SourceStatus> = sources.collect();
    Ok(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: store.node().map(str::to_owned),
        started_at: rfc3339(started_at),
        now: rfc3339(clock::now().wall),
        sources,
        configuration: ConfigurationStatus::default(),
        attention: write_failure.iter().map(attention::of_database).collect(),
        former_sources: Vec::new(),
        publish: None,
        // The engine and the listener add these.
        unfollowed: Vec::new(),
        hosts: Vec::new(),
        refused: BTreeMap::new(),
    })
}

fn source(
    context: &SourceContext,
    (facts, mirror_error, hooks): WorkerReports,
    behind: &HashMap<i64, u64>,
    sets: Vec<SetStatus>,
    former: Option<FormerSets>,
    versions: Option<VersionsOverview>,
) -> SourceStatus {
    let config = &context.source;
    let unreadable = context.store.unreadable_row(context.name());
    let unreadable = unreadable.map(|row| StatusError::new(DATABASE_ROW, row.message, row.at));
    let (state, error) = match &unreadable {
        Some(error) => (SourceState::Failing, Some(error.clone())),
        None => source_state(&facts, &sets),
    };
    let is_failing = state == SourceState::Failing;
    // Where all sets fail it does so since the last one began.
    let of_sets = sets
        .iter()
        .filter_map(|set| set.failing_since.clone())
        .max();
    let at = error.as_ref().map(|error| error.at.clone());
    let failing_since = facts.failing_since.clone().or(of_sets).or(at);
    let asked = sets.iter().filter_map(|set| set.last_request_at.clone());
    let last_request_at = asked.chain(facts.last_request_at.map(rfc3339)).max();
    let next_of_sets = sets.iter().filter_map(|set| set.next_try_at.clone()).min();
    let next_try_at = facts.next_try_at.map(rfc3339).or(next_of_sets);
    let mut notices = facts.notices;
    let mut of_former = None;
    if let Some((number, notice, resources)) = former {
        let since = notices.since(TOO_MANY_SETS);
        of_former = since.map(|since| attention::of_former_sets(&config.name, number, since));
        notices.replace(notice, resources);
    }
    for missed in hooks.iter().filter_map(|hook| hook.missed.clone()) {
        notices.add(missed, 1);
    }
    let mirror = config.mirror.display().to_string();
    let of_mirror = attention::of_mirror(&mirror, mirror_error.as_ref());
    let of_versions = attention::of_versions(facts.versions_error.as_ref());
    let of_hooks = hooks.iter().filter_map(attention::of_hook);
    let of_row = unreadable.as_ref().map(attention::of_row);
    let of_source = of_mirror.into_iter().chain(of_versions).chain(of_hooks);
    let attention = of_source.chain(of_former).chain(of_row).collect();
    SourceStatus {
        name: config.name.clone(),
        url: config.url.to_string(),
        state: state.code().to_owned(),
        failing_since: failing_since.filter(|_| is_failing),
        last_request_at,
        next_try_at: next_try_at.filter(|_| is_failing),
        // The engine states them.
        paused_since: None,
        node: None,
        node_since: None,
        audit: None,
        error,
        attention,
        mirror,
        sets,
        notices: notices.into_rows(),
        describedby: texts(&each_once(&[facts.described_by])),
        hooks: hooks
            .into_iter()
            .map(|hook| hook_status(hook, behind))
            .collect(),
        versions: config
            .versions
            .as_deref()
            .zip(versions)
            .map(versions_status),
    }
}

/// The versions that are stored in a folder.
fn versions_status((folder, overview): (&Path, VersionsOverview)) -> VersionsStatus {
    let VersionsOverview { counts, failure } = overview;
    VersionsStatus {
        folder: folder.display().to_string(),
        pending: counts.pending,
        failed: counts.failed,
        error: failure.map(|(code, message, at)| StatusError::new(&code, message, at)),
    }
}

/// The sets of a Source that the configuration selects.
fn sets(
    context: &SourceContext,
    facts: &mut HashMap<SetId, SetFacts>,
    sets: Vec<SetOverview>,
) -> Vec<SetStatus> {
    let wanted = |set: &SetOverview| context.source.wants_set(&set.record.capability_list);
    let wanted = sets.into_iter().filter(wanted);
    let status = |overview: SetOverview| {
        let facts = facts.remove(&overview.record.id).unwrap_or_default();
        set(context, facts, overview)
    };
    wanted.map(status).collect()
}

fn hook_status(hook: HookFacts, behind: &HashMap<i64, u64>) -> HookStatus {
    let position = hook.status.position;
    HookStatus {
        behind: position.and_then(|position| behind.get(&position).copied()),
        ..hook.status
    }
}

/// Whether a hub has delivered something since that time: it has reached the callback.
pub(super) fn has_delivery_since(status: &Status, since: DateTime<Utc>) -> bool {
    let sets = status.sources.iter().flat_map(|source| &source.sets);
    let mut last = sets
        .flat_map(|set| &set.channels)
        .filter_map(|channel| channel.last_notification_at.as_deref());
    last.any(|last| DateTime::parse_from_rfc3339(last).is_ok_and(|last| last >= since))
}

/// Whether a set of a Source is not followed any more.
pub(super) fn is_former(source: &config::Source, set: &SetTotals) -> bool {
    let is_wanted = |list: &Url| source.wants_set(list);
    set.is_ended || !parse_uri(&set.capability_list).is_ok_and(|list| is_wanted(&list))
}

/// How many sets are not followed any more, the notice of them, and how many resources the mirror has of them.
type FormerSets = (usize, StatusError, u64);

fn former_sets(
    started_at: DateTime<Utc>,
    source: &config::Source,
    totals: &[SetTotals],
) -> Option<FormerSets> {
    let former = totals.iter().filter(|set| is_former(source, set));
    let former: Vec<&SetTotals> = former.collect();
    let first = former.first()?;
    let resources = former.iter().map(|set| set.resources).sum();
    let message = format!(
        "the mirror has {resources} resources of {} sets that are not followed any more, such as {}; they are not kept up to date, \
         and stay until `resyncd forget {} --former-sets`",
        former.len(),
        first.capability_list,
        source.name
    );
    let notice = StatusError::new("former-sets", message, started_at);
    Some((former.len(), notice, resources))
}

/// A Source that is not followed any more.
pub(super) fn former_source(location: SourceLocation, totals: &[SetTotals]) -> FormerSource {
    FormerSource {
        name: location.name,
        url: Some(location.url),
        mirror: location.mirror.map(|mirror| mirror.display().to_string()),
        resources: totals.iter().map(|set| set.resources).sum(),
        bytes: totals.iter().map(|set| set.bytes).sum(),
    }
}

/// The state of a Source, and its error. A Source that was discovered is failing nevertheless if each of its sets is, or if none
/// of its tasks is executed.
fn source_state(facts: &SourceFacts, sets: &[SetStatus]) -> (SourceState, Option<StatusError>) {
    let is_failing = |set: &SetStatus| set.state == "failing";
    match facts.state {
        SourceState::Ok if !sets.is_empty() && sets.iter().all(is_failing) => {
            let error = sets.iter().find_map(|set| set.error.clone());
            (SourceState::Failing, error)
        }
        SourceState::Failing => (SourceState::Failing, facts.error.clone()),
        _ if facts.executor_error.is_some() => (SourceState::Failing, facts.executor_error.clone()),
        state => (state, None),
    }
}

fn texts(uris: &[Url]) -> Vec<String> {
    uris.iter().map(Url::to_string).collect()
}

fn set(context: &SourceContext, mut facts: SetFacts, overview: SetOverview) -> SetStatus {
    let (record, numbers) = (&overview.record, overview.statistics);
    facts.failing = facts.database_error.take().or(facts.failing);
    let failing = facts.failing.as_ref().map(|error| error.at.clone());
    let failing_since = facts.failing_since.take().or(failing);
    let now = clock::now().wall;
    let age = numbers.newest.map(|newest| age_of(newest, now));
    let mut channels = Vec::new();
    let public_url = context.public_url.as_ref();
    for channel in overview.channels {
        // A channel that ended because it is no longer offered is not shown.
        let has_ended = channel.is_unwanted
            && channel.lease.state == ChannelState::Unsubscribed
            && is_replaced(record, &channel);
        if channel.former_of.is_none() && !has_ended {
            if let Some(notice) = unencrypted_hubs::notice(&channel, public_url, now) {
                facts.notices.add(notice, 1);
            }
            channels.push(channel_status(
                context,
                channel,
                facts.held_notifications,
                now,
            ));
        }
    }
    if numbers.doubts_lastmod {
        let message = "lists state new times (`lastmod`) of resources that have not changed: these times are not believed, and at most \
            `undated_per_day` resources are requested again within a day";
        let notice = StatusError::new("doubted-lastmod", message, now);
        facts.notices.add(notice, 1);
    }
    let mut attention = attention::of_set(&context.source.name, &numbers);
    let stale = context.source.stale_after.zip(age);
    attention.extend(stale.and_then(|(after, age)| attention::of_stale_set(after, age, now)));
    let of_channels = channels.iter().flat_map(|channel| &channel.attention);
    attention.extend(of_channels.cloned());
    let errors = errors(&facts, &numbers);
    SetStatus {
        capability_list: record.capability_list.to_string(),
        state: state(&numbers, &facts).to_owned(),
        attention,
        synced_until: numbers.synced_until.map(|time| time.to_string()),
        newest_document_at: numbers.newest.map(|time| time.to_string()),
        seconds_since_newest_document: age.map(|age| age.as_secs()),
        coverage: covered(&numbers.coverage),
        gaps: numbers.gaps.iter().map(gap).collect(),
        closed_gaps: context
            .store
            .closed_gaps(record.id, &numbers.gaps)
            .iter()
            .map(closed_gap)
            .collect(),
        resources: numbers.resources,
        bytes: numbers.bytes,
        pending: numbers.pending,
        failed: numbers.failed,
        unavailable: numbers.unavailable,
        held_deletions: numbers.held_deletions,
        held_through: numbers.held_through,
        rejected: numbers.rejected,
        channels,
        last_poll_at: facts.last_poll_at.map(rfc3339),
        next_poll_at: facts.next_poll_at.map(rfc3339),
        last_request_at: facts.last_poll_at.map(rfc3339),
        next_try_at: facts
            .next_poll_at
            .filter(|_| failing_since.is_some())
            .map(rfc3339),
        failing_since,
        undated: numbers.undated,
        unread: context.runtime_status.unread(record.id),
        dead_parts: facts.dead_parts,
        patched: facts.patched,
        patch_missed: facts.patch_missed,
        describedby: texts(&each_once(&facts.described_by)),
        notices: facts.notices.clone().into_rows(),
        // The most severe one.
        error: errors.first().map(|error| error.clone().split().0),
        errors,
        oddities: context.runtime_status.oddities(record.id),
    }
}

/// How long ago a time of the Source was; zero if it is in the future.
fn age_of(newest: SourceTime, now: DateTime<Utc>) -> Duration {
    let age = now - newest.to_datetime();
    age.to_std().unwrap_or_default()
}

fn state(numbers: &SetStatistics, facts: &SetFacts) -> &'static str {
    if !numbers.baseline_done {
        return if facts.failing.is_some() {
            "failing"
        } else {
            "baseline"
        };
    }
    if !numbers.gaps.is_empty() {
        "gap"
    } else if facts.failing.is_some() {
        "failing"
    } else if !facts.polled
        || numbers.pending > 0
        || numbers.failed > 0
        || numbers.held_deletions > 0
    {
        // Before the first poll it is unknown what has changed meanwhile.
        "catching-up"
    } else {
        "in-sync"
    }
}

/// All errors, the most severe one first.
fn errors(facts: &SetFacts, numbers: &SetStatistics) -> Vec<CountedError> {
    let mut errors = Faults::default();
    if let Some(failing) = &facts.failing {
        let faults = facts.faults.clone().into_rows();
        let alike = faults.iter().find(|fault| fault.code == failing.code);
        errors.add(failing.clone(), alike.map_or(1, |fault| fault.count));
        for fault in faults {
            let (error, count) = fault.split();
            errors.include(error, count);
        }
    }
    for failure in &numbers.failures {
        let error = StatusError::new(&failure.code, failure.message.clone(), failure.at);
        errors.add(error, failure.count);
    }
    if let Some(notice) = &facts.notice {
        errors.include(notice.clone(), 1);
    }
    errors.into_rows()
}

/// The newest intervals of a coverage.
fn covered(coverage: &Coverage) -> Vec<CoveredStatus> {
    let intervals = coverage.intervals();
    intervals[intervals.len().saturating_sub(MOST_COVERED)..]
        .iter()
        .map(|interval| CoveredStatus {
            from: (interval.from() != SourceTime::MIN).then(|| interval.from().to_string()),
            until: interval.until().to_string(),
        })
        .collect()
}

fn gap(gap: &Gap) -> GapStatus {
    GapStatus {
        from: gap.interval.from().to_string(),
        until: gap.interval.until().to_string(),
        reason: gap.reason.code().to_owned(),
        since: rfc3339(gap.since),
    }
}

fn closed_gap(ClosedGap { gap, closed_at }: &ClosedGap) -> ClosedGapStatus {
    ClosedGapStatus {
        from: gap.interval.from().to_string(),
        until: gap.interval.until().to_string(),
        reason: gap.reason.code().to_owned(),
        since: rfc3339(gap.since),
        closed_at: rfc3339(*closed_at),
    }
}

fn is_replaced(record: &SetRecord, channel: &ChannelRecord) -> bool {
    !record
        .offers
        .iter()
        .any(|offer| offer.capability == channel.kind && offer.uri == *channel.topic.url())
}

fn channel_status(
    context: &SourceContext,
    channel: ChannelRecord,
    held: u64,
    now: DateTime<Utc>,
) -> ChannelStatus {
    let is_held_here = channel.kind == Capability::ChangeNotification && !channel.is_unwanted;
    let error = channel_error(&context.runtime_status, &channel);
    ChannelStatus {
        attention: channel_attention(context, &channel, error.as_ref(), now),
        kind: channel.kind.to_string(),
        transport: channel.transport.code().to_owned(),
        topic: channel.topic.to_string(),
        subscribed_topic: subscribed_topic(&channel).to_string(),
        hub: (channel.transport.has_hubs()).then(|| channel.hub_name().to_owned()),
        state: state_of(&channel).code().to_owned(),
        lease_expires_at: channel.lease.expires_at.map(rfc3339),
        renew_at: channel.lease.renew_at.map(rfc3339),
        last_notification_at: channel.last_notification_at.map(rfc3339),
        received: channel.received,
        applied: channel.applied,
        duplicate: channel.duplicate,
        rejected: channel.rejected,
        held: if is_held_here { held } else { 0 },
        gaps: channel.gaps,
        rejected_verifications: channel.rejected_verifications,
        inbox: channel.inbox,
        inbox_bytes: channel.inbox_bytes,
        error,
    }
}

/// What of a channel waits for a person. A single run, and a Source without `notifications`, subscribe to none.
fn channel_attention(
    context: &SourceContext,
    channel: &ChannelRecord,
    error: Option<&StatusError>,
    now: DateTime<Utc>,
) -> Vec<Attention> {
    let is_wanted = context.subscribes && context.source.notifications && !channel.is_unwanted;
    let needs = ChannelNeeds {
        transport: channel.transport,
        topic: channel.topic.as_str(),
        server: context.transports.xmpp_account().map(XmppAccount::host),
        hub: denying_hub(channel).unwrap_or(channel.hub_name()),
        state: channel.lease.state,
        unverified_since: channel.unverified_since,
        denied_at: channel.denial.as_ref().map(|denial| denial.at),
        error,
    };
    let attention = is_wanted.then(|| attention::of_channel(&needs, now));
    attention.flatten().into_iter().collect()
}

/// The hub that denies a subscription. Since then another one may have been asked.
fn denying_hub(channel: &ChannelRecord) -> Option<&str> {
    let denial = channel.denial.as_ref();
    let denial = denial.filter(|_| channel.lease.state == ChannelState::Denied);
    denial
        .and_then(|denial| denial.hub.as_ref())
        .map(HubUri::as_str)
}

/// What the running subscription is for, or else what was asked for last.
fn subscribed_topic(channel: &ChannelRecord) -> &TopicUri {
    let own = channel.callbacks.own.as_ref();
    let running = own.filter(|_| channel.lease.state == ChannelState::Active);
    running.map_or(&channel.subscribed_topic, |own| &own.topic)
}

/// A subscription whose end the hub has not confirmed yet is not used any more.
fn state_of(channel: &ChannelRecord) -> ChannelState {
    if channel.is_unwanted {
        ChannelState::Unsubscribed
    } else {
        channel.lease.state
    }
}

/// Why the channel does not work, or will not for long.
fn channel_error(runtime_status: &RuntimeStatus, channel: &ChannelRecord) -> Option<StatusError> {
    // A failure that was reported before the subscription was verified is forgotten only when the driver of the channel goes on. After a
    // panic it may never do.
    let is_verified = channel.transport.has_hubs() && channel.lease.is_healthy();
    let request = runtime_status.channel(channel.id);
    let request = request.filter(|it| !is_verified || it.code == restarts::CODE);
    let denial = channel.denial.as_ref();
    let denial = denial.map(|denial| StatusError::new("denied", denial.message(), denial.at));
    let fault = channel.fault;
    let message = |kind: DeliveryFaultKind| kind.message(channel.transport);
    let fault =
        fault.map(|DeliveryFault { kind, at }| StatusError::new(kind.code(), message(kind), at));
    match channel.lease.state {
        ChannelState::Denied => denial.or(request).or(fault),
        _ => request.or(denial).or(fault),
    }
}

/// A task that was given up, for display.
pub(super) fn failed_resource(context: &SourceContext, task: GivenUpTask) -> FailedResource {
    FailedResource {
        id: task.resource.0,
        source: context.source.name.clone(),
        set: task.capability_list,
        uri: task.uri,
        change: task.kind.as_str().to_owned(),
        code: task.code,
        message: one_line(&task.message, LONGEST_MESSAGE),
        at: task.at.map(rfc3339),
        since: rfc3339(task.since),
        next_try_at: task.due.map(rfc3339),
        unavailable: task.is_unavailable,
    }
}

/// A deletion that is held back or rejected, for display.
pub(super) fn held_deletion(context: &SourceContext, task: HeldBackTask) -> HeldDeletion {
    HeldDeletion {
        id: task.resource.0,
        source: context.source.name.clone(),
        set: task.capability_list,
        uri: task.uri,
        path: task.path,
        length: task.length,
        changed_at: task.changed_at.map(|time| time.to_string()),
        origin: task.origin.code().to_owned(),
        hold: task.hold,
        linked: task.linked,
    }
}

/// The first hosts.
pub(super) fn hosts(loads: Vec<HostLoad>) -> Vec<HostStatus> {
    let loads = loads.into_iter().take(MOST_HOSTS);
    loads
        .map(|load| HostStatus {
            origin: one_line(&load.origin, LONGEST_ORIGIN),
            protocol: load.protocol.map(str::to_owned),
            requests: load.in_progress as u64,
            at_once: load.at_once as u64,
            most: load.most as u64,
            slowed: load
                .slowed
                .map(|slowed| StatusError::new(slowed.code, slowed.message, slowed.at)),
        })
        .collect()
}

/// The status of subscriptions that are being ended because their sets are not followed.
pub(super) fn unfollowed(
    runtime_status: &RuntimeStatus,
    channels: Vec<UnfollowedChannel>,
) -> Vec<UnfollowedStatus> {
    let status = |channel: UnfollowedChannel| UnfollowedStatus {
        source: channel.source,
        capability_list: channel.capability_list.to_string(),
        transport: channel.record.transport.code().to_owned(),
        topic: channel.record.topic.to_string(),
        hub: channel.record.hub_name().to_owned(),
        error: runtime_status.channel(channel.record.id),
    };
    channels.into_iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use resyncd_core::{Channel, Denial};

    use super::*;
    use crate::engine::restarts::Restarts;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::{CallbackKeys, ChannelId};

    /// Ends a test that would hang; nothing relies on the time that something takes.
    const LIMIT: Duration = Duration::from_secs(180);

    #[test]
    fn hosts_are_limited_in_number_and_length() {
        let load = |number: usize| HostLoad {
            origin: format!("https://{}", format!("{number}.").repeat(500)),
            protocol: Some("HTTP/2"),
            in_progress: 1,
            at_once: 2,
            most: 3,
            slowed: None,
        };
        let shown = hosts((0..=MOST_HOSTS).map(load).collect());
        assert_eq!(shown.len(), MOST_HOSTS);
        assert!(shown[0].origin.starts_with("https://0.0."));
        assert!(
            shown
                .iter()
                .all(|host| host.origin.len() < 2 * LONGEST_ORIGIN)
        );
        let numbers = (shown[0].requests, shown[0].at_once, shown[0].most);
        assert_eq!(numbers, (1, 2, 3));
    }

    /// A Source with a set.
    async fn followed() -> TestSource {
        let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
        let source = TestSource::new(&list, |client| client);
        source.store.begin_set(NAME, &list).await.unwrap();
        source
    }

    /// The status of so many Sources, each of which is this one.
    async fn status_of(source: &TestSource, sources: usize) -> Status {
        let contexts = vec![Arc::clone(&source.context); sources];
        let now = clock::now().wall;
        let status = status(
            &source.store,
            &source.context.runtime_status,
            now,
            &contexts,
        );
        let status = tokio::time::timeout(LIMIT, status).await;
        status.unwrap().unwrap()
    }

    /// A channel of that set at a hub.
    async fn add_channel(source: &TestSource, set: SetId, hub: &str) -> ChannelId {
        let topic = TopicUri::parse("https://example.org/topic").unwrap();
        let hubs = [HubUri::parse(hub).unwrap()];
        let keys = CallbackKeys {
            token: "token".to_owned(),
            secret: None,
        };
        let now = clock::now().wall;
        let kind = Capability::ChangeNotification;
        let (store, channel) = (&source.store, Channel::new(now, &topic, &hubs));
        store
            .insert_channel(set, &kind, channel, keys)
            .await
            .unwrap()
            .id
    }

    async fn shown_channel(source: &TestSource) -> ChannelStatus {
        let mut status = status_of(source, 1).await;
        status.sources[0].sets[0].channels.remove(0)
    }

    /// The driver may still wait for the answer of a hub that has verified the subscription.
    #[tokio::test]
    async fn running_subscription_is_shown_without_an_earlier_failure() {
        let source = followed().await;
        let set = source.store.sets(NAME).await.unwrap()[0].id;
        let id = add_channel(&source, set, "https://hub.example/").await;
        let failure = StatusError::new("not-verified", "answered 202", clock::now().wall);
        let runtime_status = &source.context.runtime_status;
        runtime_status.note_channel(id, Some(failure));
        for (failures, code) in [(1, Some("not-verified")), (0, None)] {
            let activate = move |channel: &mut Channel| {
                channel.lease.state = ChannelState::Active;
                channel.lease.failures = failures;
            };
            let store = &source.store;
            store.change_channel(id, false, activate).await.unwrap();
            let shown = shown_channel(&source).await;
            assert_eq!(shown.state, "active");
            assert_eq!(shown.error.as_ref().map(|it| it.code.as_str()), code);
        }
        // Its driver renews nothing any more.
        let (panicked, _) = Restarts::of("driver of a channel", NAME).after_panic();
        runtime_status.note_channel(id, Some(panicked));
        let shown = shown_channel(&source).await;
        assert_eq!(shown.error.unwrap().code, "worker-panicked");
    }

    #[tokio::test]
    async fn denial_is_of_the_hub_that_has_denied() {
        let source = followed().await;
        let set = source.store.sets(NAME).await.unwrap()[0].id;
        let id = add_channel(&source, set, "https://one.example/").await;
        let hub = |uri: &str| HubUri::parse(uri).unwrap();
        let (one, other) = (hub("https://one.example/"), hub("https://other.example/"));
        let deny = move |channel: &mut Channel| {
            channel.lease.state = ChannelState::Denied;
            channel.denial = Some(Denial {
                hub: Some(one),
                reason: "no".to_owned(),
                at: clock::now().wall,
            });
            channel.hub = Some(other);
        };
        source.store.change_channel(id, false, deny).await.unwrap();
        let channel = source.store.channel(id).await.unwrap().unwrap();
        assert_eq!(channel.hub_name(), "https://other.example/");
        assert_eq!(denying_hub(&channel), Some("https://one.example/"));
        assert_eq!(shown_channel(&source).await.error.unwrap().code, "denied");
    }

    #[tokio::test]
    async fn status_waits_for_no_worker() {
        let source = followed().await;
        let _occupied = source.store.occupy_workers();
        let status = status_of(&source, 1).await;
        assert_eq!(status.sources[0].sets.len(), 1);
    }

    #[tokio::test]
    async fn status_of_many_sources_wakes_a_reader_once() {
        let source = followed().await;
        for sources in [0, 1, 100] {
            let before = source.store.commit_hook().queries();
            assert_eq!(status_of(&source, sources).await.sources.len(), sources);
            assert_eq!(source.store.commit_hook().queries() - before, 1);
        }
    }
}
