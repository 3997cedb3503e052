//! The configuration, complete and valid.
//!
//! [`Config::load`] reads the TOML file, fills in the defaults and collects every fault with its line. Nothing invalid becomes a
//! [`Config`].
//!
//! - `keys` has the keys of the file, with their defaults and descriptions: those of `config.example.toml`;
//! - `table` declares a table whose keys are fields; here are those outside of the Sources;
//! - `file` reads the file, `table_reader` one table of it, `source` a `[[source]]`, `value` one value;
//! - `joined` has the text of the file with what it includes and what the environment sets;
//! - `hours` has the hours of a day;
//! - `hook` reads `[[source.hook]]`, `notify` `[[notify]]`;
//! - `publish` reads `[publish]`;
//! - `auth` reads `[source.auth]`;
//! - `callback_protocols` has the protocols of interfaces for callbacks;
//! - `clients` makes the clients of requests;
//! - `channel_needs` states what the channels of a transport need;
//! - `changes` compares two configurations, for a reload;
//! - `proxies` reads which request goes through a proxy;
//! - `environment` has the environment variables;
//! - `syntax` parses TOML, or reports its first error with line and key, and writes its strings;
//! - `overlap` rejects mirrors, state directories and listeners that overlap;
//! - `xmpp` reads `[xmpp]`;
//! - `place` reads where mirrors are, and `[objects]`;
//! - `store` reads `[store]`;
//! - `secret` reads secrets from where the file says that they are;
//! - `warnings` finds what is valid and can hardly be meant;
//! - `effective` writes the configuration with its defaults;
//! - `schema` writes the JSON Schema of the file;
//! - `defaults` makes configurations without a file.

#[macro_use]
mod fault;
#[macro_use]
mod table;

mod auth;
mod callback_protocols;
mod changes;
mod channel_needs;
mod clients;
mod defaults;
mod effective;
mod environment;
mod file;
mod hook;
mod hours;
mod joined;
mod keys;
mod notify;
mod overlap;
mod place;
mod proxies;
mod publish;
mod schema;
mod secret;
mod source;
mod store;
mod syntax;
mod table_reader;
mod value;
mod warnings;
mod xmpp;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use callback_protocols::{CallbackProtocols, UnconfiguredProtocol};
pub use changes::ConfigChanges;
pub use channel_needs::LackingKey;
pub use environment::Environment;
pub use fault::{ConfigFault, ConfigFaults};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
pub use hook::{Hook, HookAction};
pub use hours::DayHours;
pub use notify::{Notify, NotifyAction, NotifyFormat};
pub use overlap::folders_overlap;
pub use place::ObjectSettings;
pub use publish::{PublishConfig, PublishHub, PublishedFolder};
use resourcesync::{Algorithm, Digest};
use resyncd_channels::XmppAccount;
use resyncd_core::{HubUri, LinkRules, ResourceUri, Selection};
use resyncd_fetch::{Credentials, HttpSettings, PaceLimits};
use resyncd_mirror::MirrorPlace;
pub use secret::{PrivateUrl, Secret, WebhookSecret};
pub use store::StoreSettings;
pub use syntax::toml_string;
use table_reader::{Class, text};
use tracing::level_filters::LevelFilter;
use url::Url;
pub(crate) use value::parse_public_url;
use value::{parse_host, parse_nonzero_size, parse_size, parse_uri_length};

use crate::store::{StatePlace, StoreError};

/// The configuration of one daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory of the database.
    pub state_dir: PathBuf,
    /// The listener for hubs.
    pub callback: CallbackConfig,
    /// The listener for operators.
    pub status: StatusConfig,
    /// Outbound HTTP.
    pub http: HttpSettings,
    /// Limits of sizes and numbers.
    pub limits: LimitsConfig,
    /// The feed of applied changes.
    pub feed: FeedConfig,
    /// The log on standard error.
    pub log: LogConfig,
    /// The account for XMPP PubSub; `None`: such channels are not used.
    pub xmpp: Option<XmppAccount>,
    /// Where the state is, if not in a database in that directory.
    pub store: StoreSettings,
    /// By what object stores are reached.
    pub objects: ObjectSettings,
    /// Who is told what waits for a person; their names are distinct.
    pub notify: Vec<Notify>,
    /// What resyncd publishes as a Source.
    pub publish: PublishConfig,
    /// The folders that are published; their names are distinct, also from those of the Sources.
    pub folders: Vec<PublishedFolder>,
    /// The Sources to follow; their names and mirrors are distinct.
    pub sources: Vec<Source>,
}

