//! CORE. The formats on the wire: URIs, W3C datetimes, intervals, digests, Link headers, documents with their streaming
//! reader, writer and summary, offers, validators, the requests of web hooks; and the verification of bytes.
//!
//! | module | what it has |
//! |---|---|
//! | | **documents** |
//! | `document` | documents as values: capability, head, entries, links |
//! | `reader`, `writer` | the streaming reader; the writer |
//! | `summary` | what a document is and spans: one scan to its end |
//! | `entry_order`, `entry_counts` | the order of its entries; what they state of types and collections |
//! | `dialect` | what the draft of version 0.1 has in another form |
//! | `declared_list` | whether an entry is a list or a package, rather than a resource |
//! | `offer` | what a Capability List, a Source Description or a Sitemap offers |
//! | `oddity` | deviations that are tolerated and counted |
//! | | **what an entry states** |
//! | `content_info` | length, type and digests of a representation |
//! | `digest`, `verify` | digests; bytes against what is announced |
//! | `selection`, `linked` | which resources are selected; which linked ones are fetched |
//! | `link_limit` | how many links count |
//! | | **times** |
//! | `datetime`, `interval` | [`SourceTime`], a W3C datetime; intervals of them |
//! | `time_map`, `version_name` | TimeMaps; the names of stored versions |
//! | `http_date` | dates in HTTP headers |
//! | | **URIs and HTTP** |
//! | `uri`, `host` | one type for each purpose; hosts that are private |
//! | `link_header`, `media_type`, `validators` | headers of HTTP |
//! | `redaction` | secrets are removed from remote text |
//! | `visible_text` | remote text for a terminal or a log |
//! | | **push** |
//! | `transport` | over what the notifications of a channel come |
//! | `pubsub` | URIs of XMPP nodes |
//! | `webhook` | requests of web hooks |
//!
//! Everything here is a pure function of bytes: parse, don't validate. Nothing knows sockets, SQL, the configuration or the
//! clock. Deviations of real Sources from the specification are accepted here and counted as an [`Oddity`] with a stable
//! code, so that no other module needs to know of them.
//!
//! Specification: ANSI/NISO Z39.99-2014 (ResourceSync), sections 6, 7 and appendix A; Change Notification 1.0.1 and
//! Framework Notification 1.0.1, section 3; Notification 0.8, section 3; WebSub (W3C Recommendation, 23 January 2018), sections 5
//! and 7; the draft of version 0.1 (2012), sections 3 to 7.

mod content_info;
mod datetime;
mod declared_list;
mod dialect;
mod digest;
mod document;
mod entry_counts;
mod entry_order;
mod host;
mod http_date;
mod interval;
mod link_header;
mod link_limit;
mod linked;
mod media_type;
mod oddity;
mod offer;
mod pubsub;
mod reader;
mod redaction;
mod selection;
mod summary;
mod time_map;
mod transport;
mod uri;
mod validators;
mod verify;
mod version_name;
mod visible_text;
mod webhook;
mod writer;

pub use content_info::ContentInfo;
pub use datetime::{DatetimeError, SourceTime};
pub use dialect::{ChangeSetEvidence, registration_form};
pub use digest::{Algorithm, Digest, parse_digest, parse_hashes};
pub use document::{
    Capability, ChangeFrequency, ChangeKind, Document, Entry, Head, Link, Metadata, PushInterface,
    Root,
};
pub use entry_counts::{EntryCounts, Tally};
pub use entry_order::EntryOrder;
pub use host::{
    address_of, is_at_or_below, is_in_the_clear, is_localhost, is_own_machine, is_private_name,
};
pub use http_date::{format_http_date, parse_http_date, parse_imf_fixdate};
pub use interval::Interval;
pub use link_header::{HeaderLink, format_link_header, parse_link_header};
pub use link_limit::LinkLimit;
pub use linked::{LinkRules, LinkTargets, LinkedAs, LinkedResource};
pub use media_type::{
    GZIP_MAGIC, archive_suffix, content_coding, is_archive, is_package_type, may_be_package,
    media_type_essence, unread_archive_suffix,
};
pub use oddity::{ForeignScheme, Oddities, Oddity};
pub use offer::{MAX_HUBS, MAX_OFFERS, Offer};
pub use pubsub::{MAX_JID_PART, node_of};
pub use reader::{DocumentReader, ReadError, TextPosition, read_document};
pub use redaction::Redaction;
pub use selection::{Criteria, MediaRange, Selection, Standing};
pub use summary::{ChangeCounts, DocumentSummary, UnstatedParts};
pub use time_map::{Memento, TimeMap, parse_time_map};
pub use transport::{Transport, http_form};
pub use uri::{
    BaseUri, HubUri, MAX_URI_BYTES, ReferenceError, ResourceUri, TopicUri, UriError, has_userinfo,
    hide_userinfo, parse_uri, resolve_reference, without_userinfo,
};
pub use validators::{ServedVersion, Validators};
pub use verify::{Mismatch, Verified, Verifier};
pub use version_name::{parse_version_name, version_name};
pub use visible_text::{one_line, visible_json};
pub use webhook::{FeedNews, WebhookRequest};
pub use writer::{DocumentWriter, write_document};
