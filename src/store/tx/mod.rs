//! The use cases that write, one a file: what one transaction does, from the tables that it reads to the wakes that it sends.
//!
//! Each is a method of [`Store`](super::Store), which runs it as one job of the writer, or as several where it goes in steps. What several
//! of them share has files of its own, such as [`batch_context`], [`resource_state`], [`membership`], [`statements`], [`settle`] and
//! [`deletion_guard`]. What is to be done with a resource is decided by [`resyncd_core::decide()`] from its [`statements`]; [`settle`] makes
//! a task of that.

pub(super) mod batch_context;
pub(super) mod deletion_guard;
mod linked;
mod membership;
mod resource_state;
pub(super) mod settle;
pub(super) mod statements;
mod undated;

pub(super) mod adopt;
pub(super) mod approve;
mod audits;
pub(super) mod begin_list;
pub(super) mod compact_feed;
pub(super) mod complete;
pub(super) mod delete_absent;
pub(super) mod doubt;
pub(super) mod feed_readers;
pub(super) mod folder;
pub(super) mod forget;
mod former_sets;
pub(super) mod hooks;
pub(super) mod ingest;
pub(super) mod ingest_listed;
mod list_deletion;
pub(super) mod list_parts;
pub(super) mod mirror;
pub(super) mod packages;
mod paused;
pub(super) mod published;
pub(super) mod receive;
pub(super) mod relate;
mod repair;
pub(super) mod retry;
pub(super) mod sets;
pub(super) mod share;
pub(super) mod subscribe;
mod told;
pub(super) mod trim;
pub(super) mod unfollowed;
pub(super) mod uptime;
pub(super) mod versions;
