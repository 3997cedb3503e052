//! The complete Destination in process: a daemon follows a sample Source on loopback.

#![allow(
    clippy::unwrap_used,
    reason = "a test panics when a precondition fails"
)]

#[path = "../support/mod.rs"]
mod support;

mod attention;
mod baseline;
mod browser;
mod change_dumps;
mod change_lists;
mod conditions;
mod damaged;
mod deletions;
mod documents;
mod draft;
mod dumps;
mod duplicates;
mod economy;
mod endurance;
mod faults;
mod feed;
mod framework;
mod gaps;
mod hints;
mod hooks;
mod indexes;
mod late;
mod left_out;
mod limits;
mod linked;
mod metrics;
mod notifications;
mod order;
mod own_change_dumps;
mod packages;
mod packing;
mod page;
mod pages;
mod patches;
mod paths;
mod related_examples;
mod selection;
mod shared;
mod sitemaps;
mod status;
mod subscriptions;
mod undated;
mod unfollowed;
mod versions;
mod via;
