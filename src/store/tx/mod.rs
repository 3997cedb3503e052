//! The use cases that write, one a file: what one transaction does, from the tables that it reads to the wakes that it sends.
//!
//! Each is a method of [`Store`](super::Store), which runs it as one job of the writer, or as several where it goes in steps. What several
//! of them share has files of its own, such as [`batch_context`], [`resource_state`], [`membership`], [`put_task`], [`deletion_guard`] and
//! [`restore`]. What a single change means is decided by `plan_*` of [`resyncd_core`]; here, whether it is one of a set.

mod batch_context;
pub(super) mod deletion_guard;
mod linked;
mod membership;
mod put_task;
mod resource_state;
mod undated;

pub(super) mod adopt;
pub(super) mod approve;
pub(super) mod begin_list;
pub(super) mod compact_feed;
pub(super) mod complete;
pub(super) mod cross_check;
pub(super) mod delete_absent;
pub(super) mod doubt;
pub(super) mod feed_readers;
pub(super) mod forget;
mod former_sets;
pub(super) mod hooks;
pub(super) mod ingest;
pub(super) mod ingest_listed;
mod list_deletion;
pub(super) mod list_parts;
pub(super) mod mirror;
pub(super) mod packages;
pub(super) mod receive;
pub(super) mod relate;
mod repair;
pub(super) mod restore;
pub(super) mod retry;
pub(super) mod sets;
pub(super) mod subscribe;
pub(super) mod trim;
pub(super) mod unfollowed;
pub(super) mod uptime;
pub(super) mod versions;