table! {
    /// `[callback]`: the listener for hubs.
    CallbackConfig = "callback" {
        /// The address to listen on.
        listen: SocketAddr = address("listen"),
        /// The listener's URL as hubs see it, ending in `/`; `None`: no channel can be subscribed to.
        public_url: Option<Url> = optional("public_url", Class::PublicUrl, text("a URL", parse_public_url)),
    }
}

table! {
    /// `[status]`: the listener for operators.
    StatusConfig = "status" {
        /// The address to listen on.
        listen: SocketAddr = address("listen"),
        /// The host names that requests may use besides IP addresses and `localhost`: lower case.
        hosts: Vec<String> = list("hosts", parse_host),
        /// The token that requests must present, but those for `/healthz` and `/readyz`; `None`: none.
        token: Option<Secret> = content("token_file", Class::SecretFile, |path| Secret::read(path).map(Some)),
    }
}

table! {
    /// `[limits]`: in bytes unless stated otherwise.
    LimitsConfig = "limits" {
        /// One sitemap document, after decompression.
        document: u64 = size("document", parse_nonzero_size),
        /// One delivery to the callback.
        notification: u64 = size("notification", parse_nonzero_size),
        /// A URI that is requested or read from a document, after it is resolved.
        uri: usize = size("uri", parse_uri_length),
        /// One resource; `None`: no limit.
        resource: Option<u64> = size_or_none("resource", parse_size),
        /// One package of a dump; `None`: no limit but the length that the dump states.
        package: Option<u64> = size_or_none("package", parse_size),
        /// All deliveries of one channel that are not processed yet.
        inbox: u64 = size("inbox", parse_nonzero_size),
        /// How many early notifications of one channel are stored.
        held_notifications: usize = number("held_notifications", 0..=1_000_000),
        /// How many resources of one Source are followed; `None`: no limit.
        resources: Option<u64> = number_or_none("resources", 0..=usize::MAX >> 1),
        /// How many sets of one Source are followed.
        sets: usize = number("sets", 1..=10_000),
        /// How many requests per hour a Source can cause to a host that is not its own, without those for resources.
        third_party_requests: u32 = number("third_party_requests", 2..=1_000_000),
    }
}

table! {
    /// `[feed]`: the log of applied changes.
    FeedConfig = "feed" {
        /// How long an entry stays; `None`: for ever.
        keep: Option<Duration> = duration_or_never("keep"),
    }
}

table! {
    /// `[log]`: the log on standard error.
    LogConfig = "log" {
        /// What a line looks like.
        format: LogFormat = choice("format", &LOG_FORMATS),
        /// What the daemon logs, unless `RUST_LOG` states it.
        level: LevelFilter = choice("level", &LOG_LEVELS),
    }
}

const LOG_LEVELS: [(&str, LevelFilter); 5] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

const LOG_FORMATS: [(&str, LogFormat); 3] = [
    ("auto", LogFormat::Auto),
    ("text", LogFormat::Text),
    ("json", LogFormat::Json),
];

/// What a line of the log looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Below systemd as the journal expects it, otherwise text.
    #[default]
    Auto,
    /// The time, the level, the message and the fields.
    Text,
    /// A JSON object.
    Json,
}

