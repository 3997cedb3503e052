//! The documents of the sample Source.

use std::collections::BTreeMap;

use bytes::Bytes;
use resourcesync::uri::{parse_uri, resolve_reference};
use resourcesync::{
    Capability, ChangeKind, Entry, Head, Interval, Link, Root, SourceTime, write_document,
};
use url::Url;

use super::options::ChangeListForm;
use super::resource::Resource;

/// The file name of a set's Capability List.
pub(super) const CAPABILITY_LIST: &str = "capabilitylist.xml";
/// The file name of its Resource List, or of their index.
const RESOURCE_LIST: &str = "resourcelist.xml";
/// The file name of its Change List, or of their index.
const CHANGE_LIST: &str = "changelist.xml";

/// The file name of its Resource Dump, or of their index.
pub(super) const RESOURCE_DUMP: &str = "resourcedump.xml";
/// The file name of its Change Dump, or of their index.
pub(super) const CHANGE_DUMP: &str = "changedump.xml";

/// The entries of one Change List; it is closed if it has an `until`.
#[derive(Clone, Debug)]
pub(super) struct ChangeList {
    pub(super) number: u32,
    pub(super) from: SourceTime,
    pub(super) until: Option<SourceTime>,
    pub(super) entries: Vec<Entry>,
}

/// The URIs of one set's documents and resources.
#[derive(Clone, Debug)]
pub(super) struct SetUris {
    base: Url,
    name: String,
}

impl SetUris {
    /// The URIs of the set of that name at that Source.
    pub(super) fn new(base: Url, name: &str) -> Self {
        Self {
            base,
            name: name.to_owned(),
        }
    }

    /// The set's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The URI of one of the set's files.
    pub(super) fn file(&self, file: &str) -> Url {
        resolve_reference(&self.base, &format!("/{}/{file}", self.name))
            .expect("a path can be joined to an http URI")
    }

    /// The URI of a resource.
    pub(super) fn resource(&self, name: &str) -> Url {
        self.file(&format!("res/{name}"))
    }

    /// The URI of a channel's topic.
    pub(super) fn topic(&self, kind: &Capability) -> Url {
        self.file(Self::channel_folder(kind))
    }

    /// The path of a channel's topic within the set.
    pub(super) fn channel_folder(kind: &Capability) -> &'static str {
        match kind {
            Capability::FrameworkNotification => "framework/",
            _ => "changes/",
        }
    }

    fn description(&self) -> Url {
        description_uri(&self.base)
    }

    /// The link to the set's Capability List.
    pub(super) fn up(&self) -> Link {
        Link::new("up", self.file(CAPABILITY_LIST))
    }
}

/// The URI of the Source Description (the core, section 8).
pub(super) fn description_uri(base: &Url) -> Url {
    resolve_reference(base, "/.well-known/resourcesync")
        .expect("a path can be joined to an http URI")
}

/// The Source Description (the core, section 8).
pub(super) fn source_description<'a>(sets: impl Iterator<Item = &'a SetUris>) -> Bytes {
    let head = Head::new(Root::Urlset, Capability::Description);
    let entries: Vec<Entry> = sets
        .map(|uris| pointer(uris.file(CAPABILITY_LIST), Capability::CapabilityList))
        .collect();
    document(&head, &entries)
}

/// A Capability List (the core, section 9; the notification specifications, section 5).
pub(super) fn capability_list<'a>(
    uris: &SetUris,
    offered: impl IntoIterator<Item = Capability>,
    channels: impl Iterator<Item = (&'a Capability, &'a Url)>,
) -> Bytes {
    let mut head = Head::new(Root::Urlset, Capability::CapabilityList);
    head.links.push(Link::new("up", uris.description()));
    let pointers = offered.into_iter();
    let mut entries: Vec<Entry> = pointers
        .map(|capability| pointer(uris.file(file_of(&capability)), capability))
        .collect();
    for (kind, hub) in channels {
        let mut channel = pointer(uris.topic(kind), kind.clone());
        channel.links.push(Link::new("hub", hub.clone()));
        entries.push(channel);
    }
    document(&head, &entries)
}

/// The file name of the document of that capability.
fn file_of(capability: &Capability) -> &'static str {
    match capability {
        Capability::ChangeList => CHANGE_LIST,
        Capability::ResourceDump => RESOURCE_DUMP,
        Capability::ChangeDump => CHANGE_DUMP,
        _ => RESOURCE_LIST,
    }
}

fn pointer(loc: Url, capability: Capability) -> Entry {
    let mut entry = Entry::new(loc);
    entry.md.capability = Some(capability);
    entry
}

/// The entry of a resource (the core, section 10.1).
pub(super) fn resource_entry(resource: &Resource, digests: bool) -> Entry {
    let mut entry = Entry::new(resource.uri.clone());
    entry.lastmod = Some(resource.lastmod);
    entry.md.content.length = Some(resource.bytes.len() as u64);
    entry.md.content.media_type = Some(resource.media_type.to_owned());
    if digests {
        entry.md.content.hashes = vec![resource.digest.clone()];
    }
    entry
}

/// The resource that a metadata record describes, and the record.
pub(super) const DESCRIBED: &str = "r0000.txt";
pub(super) const RECORD: &str = "r0000.dc.xml";
/// The kind of the record: Dublin Core.
const PROFILE: &str = "http://purl.org/dc/terms/";

/// The bytes of the record.
pub(super) fn record(uris: &SetUris) -> Bytes {
    let described = uris.resource(DESCRIBED);
    Bytes::from(format!(
        "<record xmlns=\"{PROFILE}\">\n  <identifier>{described}</identifier>\n  <title>The first resource</title>\n</record>\n"
    ))
}

