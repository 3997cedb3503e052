//! What the pages show of the status: plain values, worded, sorted and bounded, for the templates.
//!
//! Invariants: what a person should look at comes first. Every list is bounded, and what is left out is counted. Text from outside is
//! only shown: the templates escape it, and [`ShownLink`] decides what becomes a link.

use chrono::{DateTime, TimeDelta, Utc};

use super::chart::{Chart, charts};
use super::display::{
    Moment, ShownLink, bytes, counted, duration, number, resource_page, source_page, time,
};
use super::forms::Caller;
use super::strip::{GapRow, Strip, gap_rows, strip};
use crate::status::{
    Activity, Attention, ChannelStatus, CountedError, FailedResource, HeldDeletion, HookStatus,
    SetStatus, SourceStatus, Status, StatusError,
};
use crate::store::FeedEntry;

/// What every page has.
#[derive(Clone, Debug)]
pub(super) struct Shell {
    pub(super) version: String,
    pub(super) started: Moment,
    pub(super) now: Moment,
}

impl Shell {
    pub(super) fn of(status: &Status) -> Self {
        let now = now_of(status);
        Self {
            version: status.version.clone(),
            started: Moment::parse(&status.started_at, now),
            now: Moment::of(now, now),
        }
    }
}

/// When the status was requested.
pub(super) fn now_of(status: &Status) -> DateTime<Utc> {
    time(&status.now).unwrap_or_default()
}

/// How everything is, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Headline {
    /// `good`, `busy` or `bad`.
    pub(super) class: &'static str,
    pub(super) text: String,
}

pub(super) fn headline(status: &Status) -> Headline {
    let of_sources = status.sources.iter().map(|it| attentions_of(it).len());
    let attentions = status.attention.len() + of_sources.sum::<usize>();
    let sets = || status.sources.iter().flat_map(|source| &source.sets);
    let in_state = |state: &str| sets().filter(|set| set.state == state).count() as u64;
    let failing_sources = status.sources.iter().filter(|it| it.state == "failing");
    let discovering = status.sources.iter().filter(|it| it.state == "discovering");
    let mut parts = Vec::new();
    if attentions > 0 {
        parts.push(counted(attentions as u64, "thing needs", "things need") + " attention");
    }
    let mut add = |count: u64, one: &str, several: &str| {
        if count > 0 {
            parts.push(counted(count, one, several));
        }
    };
    add(
        failing_sources.count() as u64,
        "Source is failing",
        "Sources are failing",
    );
    add(in_state("failing"), "set is failing", "sets are failing");
    add(in_state("gap"), "set has a gap", "sets have gaps");
    let is_bad = !parts.is_empty();
    let mut add = |count: u64, one: &str, several: &str| {
        if count > 0 {
            parts.push(counted(count, one, several));
        }
    };
    add(
        in_state("baseline"),
        "set makes its first copy",
        "sets make their first copies",
    );
    add(in_state("catching-up"), "set catches up", "sets catch up");
    add(
        discovering.count() as u64,
        "Source is being discovered",
        "Sources are being discovered",
    );
    let is_busy = !parts.is_empty();
    let in_sync = in_state("in-sync");
    let text = if is_busy {
        if in_sync > 0 {
            parts.push(counted(in_sync, "set is in sync", "sets are in sync"));
        }
        parts.join(", ")
    } else {
        format!(
            "Everything is in sync: {} of {}",
            counted(in_sync, "set", "sets"),
            counted(status.sources.len() as u64, "Source", "Sources")
        )
    };
    Headline {
        class: match (is_bad, is_busy) {
            (true, _) => "bad",
            (false, true) => "busy",
            (false, false) => "good",
        },
        text,
    }
}

/// A button.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Button {
    /// Unique on its page: the script gives the focus back to it.
    pub(super) id: String,
    /// Where its form is sent.
    pub(super) action: String,
    pub(super) label: &'static str,
    /// What has to be read before it is seen; `None`: nothing is lost by it.
    pub(super) warning: Option<String>,
}

/// What can be done about a Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperatorAction {
    Poll,
    Retry,
    Approve,
    Reject,
    UndoReject,
}

