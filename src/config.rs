//! The configuration, complete and valid: what the rest of the program may rely on.
//!
//! [`Config::load`] reads the TOML file, fills in the defaults and collects every fault, each with its line; nothing
//! that is invalid becomes a [`Config`].
//!
//! - `file` reads the whole file, `section` one table of it, `source` a `[[source]]`, `value` one value;
//! - `credentials` keeps the user names and passwords of its URLs apart from them;
//! - `syntax` keeps a slip in the TOML from hiding what else is wrong;
//! - `overlap` keeps mirrors, state and listeners apart;
//! - `defaults` is the one place where the defaults stand.

mod credentials;
mod defaults;
mod fault;
mod file;
mod overlap;
mod section;
mod source;
mod syntax;
mod value;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use url::Url;

use crate::protocol::{Algorithm, Digest, HubUri, ResourceUri};

pub use credentials::Credentials;
pub use fault::{Fault, Faults};

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
    /// The names that it may be called by, besides addresses and `localhost`: lower case.
    pub hosts: Vec<String>,
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
    /// One package of a dump; `None`: no limit but the length that its dump tells.
    pub package: Option<u64>,
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
    /// What its URLs had of user names and passwords; they have none themselves.
    pub credentials: Credentials,
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
    fingerprint: String,
}

impl Filter {
    /// A filter that every resource passes.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            include: None,
            exclude: GlobSet::empty(),
            fingerprint: fingerprint::<&str>(&[], &[]),
        }
    }

    /// A filter of glob patterns on the whole URI, in which `*` crosses `/`; no `include` at all lets everything in.
    ///
    /// # Errors
    /// [`globset::Error`], when a text is not a glob pattern.
    pub fn matching<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, globset::Error> {
        Ok(Self {
            include: match include {
                [] => None,
                patterns => Some(glob_set(patterns)?),
            },
            exclude: glob_set(exclude)?,
            fingerprint: fingerprint(include, exclude),
        })
    }

    /// Whether every resource passes.
    #[must_use]
    pub fn wants_everything(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty()
    }

    /// A short text that tells this filter from every other one.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether the resource is wanted: included (everything is, if nothing is named) and not excluded.
    #[must_use]
    pub fn wants(&self, uri: &ResourceUri) -> bool {
        self.include
            .as_ref()
            .is_none_or(|include| include.is_match(uri.as_str()))
            && !self.exclude.is_match(uri.as_str())
    }
}

fn fingerprint<S: AsRef<str>>(include: &[S], exclude: &[S]) -> String {
    let mut text = String::new();
    for (sign, patterns) in [('+', include), ('-', exclude)] {
        for pattern in patterns {
            let pattern = pattern.as_ref();
            text.push_str(&format!("{sign}{} {pattern}", pattern.len()));
        }
    }
    Digest::of(Algorithm::Sha256, text.as_bytes()).to_string()
}

/// What matches any of the patterns.
fn glob_set<S: AsRef<str>>(patterns: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // A URI is not a path: `*` has to reach over `/`, or `*.pdf` would match nothing.
        let glob = GlobBuilder::new(pattern.as_ref())
            .literal_separator(false)
            .build()?;
        set.add(glob);
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(include: &[&str], exclude: &[&str], uri: &str, wanted: bool) {
        let filter = Filter::matching(include, exclude).unwrap();
        let uri = ResourceUri::parse(uri).unwrap();
        assert_eq!(
            filter.wants(&uri),
            wanted,
            "{include:?} {exclude:?} {uri:?}"
        );
    }

    #[test]
    fn filters_are_told_apart_by_their_patterns() {
        let of = |include: &[&str], exclude: &[&str]| {
            Filter::matching(include, exclude)
                .unwrap()
                .fingerprint()
                .to_owned()
        };
        let everything = Filter::everything().fingerprint().to_owned();
        assert_eq!(of(&[], &[]), everything);
        assert_eq!(of(&["a"], &["b"]), of(&["a"], &["b"]));
        let all = [
            of(&["a"], &[]),
            of(&[], &["a"]),
            of(&["a", "b"], &[]),
            of(&["ab"], &[]),
            everything,
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn no_pattern_wants_everything() {
        let uri = ResourceUri::parse("http://example.com/a").unwrap();
        assert!(Filter::everything().wants(&uri));
        check(&[], &[], "http://example.com/a", true);
    }

    #[test]
    fn patterns_look_at_the_whole_uri() {
        check(&["*.pdf"], &[], "http://example.com/a/b.pdf", true);
        check(&["*.pdf"], &[], "http://example.com/a/b.xml", false);
        check(&["*.pdf"], &[], "http://example.com/a?f=b.pdf", true);
        check(
            &["http://example.com/a/*"],
            &[],
            "http://example.com/a/b/c",
            true,
        );
        check(
            &["http://example.com/a/*"],
            &[],
            "http://example.com/b",
            false,
        );
        check(&["*/a/**"], &[], "http://example.com/x/a/b.", true);
        check(&["*.{pdf,xml}"], &[], "http://example.com/b.xml", true);
    }

    #[test]
    fn what_is_excluded_is_not_wanted_even_if_included() {
        check(
            &["*.pdf"],
            &["*/draft/*"],
            "http://e.com/draft/a.pdf",
            false,
        );
        check(&["*.pdf"], &["*/draft/*"], "http://e.com/final/a.pdf", true);
        check(&[], &["*.tmp"], "http://e.com/a.tmp", false);
    }
}