/// `[[source]]`: a Source to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its label: `[a-z0-9-]`.
    pub name: String,
    /// Where discovery starts.
    pub url: Url,
    /// The user names and passwords of its URLs, and `[source.auth]`; the URLs here have none.
    pub credentials: Credentials,
    /// Where its resources are.
    pub mirror: MirrorPlace,
    /// The Capability Lists to follow; empty: all.
    pub sets: Vec<Url>,
    /// Whether to subscribe to the channels.
    pub notifications: bool,
    /// The time between two polls.
    pub poll_interval: Duration,
    /// How long an early notification waits for the one before it.
    pub reorder_window: Duration,
    /// How fast its documents and resources are requested.
    pub pace: PaceLimits,
    /// Whether robots.txt is obeyed where nothing but sitemaps is followed.
    pub robots: bool,
    /// The lease to request; whole seconds.
    pub lease: Duration,
    /// The document that the baseline reads.
    pub baseline: Baseline,
    /// When the files of a first copy are downloaded; `None`: always.
    pub hours: Option<DayHours>,
    /// Whether an HTML page is accepted for a resource of which another type is stated, and no digest.
    pub allow_type_mismatch: bool,
    /// Whether patches are used where they are safe.
    pub patches: bool,
    /// Where the versions are that the Source announces; `None`: they are not stored.
    pub versions: Option<MirrorPlace>,
    /// How many resources of a set are requested again within a day because their entries state nothing about their content.
    pub undated_per_day: u64,
    /// After how long without anything newer of the Source a set is reported as stale; `None`: never.
    pub stale_after: Option<Duration>,
    /// How often the daemon audits it; `None`: never.
    pub audit_every: Option<Duration>,
    /// Whether files of deleted resources are removed.
    pub delete: bool,
    /// The share of a set, 0 to 1, above which deletions are held back.
    pub max_delete: f64,
    /// Whether deliveries must be signed.
    pub signatures: Signatures,
    /// The hub to use instead of the advertised one.
    pub hub: Option<HubUri>,
    /// Whether what only the hub states counts without an answer of the Source; `None`: if both have the same origin.
    pub trust_hub: Option<bool>,
    /// The protocols of interfaces at which callbacks are registered.
    pub callback_protocols: CallbackProtocols,
    /// Hosts that resources may be fetched from: lower case, with or without a port; empty: any public host.
    pub hosts: Vec<String>,
    /// Which resources are mirrored.
    pub filter: Filter,
    /// Whether what is mirrored is published.
    pub publish: bool,
    /// Who gets its changes; their names are distinct.
    pub hooks: Vec<Hook>,
}

impl Config {
    /// Whether anything is to be delivered to the callback listener.
    #[must_use]
    pub fn has_callback(&self) -> bool {
        let is_notified = self.sources.iter().any(|source| source.notifications);
        is_notified && self.callback.public_url.is_some()
    }

    /// Where the state is.
    #[must_use]
    pub fn state(&self) -> StatePlace {
        self.store.place(&self.state_dir, &self.http.authorities)
    }

    /// The state at a place that is a folder, or the URL of a database.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub fn state_at(&self, place: &str) -> Result<StatePlace, StoreError> {
        self.store
            .at(place, &self.state_dir, &self.http.authorities)
    }

    /// Whether anything is published.
    #[must_use]
    pub fn publishes(&self) -> bool {
        !self.folders.is_empty() || self.sources.iter().any(|source| source.publish)
    }
}

impl Source {
    /// Whether the set of a Capability List is to be followed.
    #[must_use]
    pub fn wants_set(&self, capability_list: &Url) -> bool {
        self.sets.is_empty() || self.sets.contains(capability_list)
    }

    /// Whether another configuration follows the Source in the same way: whatever its hooks and audits are, and whether it is published.
    #[must_use]
    pub fn is_followed_as(&self, other: &Self) -> bool {
        let followed = |source: &Self| Self {
            hooks: Vec::new(),
            audit_every: None,
            publish: false,
            ..source.clone()
        };
        followed(self) == followed(other)
    }
}

/// The document that a baseline reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The dump if there is one and the mirror is nearly empty, else the list.
    Auto,
    /// The Resource List.
    List,
    /// The Resource Dump.
    Dump,
}

/// Whether deliveries must be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// A secret is sent to the hub; deliveries that are not signed with it are rejected.
    Required,
    /// No secret is sent.
    Off,
}

/// Selects resources by glob patterns on their URIs, and by what is stated of them.
#[derive(Clone, Debug)]
pub struct Filter {
    include: Option<GlobSet>,
    exclude: GlobSet,
    selection: Selection,
    linked: LinkRules,
    fingerprint: String,
}