/// Makes the buttons of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buttons {
    /// The way from the page to `/`, so that the page also works below a path of a reverse proxy.
    pub(super) root: &'static str,
    /// The page whose forms they are: the answer leads back to it.
    pub(super) page: Caller,
}

impl Buttons {
    fn button(self, source: &SourceStatus, action: OperatorAction, place: &str) -> Button {
        let (name, label) = match action {
            OperatorAction::Poll => ("poll", "Poll now"),
            OperatorAction::Retry => ("retry", "Try again now"),
            OperatorAction::Approve => ("approve", "Delete these files"),
            OperatorAction::Reject => ("reject", "Keep the files"),
            OperatorAction::UndoReject => ("undo-reject", "Hold them back again"),
        };
        let held: u64 = source.sets.iter().map(|set| set.held_deletions).sum();
        let mut query = self.page.query();
        if matches!(action, OperatorAction::Approve | OperatorAction::Reject) {
            // Where nothing was counted nothing is decided.
            let through = source.held_through().unwrap_or(0);
            // What is held back after the page was made is not decided by whoever has read it.
            query += &format!("&through={through}");
        }
        let warning = (action == OperatorAction::Approve).then(|| {
            let deletions = counted(held, "deletion", "deletions");
            format!(
                "This approves {deletions} of {}: the files are removed from the mirror.",
                source.name
            )
        });
        Button {
            id: format!("{name}-{}-{place}", source.name),
            action: format!("{}sources/{}/{name}{query}", self.root, source.name),
            label,
            warning,
        }
    }
}

/// What waits for a person.
#[derive(Clone, Debug)]
pub(super) struct AttentionRow {
    /// The Source and its page; `None`: it is about the daemon.
    pub(super) source: Option<(String, String)>,
    /// The Capability List of the set; `None`: it is about the Source, or the daemon.
    pub(super) set: Option<String>,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) since: Moment,
    pub(super) next_step: String,
    pub(super) buttons: Vec<Button>,
}

fn attentions_of(source: &SourceStatus) -> Vec<(Option<&SetStatus>, &Attention)> {
    let of_source = source.attention.iter().map(|attention| (None, attention));
    let of_sets = source.sets.iter().flat_map(|set| {
        let attentions = set.attention.iter();
        attentions.map(move |attention| (Some(set), attention))
    });
    of_source.chain(of_sets).collect()
}

/// What of the daemon and of these Sources waits for a person, and how much more there is.
pub(super) fn attention_rows<'a>(
    of_daemon: &'a [Attention],
    sources: impl Iterator<Item = &'a SourceStatus>,
    buttons: Buttons,
    now: DateTime<Utc>,
) -> (Vec<AttentionRow>, usize) {
    const MOST: usize = 50;
    let of_sources = sources.flat_map(|source| {
        let attentions = attentions_of(source).into_iter();
        attentions.map(move |(set, attention)| (Some(source), set, attention))
    });
    let of_daemon = of_daemon.iter().map(|attention| (None, None, attention));
    let found: Vec<_> = of_daemon.chain(of_sources).collect();
    let more = found.len().saturating_sub(MOST);
    let rows = found.into_iter().take(MOST).enumerate();
    let rows = rows.map(|(number, (source, set, attention))| {
        let actions: &[OperatorAction] = match attention.code.as_str() {
            "held-deletions" => &[OperatorAction::Approve, OperatorAction::Reject],
            "failed-resources" => &[OperatorAction::Retry],
            "channel-unverified"
            | "channel-denied"
            | "channel-expired"
            | "channel-unconnected"
            | "channel-unregistered" => &[OperatorAction::Poll],
            _ => &[],
        };
        let place = format!("attention{number}");
        let page = |source: &SourceStatus| source_page(buttons.root, &source.name);
        let actions = actions.iter();
        AttentionRow {
            source: source.map(|source| (source.name.clone(), page(source))),
            set: set.map(|set| set.capability_list.clone()),
            code: attention.code.clone(),
            message: attention.message.clone(),
            since: Moment::parse(&attention.since, now),
            next_step: attention.next_step.clone(),
            buttons: actions
                .filter_map(|&it| Some(buttons.button(source?, it, &place)))
                .collect(),
        }
    });
    (rows.collect(), more)
}

