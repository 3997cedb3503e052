//! The SQL of the database, with the records that rows become: a file for each table, together with the tables that only it uses, and
//! `forgotten` for what removes a Source from all of them. A file has the name of its table, but for `membership` (the table `member`),
//! `process` (`session`) and `recent_deletions` (`loss`). `identity`, `media_type`, `mirrored_path`, `served_version` and `values` have no table:
//! they convert values of columns.
//!
//! A function runs one statement, or a few that belong together, on the connection that it is given. It takes and returns
//! typed values, which [`values`] converts. It opens no transaction and sends no [`Wake`](super::Wake): use cases do, in
//! [`tx`](super::tx). A query that joins tables stands with the table whose rows it returns or changes.
//! What changes tasks requires a [`Tallied`](tally::Tallied) connection, which only a transaction that writes has.

pub(super) mod audit;
pub(super) mod channel;
pub(super) mod coverage;
pub(super) mod delivered;
pub(super) mod document;
pub(super) mod dropped_task;
pub(super) mod dump;
pub(super) mod dump_package;
pub(super) mod feed;
pub(super) mod feed_reader;
pub(super) mod followed_source;
pub(super) mod forgotten;
pub(super) mod gap;
pub(super) mod hook;
pub(super) mod identity;
pub(super) mod inbox;
pub(super) mod last_hold;
pub(super) mod linked;
mod media_type;
pub(super) mod membership;
pub(super) mod mirror;
pub(super) mod mirrored_path;
pub(super) mod package_file;
pub(super) mod part;
pub(super) mod paused;
pub(super) mod probe;
pub(super) mod process;
pub(super) mod published_set;
pub(super) mod recent_deletions;
pub(super) mod relation;
pub(super) mod removed_resource;
pub(super) mod resource;
pub(super) mod resource_count;
#[cfg(test)]
mod round_trip_tests;
mod served_version;
pub(super) mod source_set;
pub(super) mod statement;
pub(super) mod subscription;
pub(super) mod tally;
pub(super) mod task;
pub(super) mod told;
pub(super) mod uptime;
pub(super) mod values;
pub(super) mod version;