/// Equal filters have the same patterns, and select the same.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Filter {
    /// A filter that accepts every resource.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            include: None,
            exclude: GlobSet::empty(),
            selection: Selection::default(),
            linked: LinkRules::default(),
            fingerprint: fingerprint::<&str>(&[], &[], &Selection::default()),
        }
    }

    /// A filter of glob patterns on the complete URI. `*` also matches `/`; an empty `include` accepts every resource.
    ///
    /// # Errors
    /// [`globset::Error`] if a text is not a glob pattern.
    pub fn matching<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, globset::Error> {
        Self::selecting(include, exclude, Selection::default())
    }

    /// As [`matching`](Self::matching), of resources that are selected by what is stated of them, too.
    ///
    /// # Errors
    /// As of [`matching`](Self::matching).
    pub fn selecting<S: AsRef<str>>(
        include: &[S],
        exclude: &[S],
        selection: Selection,
    ) -> Result<Self, globset::Error> {
        Ok(Self {
            include: match include {
                [] => None,
                patterns => Some(glob_set(patterns)?),
            },
            exclude: glob_set(exclude)?,
            fingerprint: fingerprint(include, exclude, &selection),
            selection,
            linked: LinkRules::default(),
        })
    }

    /// As this one, with those linked resources wanted, too.
    #[must_use]
    pub fn following(mut self, linked: LinkRules) -> Self {
        if !linked.is_empty() {
            let text = format!("{}>{}", self.fingerprint, linked.text());
            self.fingerprint = Digest::of(Algorithm::Sha256, text.as_bytes()).to_string();
        }
        self.linked = linked;
        self
    }

    /// Whether every URI passes.
    pub fn wants_every_uri(&self) -> bool {
        self.include.is_none() && self.exclude.is_empty()
    }

    /// What is selected by what is stated of a resource.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Which linked resources are wanted.
    pub fn linked(&self) -> &LinkRules {
        &self.linked
    }

    /// Whether a linked resource may be fetched as far as patterns decide: `include` restricts the resources that link to it. What names
    /// a wanted kind of metadata is none.
    pub fn allows_linked(&self, uri: &ResourceUri) -> bool {
        !self.exclude.is_match(uri.as_str()) && !self.selection.is_profile(uri.as_str())
    }

    /// A digest of the patterns and of what is selected: different for different filters.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether the resource is included and not excluded by its URI.
    pub fn wants(&self, uri: &ResourceUri) -> bool {
        self.include
            .as_ref()
            .is_none_or(|include| include.is_match(uri.as_str()))
            && !self.exclude.is_match(uri.as_str())
    }
}

fn fingerprint<S: AsRef<str>>(include: &[S], exclude: &[S], selection: &Selection) -> String {
    let mut text = String::new();
    for (sign, patterns) in [('+', include), ('-', exclude)] {
        for pattern in patterns {
            let pattern = pattern.as_ref();
            text.push_str(&format!("{sign}{} {pattern}", pattern.len()));
        }
    }
    text.push_str(&selection.text());
    Digest::of(Algorithm::Sha256, text.as_bytes()).to_string()
}

/// Matches any of the patterns.
fn glob_set<S: AsRef<str>>(patterns: &[S]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        // `*` must match `/`, or `*.pdf` would match no URI.
        let glob = GlobBuilder::new(pattern.as_ref())
            .literal_separator(false)
            .build()?;
        set.add(glob);
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use resyncd_core::MediaRange;

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
    fn fingerprints_of_different_filters_differ() {
        let of = |include: &[&str], exclude: &[&str]| {
            Filter::matching(include, exclude)
                .unwrap()
                .fingerprint()
                .to_owned()
        };
        let selecting = |types: &[&str], collections: &[&str], profiles: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let types = types.iter().filter_map(|it| MediaRange::parse(it));
            let selection = Selection::new(types.collect(), texts(collections), texts(profiles));
            let filter = Filter::selecting::<&str>(&[], &[], selection).unwrap();
            filter.fingerprint().to_owned()
        };
        let everything = Filter::everything().fingerprint().to_owned();
        assert_eq!(selecting(&[], &[], &[]), everything);
        assert_eq!(of(&[], &[]), everything);
        assert_eq!(of(&["a"], &["b"]), of(&["a"], &["b"]));
        let all = [
            of(&["a"], &[]),
            of(&[], &["a"]),
            of(&["a", "b"], &[]),
            of(&["ab"], &[]),
            selecting(&["text/html"], &[], &[]),
            selecting(&["text/*", "text/html"], &[], &[]),
            selecting(&[], &["http://e.org/"], &[]),
            selecting(&[], &[], &["http://e.org/"]),
            everything,
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn filter_without_patterns_accepts_everything() {
        let uri = ResourceUri::parse("http://example.com/a").unwrap();
        assert!(Filter::everything().wants(&uri));
        check(&[], &[], "http://example.com/a", true);
    }

    #[test]
    fn patterns_match_the_complete_uri() {
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
    fn exclude_takes_precedence_over_include() {
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