/// An error, or a notice.
#[derive(Clone, Debug)]
pub(super) struct ErrorRow {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) at: Moment,
    pub(super) count: u64,
}

impl ErrorRow {
    fn of(error: &StatusError, now: DateTime<Utc>) -> Self {
        Self {
            code: error.code.clone(),
            message: error.message.clone(),
            at: Moment::parse(&error.at, now),
            count: 1,
        }
    }

    fn rows(errors: &[CountedError], now: DateTime<Utc>) -> Vec<Self> {
        let row = |error: &CountedError| Self {
            code: error.code.clone(),
            message: error.message.clone(),
            at: Moment::parse(&error.at, now),
            count: error.count,
        };
        errors.iter().map(row).collect()
    }
}

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct ChannelView {
    pub(super) kind: String,
    pub(super) state: String,
    pub(super) transport: String,
    pub(super) topic: ShownLink,
    pub(super) hub: Option<ShownLink>,
    pub(super) lease_ends: Option<Moment>,
    pub(super) renewal: Option<Moment>,
    pub(super) last_notification: Option<Moment>,
    pub(super) received: String,
    pub(super) applied: String,
    pub(super) duplicate: String,
    pub(super) rejected: String,
    pub(super) held: String,
    pub(super) gaps: String,
    pub(super) inbox: String,
    pub(super) error: Option<ErrorRow>,
}

impl ChannelView {
    fn of(channel: &ChannelStatus, now: DateTime<Utc>) -> Self {
        Self {
            kind: channel.kind.clone(),
            state: channel.state.clone(),
            transport: channel.transport.clone(),
            topic: ShownLink::of(&channel.topic),
            hub: channel.hub.as_deref().map(ShownLink::of),
            lease_ends: Moment::parse_some(channel.lease_expires_at.as_ref(), now),
            renewal: Moment::parse_some(channel.renew_at.as_ref(), now),
            last_notification: Moment::parse_some(channel.last_notification_at.as_ref(), now),
            received: number(channel.received),
            applied: number(channel.applied),
            duplicate: number(channel.duplicate),
            rejected: number(channel.rejected),
            held: number(channel.held),
            gaps: number(channel.gaps),
            inbox: number(channel.inbox),
            error: channel.error.as_ref().map(|it| ErrorRow::of(it, now)),
        }
    }
}

/// How much of a Source a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// One of many.
    Brief,
    /// The page is about it.
    Full,
}

impl Detail {
    fn sets(self) -> usize {
        match self {
            Self::Brief => 4,
            Self::Full => 50,
        }
    }

    fn gaps(self) -> usize {
        match self {
            Self::Brief => 3,
            Self::Full => 50,
        }
    }
}

/// A set.
#[derive(Clone, Debug)]
pub(super) struct SetView {
    /// Unique on its page.
    pub(super) id: String,
    pub(super) name: ShownLink,
    pub(super) state: String,
    pub(super) synced_until: Option<Moment>,
    /// How far it is behind; `None`: it is not, or that is not known.
    pub(super) behind: Option<String>,
    /// When it was checked that it is in sync; `None`: it is not.
    pub(super) checked: Option<Moment>,
    pub(super) failing: Option<FailingView>,
    pub(super) resources: String,
    pub(super) bytes: String,
    pub(super) pending: String,
    pub(super) failed: String,
    pub(super) held: String,
    /// Whether any of those that should be none is not: they stand out.
    pub(super) has_failed: bool,
    pub(super) has_held: bool,
    pub(super) strips: Vec<Strip>,
    pub(super) gaps: Vec<GapRow>,
    pub(super) more_gaps: usize,
    pub(super) channels: Vec<ChannelView>,
    pub(super) newest: Option<Moment>,
    pub(super) last_poll: Option<Moment>,
    pub(super) next_poll: Option<Moment>,
    pub(super) errors: Vec<ErrorRow>,
    pub(super) notices: Vec<ErrorRow>,
    /// Counts that are none where all is well, in words.
    pub(super) unproven: Vec<String>,
    pub(super) oddities: Vec<(ShownLink, String, u64)>,
    pub(super) describedby: Vec<ShownLink>,
}