/// Adds the links between a resource and its record (the core, sections 14.5 and 14.7).
pub(super) fn relate(uris: &SetUris, entry: &mut Entry) {
    let (described, record) = (uris.resource(DESCRIBED), uris.resource(RECORD));
    if entry.loc == described {
        entry.links.push(Link::new("describedby", record));
    } else if entry.loc == record {
        entry.links.push(Link::new("describes", described));
        let profile = parse_uri(PROFILE).expect("a constant URI can be parsed");
        entry.links.push(Link::new("profile", profile));
    } else {
        return;
    }
    let collection = uris.file("collections/described");
    entry.links.push(Link::new("collection", collection));
}

/// The Resource List, or the index with its lists, by file name (the core, section 10).
pub(super) fn resource_lists(
    uris: &SetUris,
    entries: &[Entry],
    entries_per_list: usize,
    at: SourceTime,
) -> BTreeMap<String, Bytes> {
    let list = |root, indexed: bool| {
        let mut head = Head::new(root, Capability::ResourceList);
        head.md.at = Some(at);
        head.links.push(uris.up());
        if indexed {
            let index = Link::new("index", uris.file(RESOURCE_LIST));
            head.links.push(index);
        }
        head
    };
    let mut files = BTreeMap::new();
    if entries.len() <= entries_per_list {
        let only = document(&list(Root::Urlset, false), entries);
        files.insert(RESOURCE_LIST.to_owned(), only);
        return files;
    }
    let mut lists = Vec::new();
    for (number, entries) in entries.chunks(entries_per_list).enumerate() {
        let file = format!("resourcelist-{number:04}.xml");
        let mut entry = Entry::new(uris.file(&file));
        entry.md.at = Some(at);
        lists.push(entry);
        files.insert(file, document(&list(Root::Urlset, true), entries));
    }
    let index = document(&list(Root::Sitemapindex, false), &lists);
    files.insert(RESOURCE_LIST.to_owned(), index);
    files
}

/// A Change List, the index of them, or one that the index names, by file name (the core, section 12).
pub(super) fn change_list(
    uris: &SetUris,
    lists: &[ChangeList],
    form: ChangeListForm,
    file: &str,
) -> Option<Bytes> {
    // A single first list has no index. From the second on there is one, also after the first has been dropped.
    let alone = matches!(lists, [only] if only.number == 1);
    if file == CHANGE_LIST && !alone {
        return Some(change_list_index(uris, lists, form));
    }
    let list = lists.iter().find(|list| {
        if alone {
            file == CHANGE_LIST
        } else {
            file == numbered_change_list(list.number)
        }
    })?;
    let mut head = Head::new(Root::Urlset, Capability::ChangeList);
    head.md.from = form.from.then_some(list.from);
    head.md.until = list.until.filter(|_| form.until);
    head.links.push(uris.up());
    if !alone {
        head.links.push(Link::new("index", uris.file(CHANGE_LIST)));
    }
    let mut entries = list.entries.clone();
    for entry in &mut entries {
        entry.lastmod = entry.lastmod.filter(|_| form.lastmod);
        entry.md.datetime = entry.md.datetime.filter(|_| form.datetime);
    }
    if form.newest_first {
        entries.reverse();
    }
    Some(document(&head, &entries))
}

fn change_list_index(uris: &SetUris, lists: &[ChangeList], form: ChangeListForm) -> Bytes {
    let mut head = Head::new(Root::Sitemapindex, Capability::ChangeList);
    let from = lists.first().map(|list| list.from);
    head.md.from = from.filter(|_| form.from);
    head.links.push(uris.up());
    let entries: Vec<Entry> = lists
        .iter()
        .map(|list| {
            let mut entry = Entry::new(uris.file(&numbered_change_list(list.number)));
            entry.md.from = form.from.then_some(list.from);
            entry.md.until = list.until.filter(|_| form.until);
            entry
        })
        .collect();
    document(&head, &entries)
}

fn numbered_change_list(number: u32) -> String {
    format!("changelist-{number:04}.xml")
}

/// A change notification (Change Notification, section 3).
pub(super) fn change_notification(uris: &SetUris, interval: Interval, changes: &[Entry]) -> Bytes {
    let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
    head.md.from = Some(interval.from());
    head.md.until = Some(interval.until());
    head.links.push(uris.up());
    document(&head, changes)
}

/// A framework notification (Framework Notification, section 3).
pub(super) fn framework_notification(uris: &SetUris, changes: &[Entry]) -> Bytes {
    let mut head = Head::new(Root::Urlset, Capability::FrameworkNotification);
    head.links.push(uris.up());
    document(&head, changes)
}

/// The entry of a framework notification: a changed document.
pub(super) fn framework_entry(
    loc: Url,
    capability: Capability,
    change: ChangeKind,
    at: SourceTime,
) -> Entry {
    let mut entry = pointer(loc, capability);
    entry.md.change = Some(change);
    entry.md.datetime = Some(at);
    entry
}

/// A web page that links to the Capability Lists (the core, section 6.3.2).
pub(super) fn front_page<'a>(sets: impl Iterator<Item = &'a SetUris>) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html><head><title>A sample Source</title>\n");
    for uris in sets {
        let list = uris.file(CAPABILITY_LIST);
        page.push_str(&format!("<link rel=\"resourcesync\" href=\"{list}\">\n"));
    }
    page.push_str("</head><body><p>A sample ResourceSync Source.</p></body></html>\n");
    page
}

/// Serialises a document.
pub(super) fn document(head: &Head, entries: &[Entry]) -> Bytes {
    Bytes::from(write_document(head, entries))
}
