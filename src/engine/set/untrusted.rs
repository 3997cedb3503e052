//! What is used of a notification of which the sender may not speak for the Source: a hub or a server of another origin, or anybody who
//! knows the address of a callback.
//!
//! Such a sender can have only those resources requested that the Source's own documents name, or that are at origins of the configuration
//! or of resources that the set's documents name; with credentials only the former. Whatever else it names makes a poll due. Its links do
//! not count.
//!
//! Invariant: [`UntrustedNames::claim`] decides alone, for every transport.

use std::collections::HashMap;

use chrono::TimeDelta;
use resourcesync::{ContentInfo, Entry, SourceTime};
use resyncd_core::{ResourceUri, Transport};
use url::Url;

use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::store::{Change, NamedBySource, SetId};
use crate::{clock, config};

/// How far ahead of our clock a time may be that only a hub or a server states: clocks differ, and Sources round.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// What becomes of a resource because a sender names it that may not speak for the Source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// The Source is asked for it.
    Asked,
    /// It would be requested with credentials, and the Source does not list it: left to a poll.
    Unlisted,
    /// The Source does not list it, and it is at an origin that is not known to be the Source's, or would be requested without TLS: left
    /// to a poll.
    Foreign,
}

/// What a notification names of which the sender may not speak for the Source.
pub(super) struct UntrustedNames {
    /// What the Source's documents name; without an entry: not looked up.
    named: HashMap<ResourceUri, NamedBySource>,
    has_known_sender: bool,
}

impl UntrustedNames {
    /// Of these entries, which have come over that transport. For a blocking thread.
    pub(super) fn read(
        context: &SourceContext,
        (set, capability_list): (SetId, &Url),
        transport: Transport,
        entries: &[Entry],
    ) -> Result<Self, EngineError> {
        let uris = entries.iter().map(|entry| entry.loc.clone());
        let uris = uris.filter_map(|uri| ResourceUri::try_from(uri).ok());
        let nothing = NamedBySource::default();
        let unknown = uris
            .filter(|uri| claim_of(&context.source, capability_list, uri, nothing) != Claim::Asked);
        Ok(Self {
            named: context
                .store
                .named_by_source(set, context.name(), unknown)?,
            has_known_sender: transport.has_known_sender(),
        })
    }

    /// What becomes of a resource.
    pub(super) fn claim(
        &self,
        context: &SourceContext,
        capability_list: &Url,
        uri: &ResourceUri,
    ) -> Claim {
        let named = self.named.get(uri).copied().unwrap_or_default();
        claim_of(&context.source, capability_list, uri, named)
    }

    /// Marks a change: the Source itself is asked for it, and nobody whom the sender names.
    ///
    /// A time that is yet to come would hide what the Source states until then: it counts as that of the receipt. What a hub or a server
    /// states may be up to [`AHEAD`] in the future; what anybody may have sent may not.
    pub(super) fn mark(&self, change: &mut Change) {
        let now = clock::now().wall;
        let ahead = if self.has_known_sender {
            AHEAD
        } else {
            TimeDelta::zero()
        };
        let latest = Some(SourceTime::from(now + ahead));
        for time in [&mut change.changed_at, &mut change.lastmod] {
            if *time > latest {
                *time = Some(SourceTime::from(now));
            }
        }
        change.unconfirmed = true;
        change.links.clear();
        change.linked.clear();
        if !self.has_known_sender {
            // Wrong ones would have the resource downloaded again and again.
            let media_type = change.content.media_type.take();
            change.content = ContentInfo {
                media_type,
                ..ContentInfo::default()
            };
            change.encoding = None;
            // What has no time could not be distinguished from what it replaces.
            change.changed_at.get_or_insert(SourceTime::from(now));
        }
        change.authority = change.uri.authority();
    }
}

fn claim_of(
    source: &config::Source,
    capability_list: &Url,
    uri: &ResourceUri,
    named: NamedBySource,
) -> Claim {
    let url = uri.url();
    // Whoever is on the way could answer in place of the Source, and no digest of the Source would show that.
    if url.scheme() == "http" && source.url.scheme() == "https" {
        Claim::Foreign
    } else if named.resource {
        Claim::Asked
    } else if source.credentials.has_any_for(url) {
        Claim::Unlisted
    } else if named.origin || is_of_configured_origin(source, capability_list, url) {
        Claim::Asked
    } else {
        Claim::Foreign
    }
}

