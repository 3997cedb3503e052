//! What resyncd requests of others: the guarded client, documents, content, packages, topics and their hubs, discovery.
//!
//! | module | what it has |
//! |---|---|
//! | | **every request** |
//! | `settings`, `certificates`, `credentials`, `proxies` | how requests are made; what lets this client in |
//! | `client` | [`Client`], through which every request goes: guard, redirects, credentials, limits |
//! | `observer` | who counts requests |
//! | `network` | what answers in place of connections |
//! | `guard`, `host`, `connections` | which addresses may be contacted; the connections to them |
//! | `server_trust` | which certificates of servers are trusted |
//! | `permits` | how many requests a host gets at once, and the pauses between them |
//! | `pace` | how fast a Source may be requested |
//! | `robots` | what robots.txt allows, and how fast |
//! | `third_parties` | how many requests a Source can cause to hosts that are not its own |
//! | `retry`, `retry_after` | tries and pauses; the pause that a server asks for |
//! | `error` | why a request failed, and its class |
//! | | **what is fetched** |
//! | `document`, `spool` | a document, complete and decompressed; its body in memory or in a file |
//! | `content` | a resource, a chunk at a time, continued where it is cut short |
//! | `package_download` | a package is downloaded, and a download resumed |
//! | `ranges` | which answer continues a download |
//! | `validators`, `coding`, `http_date`, `link_header` | headers of requests and answers |
//! | `time_map` | TimeMaps of Memento |
//! | `probe` | what a server would answer, without the download |
//! | | **discovery** |
//! | `discovery` | from any entry point to the sets of a Source |
//! | `capability_list` | what one document is, and which documents it leads to |
//! | `web_page`, `link_tags` | the links of web pages and robots.txt; `link` tags |
//! | `document_summaries`, `entry_counts` | what the documents of a Source have, for `discover` |
//! | | **channels and hooks** |
//! | `topic`, `hub` | the hubs of a topic; requests to a hub, or to an interface of a Source |
//! | `upgrade` | a connection that speaks another protocol after its first answer |
//! | `callback` | the requests of a hub to its subscribers |
//! | `webhook`, `webhook_request` | requests of web hooks |
//!
//! Invariants:
//! - Never from outside to inside: [`Client`] contacts public addresses only, unless the configuration allows others. That is
//!   checked for every URL, every redirect, and every address that a name resolves to, at the moment of the connection. The host of
//!   a URL that the operator has typed for the daemon itself (a web hook, the public URL) may be anywhere.
//! - Everything is bounded: connecting, waiting for an answer, every pause in a body, redirects, retries, the length of
//!   documents before and after decompression.
//! - The number of concurrent requests to a host is limited, and lower while the host is overloaded. Downloads of resources do
//!   not delay documents and hubs, and packages, one at a time, delay neither.
//! - A document is returned complete or not at all, decompressed, and can be read several times. A resource is returned
//!   exactly as it is served, a chunk at a time, and continued where the connection breaks. A package is written to disk, and an
//!   interrupted download is resumed.
//!
//! It knows URLs, documents and hubs. It does not know why something is fetched, where it is stored or what it means for the
//! state of a set. What time it is its caller says.
//!
//! Specification: ANSI/NISO Z39.99-2014, sections 6.3 (discovery), 11 and 13 (packages); WebSub, sections 4 (topics) and 5.1 (requests
//! to hubs); RFC 9110.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod callback;
mod capability_list;
mod certificates;
mod chain_cookies;
mod client;
mod coding;
mod connections;
mod content;
mod credentials;
mod discovery;
mod document;
mod document_summaries;
mod entry_counts;
mod error;
mod guard;
mod host;
mod http_date;
mod hub;
mod link_header;
mod link_tags;
mod network;
mod observer;
mod pace;
mod package_download;
mod permits;
mod probe;
mod proxies;
mod ranges;
mod retry;
mod retry_after;
mod robots;
mod server_trust;
mod settings;
mod spool;
mod third_parties;
mod time_map;
mod topic;
mod upgrade;
mod validators;
mod web_page;
mod webhook;
mod webhook_request;

#[cfg(test)]
mod test_site;

pub use capability_list::{CapabilityList, offers};
pub use certificates::{Authorities, CertificateError, ClientCertificate};
pub use client::{Client, Clock};
pub use coding::{CodedFormat, ContentCoding};
pub use content::{AllowedHosts, Content, Wanted};
pub use credentials::{AuthHeader, Credentials, SourceAuth, with_userinfo};
pub use discovery::{Discovery, DiscoveryAttempt, DiscoveryCache, DiscoveryError, ReplacedEntry};
pub use document::{FetchedDocument, OwnedReader};
pub use document_summaries::{DocumentSummaries, SummarizedDocument, TriedParts};
pub use entry_counts::{EntryCounts, Tally};
pub use error::{FetchError, SizeLimit, tls_text};
pub use guard::is_public;
pub use host::{
    address_of, is_at_or_below, is_in_the_clear, is_localhost, is_own_machine, is_private_name,
};
pub use http_date::{format_http_date, parse_http_date};
pub use hub::HubAnswer;
pub use link_header::{HeaderLink, format_link_header, parse_link_header};
pub use network::HttpNetwork;
pub use observer::{BytesObserver, RequestObserver};
pub use pace::PaceLimits;
pub use package_download::PartialPackage;
pub use permits::{HostLoad, Slowed};
pub use probe::AnswerStart;
pub use proxies::{Proxies, ProxyException};
pub use retry::{Bounds, pause};
pub use server_trust::tls;
pub use settings::HttpSettings;
pub use time_map::{TimeMap, parse_time_map};
pub use topic::TopicLinks;
pub use upgrade::UpgradeAnswer;
pub use webhook::{WebhookAnswer, WebhookReceiver};
pub use webhook_request::{FeedNews, WebhookRequest};
