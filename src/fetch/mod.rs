//! SHELL, outbound HTTP: the guarded client, documents, content, topics and their hubs, discovery.
//!
//! What this room promises:
//! - Never from outside to inside: [`Client`] contacts public addresses only, unless the configuration allows others. That
//!   is checked on every URL, at every redirect, and on every address that a name resolves to, at the moment it is
//!   connected to.
//! - Everything ends: connecting, waiting for an answer, every pause in a body, redirects, retries, documents that claim to
//!   be small and are not.
//! - One host gets so many requests at once and no more; downloads of resources never keep documents and hubs waiting,
//!   and packages, one at a time, nobody at all.
//! - A document is handed on whole or not at all, decompressed, and can be read several times. A resource is handed on
//!   exactly as it is served, a chunk at a time. A package goes to disk, and goes on where it was cut short.
//!
//! It knows URLs, documents and hubs. It does not know why something is fetched, where it is kept or what it means for
//! the state of a set. It imports the protocol, the clock and the configuration, nothing else of this program.
//!
//! Specification: ANSI/NISO Z39.99-2014, sections 6.3 (discovery), 11 and 13 (packages); WebSub, sections 4 (topics) and 5.1 (requests to hubs); RFC 9110.

mod capability_list;
mod client;
mod content;
mod discovery;
mod document;
mod document_stats;
mod error;
mod guard;
mod http_date;
mod hub;
mod link_tags;
mod package;
mod permits;
mod probe;
mod retry;
mod spool;
mod topic;
mod validators;
mod web_page;

#[cfg(test)]
mod test_site;
#[cfg(test)]
pub(crate) mod transport;

pub use capability_list::{Advertised, CapabilityList};
pub use client::Client;
pub use content::{AllowedHosts, Content};
pub use discovery::{Discovery, DiscoveryError, KnownWay};
pub use document::{Fetched, FetchedDocument, OwnedReader};
pub use document_stats::{Changes, Insight, Insights};
pub use error::{Disposition, FetchError};
pub use guard::is_public;
pub use hub::HubAnswer;
pub use package::{Member, Package, PackageError, PartialPackage};
pub use retry::{Bounds, pause, retry};
pub use topic::TopicLinks;
pub use validators::{KnownVersion, Validators};