fn is_of_configured_origin(source: &config::Source, capability_list: &Url, url: &Url) -> bool {
    let origin = url.origin();
    let mut stated = [&source.url, capability_list]
        .into_iter()
        .chain(&source.sets);
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return false;
    };
    // A host without a port stands for the ports of the schemes: others are other services of that machine.
    let is_host =
        |own: &String| (url.port().is_none() && own == host) || *own == format!("{host}:{port}");
    stated.any(|stated| stated.origin() == origin) || source.hosts.iter().any(is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_sender_has_only_resources_of_the_source_requested() {
        const NOTHING: NamedBySource = NamedBySource {
            resource: false,
            origin: false,
        };
        const LISTED: NamedBySource = NamedBySource {
            resource: true,
            origin: true,
        };
        const ORIGIN: NamedBySource = NamedBySource {
            resource: false,
            origin: true,
        };
        const LINKED: NamedBySource = NamedBySource {
            resource: true,
            origin: false,
        };
        let url = |text: &str| Url::parse(text).unwrap();
        let check = |entry: &str, uri: &str, named: NamedBySource, expected: Claim| {
            let mut source = config::Source::new("a", url("https://none.example/"), "/srv/a");
            source.url = source.credentials.extract(url(entry));
            source.sets = vec![url("https://sets.example/caps.xml")];
            source.hosts = vec!["cdn.example".to_owned(), "files.example:8443".to_owned()];
            let list = url("https://lists.example/caps.xml");
            let resource = ResourceUri::parse(uri).unwrap();
            let found = claim_of(&source, &list, &resource, named);
            assert_eq!(found, expected, "{entry}, {uri}, {named:?}");
        };
        let open = "https://source.example/";
        for (uri, expected) in [
            ("https://source.example/new", Claim::Asked),
            ("https://source.example:443/new", Claim::Asked),
            ("https://lists.example/new", Claim::Asked),
            ("https://sets.example/new", Claim::Asked),
            ("https://cdn.example/new", Claim::Asked),
            ("https://files.example:8443/new", Claim::Asked),
            ("https://source.example:8443/new", Claim::Foreign),
            ("https://cdn.example:8443/new", Claim::Foreign),
            ("https://files.example/new", Claim::Foreign),
            ("https://a.source.example/new", Claim::Foreign),
            ("https://a.cdn.example/new", Claim::Foreign),
            ("https://source.example.evil.example/", Claim::Foreign),
            ("https://source.example@evil.example/", Claim::Foreign),
            ("https://evil.example/source.example", Claim::Foreign),
            ("https://127.0.0.1/new", Claim::Foreign),
        ] {
            check(open, uri, NOTHING, expected);
            check(open, uri, LISTED, Claim::Asked);
            check(open, uri, LINKED, Claim::Asked);
            check(open, uri, ORIGIN, Claim::Asked);
        }
        // Without TLS only where the Source has none.
        for uri in ["http://source.example/new", "http://cdn.example/new"] {
            for named in [NOTHING, ORIGIN, LINKED, LISTED] {
                check(open, uri, named, Claim::Foreign);
            }
        }
        check(
            "http://source.example/",
            "http://source.example/new",
            NOTHING,
            Claim::Asked,
        );
        check(
            "http://source.example/",
            "http://cdn.example/new",
            NOTHING,
            Claim::Asked,
        );
        check(
            "http://source.example/",
            "https://source.example/new",
            NOTHING,
            Claim::Foreign,
        );
        check(
            "http://source.example/",
            "https://source.example/new",
            ORIGIN,
            Claim::Asked,
        );
        // With credentials only what is listed.
        let closed = "https://user:password@source.example/";
        for (named, expected) in [
            (NOTHING, Claim::Unlisted),
            (ORIGIN, Claim::Unlisted),
            (LINKED, Claim::Asked),
            (LISTED, Claim::Asked),
        ] {
            let admin = "https://source.example/admin/delete-everything?really=1";
            check(closed, admin, named, expected);
        }
        check(closed, "https://cdn.example/new", NOTHING, Claim::Asked);
        check(closed, "https://evil.example/new", NOTHING, Claim::Foreign);
    }
}
