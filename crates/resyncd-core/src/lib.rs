//! CORE. Decides what to do: which intervals of the Source's time are covered, which notification is next, what a change
//! means for the mirror, which channels to subscribe to, when to renew a lease and when to poll.
//!
//! Every type here is a value: it gets an event and the current time, and returns what to do.
//!
//! | module | what it does |
//! |---|---|
//! | | **values** |
//! | `uri`, `transport` | URIs, one type for each purpose; over what the notifications of a channel come |
//! | `now` | a moment on the clocks of this machine |
//! | `error_class` | whose an error is, and whether it may pass by itself |
//! | `validators` | what distinguishes one served version from the next |
//! | `redaction`, `visible_text` | remote text without secrets; for a terminal or a log |
//! | | **of a set** |
//! | `offer` | what a Capability List, a Source Description or a Sitemap offers |
//! | `selection`, `linked` | which resources are selected; which linked ones are fetched |
//! | `coverage` | the intervals of the Source's time in which every change is known |
//! | `sequencer` | which notification or Change List is next, and when one is missing: it moves the coverage |
//! | `span` | what one or more Change Lists cover |
//! | `schedule`, `push_watchdog` | when to poll; whether push has silently stopped |
//! | `part` | which parts of an index are read again |
//! | `absence` | whether what a list does not name does not exist |
//! | | **of a change** |
//! | `news_filter` | which entries of a document may be news |
//! | `statement` | what the sets state of a resource, and what a new entry means beside that |
//! | `decide` | what is to be done with a resource, from what is stated, what the mirror has, and what the Source has answered |
//! | `deletion_guard` | whether deletions need the approval of a person |
//! | `recorded_file` | what a record of a file proves about what is announced |
//! | `undated` | when a resource is requested again whose entry states nothing of its content |
//! | `version_name` | the names of stored versions |
//! | | **of a download** |
//! | `candidates` | from which URIs, in which order |
//! | `circuit_breaker` | which hosts of duplicates are skipped for a while |
//! | | **of a channel** |
//! | `channel` | what is requested of which hub, service or Source, and when; the dates of a subscription are a [`Lease`] |
//!
//! Invariants: a change is ignored only if something at least as new is known of its own resource; a gap is closed only by
//! documents that cover it; a deletion requires proof. Times of the Source are [`SourceTime`](resourcesync::SourceTime)s,
//! times of this machine are [`Now`]. The two are compared only to recognize times of the Source that lie in
//! the future, and to detect a time of a part that is not over yet.
//!
//! It must not know XML, HTTP, paths, SQL, serde or a clock, and performs no I/O.
//!
//! Specification: Change Notification 1.0.1, section 3 (consecutive, non-overlapping intervals); core, sections 10.1 and
//! 12.1 (`at`, `from`, `until`); WebSub, sections 5 and 6 (leases).

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod absence;
mod candidates;
mod channel;
mod circuit_breaker;
mod coverage;
mod decide;
mod deletion_guard;
mod error_class;
mod linked;
mod news_filter;
mod now;
mod offer;
mod part;
mod push_watchdog;
mod recorded_file;
mod redaction;
mod schedule;
mod selection;
mod sequencer;
mod span;
mod statement;
#[cfg(test)]
mod test_clock;
mod transport;
mod undated;
mod uri;
mod validators;
mod version_name;
mod visible_text;

pub use absence::{AbsenceFacts, AbsenceProof};
pub use candidates::{
    Candidate, Expected, VersionPlaces, names_version, plan_candidates, plan_version,
};
pub use channel::{
    CallbackChange, CallbackOwner, CallbackSlot, Callbacks, Channel, ChannelAction, ChannelChoice,
    ChannelEvent, ChannelFailure, ChannelKey, ChannelMachine, ChannelReport, ChannelRules,
    ChannelStep, ConnectionStep, DeliveryFault, DeliveryFaultKind, Denial, HubRequest,
    NOT_VERIFIED, choose_channels,
};
pub use circuit_breaker::HostCircuitBreaker;
pub use coverage::Coverage;
pub use decide::{Absence, Answer, Decision, Desired, Record, SetFacts, behind_of_older, decide};
pub use deletion_guard::needs_approval;
pub use error_class::ErrorClass;
pub use linked::{LinkRules, LinkTargets, LinkedAs, LinkedResource};
pub use news_filter::NewsFilter;
pub use now::{ClockStepDetector, Now};
pub use offer::{MAX_HUBS, MAX_OFFERS, Offer};
pub use part::{KnownPart, PartPlan, plan_part, trusted_check_times, unchanged_proof};
pub use push_watchdog::PushWatchdog;
pub use recorded_file::{ContentMatch, LocalState, RecordedFile, share_digest};
pub use redaction::{Redaction, percent_decoded};
pub use schedule::{Pacing, Schedule};
pub use selection::{Criteria, MediaRange, Selection, Standing};
pub use sequencer::{
    Gap, GapReason, Limits, NoCoverage, NotificationId, Sequencer, Verdict, is_plausible,
    latest_plausible, latest_source_time,
};
pub use span::Span;
pub use statement::{
    Applied, Entry, LateChange, Revision, SetKey, Stated, Statement, Voice, apply,
};
pub use transport::{Transport, http_form};
pub use undated::{CheckRules, DOUBTED_FROM, DOUBTED_MOST, is_undated, may_have_changed};
pub use uri::{HubUri, ResourceUri, TopicUri, UriError, hide_userinfo, identity};
pub use validators::{ServedVersion, Validators};
pub use version_name::{Memento, parse_version_name, version_name};
pub use visible_text::{one_line, visible_json};
/// A channel is in the state of its lease.
pub use websub::subscriber::LeaseState as ChannelState;
pub use websub::subscriber::{Lease, PendingRequest, VerificationAnswer};
