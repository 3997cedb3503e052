//! The options of a sample Source.

use std::net::{Ipv4Addr, SocketAddr};

use resourcesync::SourceTime;
use resyncd_core::HubUri;

use crate::{Clock, HubOptions, system_clock};

/// The options of a sample Source. The default is a set of three resources on a free loopback port, with Resource List, Change List,
/// channels and a hub of its own.
#[derive(Clone, Debug)]
pub struct SampleOptions {
    /// The address to listen on; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// The names of its sets of resources: one path segment each.
    pub sets: Vec<String>,
    /// How many resources each set has at first, named `r0000.txt` and so on.
    pub resources_per_set: usize,
    /// The length of each of those, in bytes.
    pub resource_size: usize,
    /// More entries than this make the Resource List an index of lists.
    pub entries_per_list: usize,
    /// Whether there is a Resource List.
    pub resource_list: bool,
    /// Whether each set has a metadata record, `r0000.dc.xml`, that describes its first resource. Both are members of a collection.
    pub metadata: bool,
    /// Whether each set also has resources with related ones: duplicates, representations, patches, versions and originals.
    pub related: bool,
    /// Whether entries have digests.
    pub digests: bool,
    /// Whether there is a Change List.
    pub change_list: bool,
    /// The form of its Change Lists.
    pub change_list_form: ChangeListForm,
    /// Which dumps there are, and how they are made.
    pub dumps: DumpOptions,
    /// The hub of its channels.
    pub hub: ChannelHub,
    /// Whether the body of a topic is its latest notification; otherwise it is empty.
    pub latest_on_topic: bool,
    /// Whether times are whole seconds, so that changes within one notification may have the same.
    pub whole_seconds: bool,
    /// What time it is.
    pub clock: Clock,
    /// The time of its clock until it is moved; `None`: that of `clock`.
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
            metadata: false,
            related: false,
            digests: true,
            change_list: true,
            change_list_form: ChangeListForm::default(),
            dumps: DumpOptions::default(),
            hub: ChannelHub::Own(HubOptions::default()),
            latest_on_topic: true,
            whole_seconds: false,
            clock: system_clock,
            start: None,
        }
    }
}

/// The hub of a Source's channels.
#[derive(Clone, Debug)]
pub enum ChannelHub {
    /// There are no channels: the Source can only be polled.
    None,
    /// The Source's own hub.
    Own(HubOptions),
    /// An external hub.
    External {
        /// Its URI.
        hub: HubUri,
        /// How notifications are submitted to it.
        submission: Submission,
    },
}

/// How a notification is submitted to an external hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The notification itself is posted to it (Change Notification, section 4.1).
    Payload,
    /// A form with `hub.mode=publish` makes it fetch the topic, as many WebSub hubs expect.
    Ping,
}

/// The form of Change Lists. The default is that of the specification; real Sources omit parts of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeListForm {
    /// Whether they have `from`.
    pub from: bool,
    /// Whether closed ones have `until`.
    pub until: bool,
    /// Whether entries have `datetime`, of version 1.1.
    pub datetime: bool,
    /// Whether entries have `lastmod`.
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

/// Which dumps there are, and their form. The default is none.
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
    /// The manifest lists it, but the package does not contain it.
    Missing,
    /// The right number of wrong bytes.
    WrongBytes,
}