impl SetView {
    fn of(set: &SetStatus, id: String, detail: Detail, now: DateTime<Utc>) -> Self {
        let moment = |text: &Option<String>| Moment::parse_some(text.as_ref(), now);
        let is_in_sync = set.state == "in-sync";
        let behind = set.behind(Some(now)).filter(|_| !is_in_sync);
        let behind = behind.map(|behind| duration(behind.num_seconds()));
        let unproven = [
            (
                set.undated,
                "undated resource is requested again",
                "undated resources are requested again",
            ),
            (
                set.unavailable,
                "resource is unavailable: the Source has refused or lacked it for a week, or its robots.txt disallows it",
                "resources are unavailable: the Source has refused or lacked them for a week, or its robots.txt disallows them",
            ),
            (set.unread, "entry can't be read", "entries can't be read"),
            (set.dead_parts, "part can't be read", "parts can't be read"),
        ];
        let unproven = unproven.into_iter().filter(|(count, ..)| *count > 0);
        let (gaps, more_gaps) = gap_rows(set, detail.gaps(), now);
        let lengths: &[TimeDelta] = match detail {
            Detail::Brief => &[TimeDelta::hours(1)],
            Detail::Full => &[TimeDelta::hours(1), TimeDelta::hours(24)],
        };
        let oddities = set.oddities.iter();
        Self {
            id,
            name: ShownLink::of(&set.capability_list),
            state: set.state.clone(),
            synced_until: moment(&set.synced_until),
            behind,
            checked: moment(&set.last_request_at).filter(|_| is_in_sync),
            failing: FailingView::of(
                [&set.failing_since, &set.last_request_at, &set.next_try_at],
                now,
            ),
            resources: number(set.resources),
            bytes: bytes(set.bytes),
            pending: number(set.pending),
            failed: number(set.failed),
            held: number(set.held_deletions),
            has_failed: set.failed > 0,
            has_held: set.held_deletions > 0,
            strips: lengths.iter().map(|&it| strip(set, it, now)).collect(),
            gaps,
            more_gaps,
            channels: set
                .channels
                .iter()
                .map(|it| ChannelView::of(it, now))
                .collect(),
            newest: moment(&set.newest_document_at),
            last_poll: moment(&set.last_poll_at),
            next_poll: moment(&set.next_poll_at),
            errors: ErrorRow::rows(&set.errors, now),
            notices: ErrorRow::rows(&set.notices, now),
            unproven: unproven
                .map(|(count, one, several)| counted(count, one, several))
                .collect(),
            oddities: oddities
                .map(|it| (ShownLink::of(&it.document), it.code.clone(), it.count))
                .collect(),
            describedby: set.describedby.iter().map(|it| ShownLink::of(it)).collect(),
        }
    }
}

/// Since when a Source or a set fails, when it was asked last, and when it is tried next.
#[derive(Clone, Debug)]
pub(super) struct FailingView {
    pub(super) since: Moment,
    pub(super) last: Option<Moment>,
    pub(super) next: Option<Moment>,
}

impl FailingView {
    fn of([since, last, next]: [&Option<String>; 3], now: DateTime<Utc>) -> Option<Self> {
        let moment = |text: &Option<String>| Moment::parse_some(text.as_ref(), now);
        Some(Self {
            since: moment(since)?,
            last: moment(last),
            next: moment(next),
        })
    }
}

/// A hook.
#[derive(Clone, Debug)]
pub(super) struct HookView {
    pub(super) name: String,
    pub(super) kind: String,
    /// `stopped`, `failing`, `running` or `waiting`.
    pub(super) state: &'static str,
    pub(super) position: String,
    pub(super) behind: String,
    pub(super) last_accepted: Option<Moment>,
    pub(super) next_try: Option<Moment>,
    pub(super) error: Option<ErrorRow>,
}

