//! CORE. What resyncd makes of documents and of the requests around them, beside the crate `resourcesync`, which reads and writes them.
//!
//! | module | what it has |
//! |---|---|
//! | `offer` | what a Capability List, a Source Description or a Sitemap offers |
//! | `selection`, `linked` | which resources are selected; which linked ones are fetched |
//! | `entry_counts` | what the entries of a document state of types and collections |
//! | `version_name` | the names of stored versions |
//! | `redaction` | secrets are removed from remote text |
//! | `visible_text` | remote text for a terminal or a log |
//! | `host` | hosts that are private |
//! | `http_date`, `link_header`, `validators` | headers of HTTP |
//! | `time_map` | TimeMaps of Memento |
//! | `webhook` | requests of web hooks |
//!
//! Everything here is a pure function of bytes: parse, don't validate. Nothing knows sockets, SQL, the configuration or the clock.

mod entry_counts;
mod host;
mod http_date;
mod link_header;
mod linked;
mod offer;
mod redaction;
mod selection;
mod time_map;
mod validators;
mod version_name;
mod visible_text;
mod webhook;

pub use entry_counts::{EntryCounts, Tally};
pub use host::{
    address_of, is_at_or_below, is_in_the_clear, is_localhost, is_own_machine, is_private_name,
};
pub use http_date::{format_http_date, parse_http_date, parse_imf_fixdate};
pub use link_header::{HeaderLink, format_link_header, parse_link_header};
pub use linked::{LinkRules, LinkTargets, LinkedAs, LinkedResource};
pub use offer::{MAX_HUBS, MAX_OFFERS, Offer};
pub use redaction::Redaction;
pub use selection::{Criteria, MediaRange, Selection, Standing};
pub use time_map::{Memento, TimeMap, parse_time_map};
pub use validators::{ServedVersion, Validators};
pub use version_name::{parse_version_name, version_name};
pub use visible_text::{one_line, visible_json};
pub use webhook::{FeedNews, WebhookRequest};
