//! What a sample Source is asked to be.

use std::net::{Ipv4Addr, SocketAddr};

use crate::demo::HubOptions;
use crate::protocol::{HubUri, SourceTime};

/// What a sample Source is asked to be. The default is a set of three resources on a free loopback port, with everything that the
/// specification offers for following it, and a hub of its own.
#[derive(Clone, Debug)]
pub struct SampleOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The names of its sets of resources: one path segment each.
    pub sets: Vec<String>,
    /// How many resources each set begins with, named `r0000.txt` and so on.
    pub resources_per_set: usize,
    /// The length of each of those, in bytes.
    pub resource_size: usize,
    /// More entries than this make the Resource List an index of lists.
    pub entries_per_list: usize,
    /// Whether there is a Resource List.
    pub resource_list: bool,
    /// Whether entries tell digests.
    pub digests: bool,
    /// Whether there is a Change List.
    pub change_list: bool,
    /// How its Change Lists are written.
    pub change_list_form: ChangeListForm,
    /// Which dumps there are, and how they are made.
    pub dumps: DumpOptions,
    /// The hub that its channels name.
    pub hub: ChannelHub,
    /// Whether a topic's body is its latest notification; else it is empty.
    pub latest_on_topic: bool,
    /// Whether times are whole seconds, so that changes within one notification may share one.
    pub whole_seconds: bool,
    /// Where its clock stands until it is moved; `None`: it follows the wall clock.
    pub start: Option<SourceTime>,
}

impl Default for SampleOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            sets: vec!["set1".to_owned()],
            resources_per_set: 3,
            resource_size: 64,
            entries_per_list: 50_000,
            resource_list: true,
            digests: true,
            change_list: true,
            change_list_form: ChangeListForm::default(),
            dumps: DumpOptions::default(),
            hub: ChannelHub::Own(HubOptions::default()),
            latest_on_topic: true,
            whole_seconds: false,
            start: None,
        }
    }
}

/// The hub that a Source's channels name.
#[derive(Clone, Debug)]
pub enum ChannelHub {
    /// There are no channels at all: the Source can only be polled.
    None,
    /// One that the Source starts for itself.
    Own(HubOptions),
    /// Somebody else's.
    External {
        /// Its URI.
        hub: HubUri,
        /// How it is told of a notification.
        submission: Submission,
    },
}

/// How an external hub is told of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The notification itself is posted to it (Change Notification, section 4.1).
    Payload,
    /// A form with `hub.mode=publish` tells it to fetch the topic, as many WebSub hubs expect.
    Ping,
}

/// How Change Lists are written. The default is as the specification has it; Sources out in the world leave things out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeListForm {
    /// Whether they tell `from`.
    pub from: bool,
    /// Whether the closed ones tell `until`.
    pub until: bool,
    /// Whether entries tell `datetime`, of version 1.1.
    pub datetime: bool,
    /// Whether entries tell `lastmod`.
    pub lastmod: bool,
    /// Whether the newest change comes first.
    pub newest_first: bool,
}

impl Default for ChangeListForm {
    fn default() -> Self {
        Self {
            from: true,
            until: true,
            datetime: true,
            lastmod: true,
            newest_first: false,
        }
    }
}

/// Which dumps there are, and how they are made. The default is none at all; otherwise as the specification has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpOptions {
    /// Whether there is a Resource Dump.
    pub resource_dump: bool,
    /// Whether there is a Change Dump.
    pub change_dump: bool,
    /// More resources, or changes, than this make several packages.
    pub entries_per_package: usize,
    /// Whether each package has a dump of its own, in an index of dumps.
    pub indexed: bool,
    /// Whether dumps point at copies of the manifests (`rel="contents"`).
    pub contents: bool,
    /// How manifests write paths.
    pub paths: PathForm,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            resource_dump: false,
            change_dump: false,
            entries_per_package: 50_000,
            indexed: false,
            contents: true,
            paths: PathForm::LeadingSlash,
        }
    }
}

/// How manifests write the paths of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathForm {
    /// `/resources/a`, as the specification has it.
    LeadingSlash,
    /// `resources/a`, as the members are named.
    NoSlash,
    /// `/srv/source/dump/resources/a`: where the file was on the machine that made the package.
    Local,
}

/// What is wrong with a member of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberFault {
    /// The manifest tells of it, and it is not there.
    Missing,
    /// As many bytes as there should be, but others.
    WrongBytes,
}