impl HookView {
    fn of(hook: &HookStatus, now: DateTime<Utc>) -> Self {
        let position = hook.position.and_then(|it| u64::try_from(it).ok());
        Self {
            name: hook.name.clone(),
            kind: hook.kind.clone(),
            state: match (hook.failing_since.is_some(), hook.running) {
                _ if hook.stopped => "stopped",
                (true, _) => "failing",
                (false, true) => "running",
                (false, false) => "waiting",
            },
            position: position.map_or_else(String::new, number),
            behind: number(hook.behind.unwrap_or_default()),
            last_accepted: Moment::parse_some(hook.last_accepted_at.as_ref(), now),
            next_try: Moment::parse_some(hook.next_try_at.as_ref(), now),
            error: hook.error.as_ref().map(|it| ErrorRow::of(it, now)),
        }
    }
}

/// A Source.
#[derive(Clone, Debug)]
pub(super) struct SourceView {
    pub(super) name: String,
    pub(super) page: String,
    pub(super) url: ShownLink,
    pub(super) mirror: String,
    pub(super) state: String,
    pub(super) failing: Option<FailingView>,
    pub(super) error: Option<ErrorRow>,
    pub(super) notices: Vec<ErrorRow>,
    pub(super) describedby: Vec<ShownLink>,
    pub(super) hooks: Vec<HookView>,
    pub(super) sets: Vec<SetView>,
    pub(super) more_sets: usize,
    /// What can be done about all of it.
    pub(super) buttons: Vec<Button>,
    /// What can be done about deletions that are held back.
    pub(super) held_buttons: Vec<Button>,
    /// The deletions that were rejected; `None`: there are none.
    pub(super) rejected: Option<String>,
    /// What can be done about them.
    pub(super) rejected_buttons: Vec<Button>,
    /// What can be done about what has failed.
    pub(super) failed_buttons: Vec<Button>,
}

impl SourceView {
    pub(super) fn of(
        source: &SourceStatus,
        detail: Detail,
        buttons: Buttons,
        now: DateTime<Utc>,
    ) -> Self {
        let mut sets: Vec<(usize, &SetStatus)> = source.sets.iter().enumerate().collect();
        sets.sort_by_key(|(_, set)| rank_of_set(set));
        let more_sets = sets.len().saturating_sub(detail.sets());
        let shown = sets.iter().take(detail.sets());
        let views = shown.map(|(number, set)| {
            let id = format!("set-{}-{number}", source.name);
            SetView::of(set, id, detail, now)
        });
        let button = |action| buttons.button(source, action, "source");
        let rejected: u64 = source.sets.iter().map(|set| set.rejected).sum();
        Self {
            name: source.name.clone(),
            page: source_page(buttons.root, &source.name),
            url: ShownLink::of(&source.url),
            mirror: source.mirror.clone(),
            state: source.state.clone(),
            error: source.error.as_ref().map(|it| ErrorRow::of(it, now)),
            failing: FailingView::of(
                [
                    &source.failing_since,
                    &source.last_request_at,
                    &source.next_try_at,
                ],
                now,
            ),
            notices: ErrorRow::rows(&source.notices, now),
            describedby: source
                .describedby
                .iter()
                .map(|it| ShownLink::of(it))
                .collect(),
            hooks: source
                .hooks
                .iter()
                .map(|it| HookView::of(it, now))
                .collect(),
            sets: views.collect(),
            more_sets,
            buttons: vec![button(OperatorAction::Poll)],
            held_buttons: vec![
                button(OperatorAction::Approve),
                button(OperatorAction::Reject),
            ],
            rejected: (rejected > 0).then(|| counted(rejected, "deletion was", "deletions were")),
            rejected_buttons: vec![button(OperatorAction::UndoReject)],
            failed_buttons: vec![button(OperatorAction::Retry)],
        }
    }
}

/// Smaller numbers come first.
fn rank_of_set(set: &SetStatus) -> u8 {
    match set.state.as_str() {
        _ if !set.attention.is_empty() => 0,
        "failing" => 1,
        "gap" => 2,
        "baseline" | "catching-up" => 3,
        _ => 4,
    }
}

