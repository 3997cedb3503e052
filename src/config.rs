//! The configuration, complete and valid: what the rest of the program may rely on.
//!
//! [`file`] mirrors the TOML file, fills in the defaults and collects every fault; nothing that is invalid becomes a [`Config`].

mod file;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use globset::GlobSet;
use url::Url;

use crate::protocol::{HubUri, ResourceUri};

pub use file::{Fault, Faults};

/// What one daemon does.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the database lives.
    pub state_dir: PathBuf,
    /// Where hubs call.
    pub callback: Callback,
    /// Where operators look.
    pub status: Status,
    /// How the daemon behaves as a client.
    pub http: Http,
    /// What is too much.
    pub limits: Limits,
    /// Whom it follows; names and mirrors are distinct.
    pub sources: Vec<Source>,
}

/// Where hubs call.
#[derive(Clone, Debug)]
pub struct Callback {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// What the listener is called from outside, ending in `/`; `None`: no channel can be subscribed to.
    pub public_url: Option<Url>,
}

/// Where operators look.
#[derive(Clone, Debug)]
pub struct Status {
    /// The address to listen on.
    pub listen: SocketAddr,
}

/// How the daemon behaves as a client.
#[derive(Clone, Debug)]
pub struct Http {
    /// Requests at once to one host, at least 1.
    pub connections_per_host: usize,
    /// From connect to response head, and between two body chunks.
    pub timeout: Duration,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Whether loopback and private-range addresses may be fetched.
    pub allow_private_addresses: bool,
}

/// What is too much, in bytes unless it says otherwise.
#[derive(Clone, Debug)]
pub struct Limits {
    /// One sitemap document, after decompression.
    pub document: u64,
    /// One delivery to the callback.
    pub notification: u64,
    /// One resource; `None`: no limit.
    pub resource: Option<u64>,
    /// All deliveries of one channel that wait to be read.
    pub inbox: u64,
    /// Early notifications kept per channel, a number.
    pub held_notifications: usize,
}

/// A Source that is followed.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its label: `[a-z0-9-]`.
    pub name: String,
    /// Where discovery starts.
    pub url: Url,
    /// Where its resources are kept.
    pub mirror: PathBuf,
    /// The Capability Lists to follow; empty: all.
    pub sets: Vec<Url>,
    /// Whether to subscribe to the channels.
    pub notifications: bool,
    /// Safety net, and the pace where there is no channel.
    pub poll_interval: Duration,
    /// How long an early notification waits for the one before it.
    pub reorder_window: Duration,
    /// The lease to ask for; whole seconds.
    pub lease: Duration,
    /// What the baseline is made from.
    pub baseline: Baseline,
    /// Whether files of deleted resources are removed.
    pub delete: bool,
    /// The share of a set, 0 to 1, above which deletions are held back.
    pub max_delete: f64,
    /// Whether deliveries must be signed.
    pub signatures: Signatures,
    /// The hub to use instead of the advertised one.
    pub hub: Option<HubUri>,
    /// The hosts that resources may be fetched from, lower case, with or without a port; empty: any.
    pub hosts: Vec<String>,
    /// Which resources are wanted.
    pub filter: Filter,
}

/// What the baseline is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// Whatever is cheaper.
    Auto,
    /// The Resource List.
    List,
    /// The Resource Dump.
    Dump,
}

/// Whether deliveries must be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// A secret is sent, and what it does not sign is refused.
    Required,
    /// No secret is sent.
    Off,
}

/// Which resources are wanted, by patterns on their URIs.
#[derive(Clone, Debug)]
pub struct Filter {
    include: Option<GlobSet>,
    exclude: GlobSet,
}

impl Filter {
    /// Whether the resource is wanted: included (everything is, if nothing is named) and not excluded.
    #[must_use]
    pub fn wants(&self, uri: &ResourceUri) -> bool {
        self.include
            .as_ref()
            .is_none_or(|include| include.is_match(uri.as_str()))
            && !self.exclude.is_match(uri.as_str())
    }
}