fn rank_of_source(source: &SourceStatus) -> u8 {
    let of_sets = source.sets.iter().map(rank_of_set).min().unwrap_or(4);
    match source.state.as_str() {
        _ if !source.attention.is_empty() => 0,
        "failing" => of_sets.min(1),
        "discovering" => of_sets.min(3),
        _ => of_sets,
    }
}

/// The Sources, what needs attention first, else in the order of the configuration; and how many more there are.
pub(super) fn source_views(
    status: &Status,
    buttons: Buttons,
    now: DateTime<Utc>,
) -> (Vec<SourceView>, usize) {
    const MOST: usize = 100;
    let mut sources: Vec<&SourceStatus> = status.sources.iter().collect();
    sources.sort_by_key(|source| rank_of_source(source));
    let more = sources.len().saturating_sub(MOST);
    let shown = sources.into_iter().take(MOST);
    let views = shown.map(|source| SourceView::of(source, Detail::Brief, buttons, now));
    (views.collect(), more)
}

/// The diagrams, and since when everything is counted, if they reach further back.
#[derive(Clone, Debug)]
pub(super) struct Diagrams {
    pub(super) charts: Vec<Chart>,
    pub(super) since: Option<Moment>,
}

impl Diagrams {
    pub(super) fn of(activity: &Activity, now: DateTime<Utc>) -> Self {
        let is_whole = activity.since <= now - TimeDelta::hours(24);
        Self {
            charts: charts(activity),
            since: (!is_whole).then(|| Moment::of(activity.since, now)),
        }
    }
}

/// An applied change.
#[derive(Clone, Debug)]
pub(super) struct ChangeRow {
    pub(super) seq: i64,
    pub(super) applied: Moment,
    pub(super) source: String,
    pub(super) source_page: String,
    pub(super) uri: String,
    pub(super) page: String,
    pub(super) change: String,
    pub(super) origin: String,
    pub(super) changed: Option<Moment>,
    /// How long after the change it was applied.
    pub(super) delay: Option<String>,
    pub(super) length: Option<String>,
}

pub(super) fn change_rows(
    entries: &[FeedEntry],
    root: &'static str,
    now: DateTime<Utc>,
) -> Vec<ChangeRow> {
    let row = |entry: &FeedEntry| {
        let changed_at = entry.changed_at.map(|time| time.to_datetime());
        // What a list states may have happened long before the mirror was begun.
        let is_listed = matches!(
            entry.origin.as_str(),
            "resource-list" | "resource-dump" | "audit"
        );
        let delay = changed_at.filter(|_| !is_listed);
        ChangeRow {
            seq: entry.seq,
            applied: Moment::of(entry.applied_at, now),
            source: entry.source.clone(),
            source_page: source_page(root, &entry.source),
            uri: entry.uri.clone(),
            page: resource_page(root, &entry.uri),
            change: entry.change.clone(),
            origin: entry.origin.clone(),
            changed: changed_at.map(|time| Moment::of(time, now)),
            delay: delay.map(|changed_at| delay_text(entry.applied_at - changed_at)),
            length: entry.length.map(bytes),
        }
    };
    entries.iter().map(row).collect()
}

/// A delay. The Source's clock may be ahead of ours.
fn delay_text(delay: TimeDelta) -> String {
    let milliseconds = delay.num_milliseconds().max(0);
    match milliseconds {
        ..1000 => format!("{milliseconds} ms"),
        1000..10_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => duration(milliseconds / 1000),
    }
}

/// A resource whose change was given up.
#[derive(Clone, Debug)]
pub(super) struct FailedRow {
    pub(super) uri: String,
    pub(super) page: String,
    pub(super) change: String,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) since: Moment,
    pub(super) next_try: Option<Moment>,
}

pub(super) fn failed_rows(
    failed: &[FailedResource],
    root: &'static str,
    now: DateTime<Utc>,
) -> Vec<FailedRow> {
    let row = |failed: &FailedResource| FailedRow {
        uri: failed.uri.clone(),
        page: resource_page(root, &failed.uri),
        change: failed.change.clone(),
        code: failed.code.clone(),
        message: failed.message.clone(),
        since: Moment::parse(&failed.since, now),
        next_try: Moment::parse_some(failed.next_try_at.as_ref(), now),
    };
    failed.iter().map(row).collect()
}

/// A deletion that is held back.
#[derive(Clone, Debug)]
pub(super) struct HeldRow {
    pub(super) uri: String,
    pub(super) page: String,
    pub(super) path: Option<String>,
    pub(super) length: Option<String>,
    pub(super) changed: Option<Moment>,
    pub(super) origin: String,
    pub(super) linked: u64,
}

pub(super) fn held_rows(
    held: &[HeldDeletion],
    root: &'static str,
    now: DateTime<Utc>,
) -> Vec<HeldRow> {
    let row = |held: &HeldDeletion| HeldRow {
        uri: held.uri.clone(),
        page: resource_page(root, &held.uri),
        path: held.path.clone(),
        length: held.length.map(bytes),
        changed: Moment::parse_some(held.changed_at.as_ref(), now),
        origin: held.origin.clone(),
        linked: held.linked,
    };
    held.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(state: &str, codes: &[&str]) -> serde_json::Value {
        let attention = codes.iter().map(
            |code| json!({ "code": code, "message": "m", "since": "2026-01-01T00:00:00Z", "next_step": "n" }),
        );
        json!({
            "capability_list": format!("https://example.org/{state}"), "state": state,
            "attention": attention.collect::<Vec<_>>(),
            "synced_until": "2026-01-01T00:00:00Z", "gaps": [], "resources": 1, "bytes": 1, "pending": 0, "failed": 0,
            "held_deletions": 7, "held_through": 3, "channels": [], "last_poll_at": null, "next_poll_at": null, "error": null
        })
    }

    fn status(sources: &[(&str, Vec<serde_json::Value>)]) -> Status {
        let sources = sources.iter().map(|(name, sets)| {
            let state = if sets.is_empty() { "discovering" } else { "ok" };
            json!({ "name": name, "url": "u", "mirror": "m", "state": state, "error": null, "sets": sets })
        });
        serde_json::from_value(json!({
            "version": "1", "started_at": "2026-01-01T00:00:00Z", "now": "2026-01-01T00:02:00Z",
            "sources": sources.collect::<Vec<_>>()
        }))
        .unwrap()
    }

    const BUTTONS: Buttons = Buttons {
        root: "./",
        page: Caller::FrontPage,
    };

    #[test]
    fn headline_states_the_worst_first() {
        for (sets, class, text) in [
            (
                vec![set("in-sync", &[])],
                "good",
                "Everything is in sync: 1 set of 1 Source",
            ),
            (
                vec![set("in-sync", &[]), set("catching-up", &[])],
                "busy",
                "1 set catches up, 1 set is in sync",
            ),
            (
                vec![set("in-sync", &[]), set("gap", &[]), set("gap", &[])],
                "bad",
                "2 sets have gaps, 1 set is in sync",
            ),
            (
                vec![set("catching-up", &["held-deletions"])],
                "bad",
                "1 thing needs attention, 1 set catches up",
            ),
            (vec![], "busy", "1 Source is being discovered"),
        ] {
            let found = headline(&status(&[("a", sets)]));
            assert_eq!((found.class, found.text.as_str()), (class, text));
        }
    }

    #[test]
    fn what_needs_attention_comes_first() {
        let status = status(&[
            ("well", vec![set("in-sync", &[])]),
            ("behind", vec![set("in-sync", &[]), set("catching-up", &[])]),
            (
                "held",
                vec![set("in-sync", &[]), set("catching-up", &["held-deletions"])],
            ),
            ("also-well", vec![set("in-sync", &[])]),
            ("failing", vec![set("failing", &[])]),
        ]);
        let (views, more) = source_views(&status, BUTTONS, now_of(&status));
        let names: Vec<&str> = views.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["held", "failing", "behind", "well", "also-well"]);
        assert_eq!(more, 0);
        let held = &views[0].sets;
        assert_eq!(
            (held[0].state.as_str(), held[0].id.as_str()),
            ("catching-up", "set-held-1")
        );
        assert_eq!(held[0].behind.as_deref(), Some("2 min 0 s"));
        assert_eq!(held[1].behind, None);
    }

    #[test]
    fn attention_has_the_buttons_that_help() {
        let status = status(&[(
            "a",
            vec![set(
                "gap",
                &["held-deletions", "failed-resources", "mirror-unusable"],
            )],
        )]);
        let now = now_of(&status);
        let (rows, _) = attention_rows(&[], status.sources.iter(), BUTTONS, now);
        let actions = |row: &AttentionRow| -> Vec<String> {
            row.buttons.iter().map(|it| it.action.clone()).collect()
        };
        assert_eq!(
            actions(&rows[0]),
            [
                "./sources/a/approve?back=front&through=3",
                "./sources/a/reject?back=front&through=3"
            ]
        );
        assert_eq!(actions(&rows[1]), ["./sources/a/retry?back=front"]);
        assert!(actions(&rows[2]).is_empty());
        // What can't be undone says so.
        let approve = &rows[0].buttons[0];
        assert!(
            approve
                .warning
                .as_ref()
                .unwrap()
                .contains("7 deletions of a")
        );
        assert_eq!(rows[0].buttons[1].warning, None);
    }

    #[test]
    fn what_the_daemon_needs_is_shown_first_and_counted() {
        let mut status = status(&[("a", vec![set("in-sync", &["failed-resources"])])]);
        let since = "2026-01-01T00:00:00Z".to_owned();
        let refused = Attention::new("configuration-refused", "m", since, "n");
        status.attention = vec![refused];
        assert_eq!(headline(&status).class, "bad");
        assert!(
            headline(&status)
                .text
                .starts_with("2 things need attention")
        );
        let sources = status.sources.iter();
        let (rows, _) = attention_rows(&status.attention, sources, BUTTONS, now_of(&status));
        assert_eq!(rows[0].code, "configuration-refused");
        assert!(rows[0].source.is_none() && rows[0].buttons.is_empty());
        assert_eq!(rows[1].source.as_ref().unwrap().0, "a");
    }

    #[test]
    fn lists_are_bounded() {
        let sets = || (0..60).map(|_| set("in-sync", &["held-deletions"]));
        let names: Vec<String> = (0..150).map(|number| format!("s{number}")).collect();
        let sources: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), sets().take(5).collect()))
            .collect();
        let many = status(&sources);
        let now = now_of(&many);
        let (views, more) = source_views(&many, BUTTONS, now);
        assert_eq!((views.len(), more), (100, 50));
        assert_eq!((views[0].sets.len(), views[0].more_sets), (4, 1));
        let (rows, more) = attention_rows(&[], many.sources.iter(), BUTTONS, now);
        assert_eq!((rows.len(), more), (50, 700));
        let one = status(&[("a", sets().collect())]);
        let view = SourceView::of(&one.sources[0], Detail::Full, BUTTONS, now);
        assert_eq!((view.sets.len(), view.more_sets), (50, 10));
    }

    #[test]
    fn gaps_that_are_not_listed_are_counted() {
        let mut of_gaps = set("gap", &[]);
        let gap = json!({ "from": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:00:01Z", "reason": "r", "since": "2026-01-01T00:00:00Z" });
        of_gaps["gaps"] = vec![gap; 60].into();
        let status = status(&[("a", vec![of_gaps])]);
        let now = now_of(&status);
        for (detail, listed) in [(Detail::Brief, 3), (Detail::Full, 50)] {
            let view = SourceView::of(&status.sources[0], detail, BUTTONS, now);
            let set = &view.sets[0];
            assert_eq!((set.gaps.len(), set.more_gaps), (listed, 60 - listed));
        }
    }

    #[test]
    fn delays_are_short_texts() {
        for (milliseconds, expected) in [
            (-5, "0 ms"),
            (999, "999 ms"),
            (1250, "1.2 s"),
            (65_000, "1 min 5 s"),
        ] {
            assert_eq!(delay_text(TimeDelta::milliseconds(milliseconds)), expected);
        }
    }
}
