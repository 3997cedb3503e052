//! One set of resources: its content, its changes and its documents.

use std::collections::BTreeMap;

use bytes::Bytes;
use resourcesync::{Capability, ChangeKind, Entry, Interval, Link, SourceTime};
use url::Url;

use super::documents::{self, ChangeList, SetUris};
use super::dumps::Dumps;
use super::options::{ChangeListForm, SampleOptions};
use super::related::{self, Related};
use super::resource::{Resource, path_and_query};

/// One set of resources.
#[derive(Debug)]
pub(super) struct ResourceSet {
    uris: SetUris,
    digests: bool,
    /// Whether the first resource has a record.
    metadata: bool,
    /// Further links of resources, by URI.
    links: BTreeMap<Url, Vec<Link>>,
    /// What belongs to resources with related ones; `None`: there are none.
    related: Option<Related>,
    /// Whether there is a Resource List.
    listed: bool,
    entries_per_list: usize,
    form: ChangeListForm,
    /// By path and query, as requested.
    resources: BTreeMap<String, Resource>,
    /// The published Resource List, or the index and its lists, by file name.
    resource_lists: BTreeMap<String, Bytes>,
    /// Oldest first; the last one is open. `None`: this set has no Change List.
    change_lists: Option<Vec<ChangeList>>,
    /// Served instead while the Change List is frozen.
    frozen: Option<Vec<ChangeList>>,
    dumps: Dumps,
    /// Changes that are in no notification yet.
    buffered: Vec<Entry>,
    notified_until: SourceTime,
    /// The channels that are advertised, each with its latest notification.
    channels: BTreeMap<Capability, Bytes>,
}

impl ResourceSet {
    /// A new set, whose history begins at `start`.
    pub(super) fn new(uris: SetUris, options: &SampleOptions, start: SourceTime) -> Self {
        let open = ChangeList {
            number: 1,
            from: start,
            until: None,
            entries: Vec::new(),
        };
        let dumps = Dumps::new(uris.clone(), options.dumps, options.digests, start);
        let mut set = Self {
            uris,
            digests: options.digests,
            metadata: options.metadata,
            links: BTreeMap::new(),
            related: options.related.then(Related::default),
            listed: options.resource_list,
            entries_per_list: options.entries_per_list.max(1),
            form: options.change_list_form,
            resources: BTreeMap::new(),
            resource_lists: BTreeMap::new(),
            change_lists: options.change_list.then(|| vec![open]),
            frozen: None,
            dumps,
            buffered: Vec::new(),
            notified_until: start,
            channels: BTreeMap::new(),
        };
        for number in 0..options.resources_per_set {
            let name = format!("r{number:04}.txt");
            let bytes = first_content(set.uris.name(), &name, options.resource_size);
            set.put(&name, bytes, start);
        }
        if options.metadata {
            let record = documents::record(&set.uris);
            set.put(documents::RECORD, record, start);
        }
        if options.related {
            for (name, bytes) in related::first_resources() {
                set.put(name, bytes, start);
            }
        }
        set.refresh_resource_list(start);
        set.refresh_resource_dump(start);
        set
    }

    /// The URIs of its documents.
    pub(super) fn uris(&self) -> &SetUris {
        &self.uris
    }

    /// The URI of a resource, whether it exists or not.
    pub(super) fn resource_uri(&self, name: &str) -> Url {
        self.uris.resource(name)
    }

    /// A resource, by path and query.
    pub(super) fn resource(&self, path: &str) -> Option<&Resource> {
        self.resources.get(path)
    }

    /// Its resources.
    pub(super) fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.resources.values()
    }

    fn entry_of(&self, resource: &Resource) -> Entry {
        self.entry_with_links(resource, false)
    }

    /// `changes`: the entry states a change.
    fn entry_with_links(&self, resource: &Resource, changes: bool) -> Entry {
        let mut entry = documents::resource_entry(resource, self.digests);
        if self.metadata {
            documents::relate(&self.uris, &mut entry);
        }
        let links = self.links.get(&resource.uri);
        entry.links.extend(links.into_iter().flatten().cloned());
        if let Some(related) = &self.related {
            related.relate(&self.uris, &mut entry, changes);
        }
        entry
    }

    /// Links a resource to others, in the documents that are made from now on.
    pub(super) fn set_links(&mut self, name: &str, links: Vec<Link>) {
        self.links.insert(self.resource_uri(name), links);
    }

    /// What belongs to its resources.
    pub(super) fn related(&self) -> Option<&Related> {
        self.related.as_ref()
    }

    fn put(&mut self, name: &str, bytes: Bytes, at: SourceTime) -> Entry {
        let mut resource = Resource::new(self.resource_uri(name), bytes, at);
        if let Some(related) = &mut self.related {
            related.note(&self.uris, &mut resource);
        }
        let entry = self.entry_with_links(&resource, true);
        self.resources
            .insert(path_and_query(&resource.uri).to_owned(), resource);
        entry
    }

    /// Changes a resource; without bytes it is deleted. The change is in the Change List at once and in the next notification.
    pub(super) fn change(
        &mut self,
        name: &str,
        kind: ChangeKind,
        bytes: Option<Bytes>,
        at: SourceTime,
    ) {
        let mut entry = match bytes.clone() {
            Some(bytes) => self.put(name, bytes, at),
            None => {
                let uri = self.resource_uri(name);
                self.resources.remove(path_and_query(&uri));
                let mut entry = Entry::new(uri);
                entry.lastmod = Some(at);
                entry
            }
        };
        entry.md.change = Some(kind);
        entry.md.datetime = Some(at);
        if let Some(open) = self
            .change_lists
            .as_mut()
            .and_then(|lists| lists.last_mut())
        {
            open.entries.push(entry.clone());
        }
        self.dumps.add_change(entry.clone(), bytes);
        self.buffered.push(entry);
    }

    /// The changes that are in no notification yet, and their interval up to `until`.
    pub(super) fn take_buffered(&mut self, until: SourceTime) -> (Interval, Vec<Entry>) {
        let interval = Interval::new(self.notified_until, until)
            .expect("a boundary never lies before an earlier one");
        self.notified_until = until;
        (interval, std::mem::take(&mut self.buffered))
    }

    /// Publishes a Resource List.
    pub(super) fn refresh_resource_list(&mut self, at: SourceTime) {
        let entries: Vec<Entry> = self
            .resources()
            .map(|resource| self.entry_of(resource))
            .collect();
        self.resource_lists =
            documents::resource_lists(&self.uris, &entries, self.entries_per_list, at);
    }

    /// Publishes a Resource Dump.
    pub(super) fn refresh_resource_dump(&mut self, at: SourceTime) {
        let entries: Vec<_> = self
            .resources()
            .map(|resource| (self.entry_of(resource), resource.bytes.clone()))
            .collect();
        self.dumps.refresh(entries.into_iter(), at);
    }

    /// Its dumps.
    pub(super) fn dumps(&self) -> &Dumps {
        &self.dumps
    }

    /// Its dumps.
    pub(super) fn dumps_mut(&mut self) -> &mut Dumps {
        &mut self.dumps
    }

    /// Closes the open Change List and opens the next.
    pub(super) fn roll_change_list(&mut self, at: SourceTime) {
        let Some(lists) = &mut self.change_lists else {
            return;
        };
        let open = lists.last_mut().expect("there always is an open list");
        open.until = Some(at);
        let number = open.number + 1;
        lists.push(ChangeList {
            number,
            from: at,
            until: None,
            entries: Vec::new(),
        });
    }

    /// Drops the oldest closed Change Lists and retains `keep`; returns how many were dropped.
    pub(super) fn drop_old_change_lists(&mut self, keep: usize) -> usize {
        let Some(lists) = &mut self.change_lists else {
            return 0;
        };
        let dropped = (lists.len() - 1).saturating_sub(keep);
        lists.drain(..dropped);
        dropped
    }

    /// Freezes the Change List, or lets it catch up.
    pub(super) fn freeze_change_list(&mut self, frozen: bool) {
        self.frozen = if frozen {
            self.change_lists.clone()
        } else {
            None
        };
    }

    /// Opens a Change List that begins at `from`, or removes it.
    pub(super) fn set_change_list(&mut self, from: Option<SourceTime>) {
        self.frozen = None;
        self.change_lists = from.map(|from| {
            vec![ChangeList {
                number: 1,
                from,
                until: None,
                entries: Vec::new(),
            }]
        });
    }

    /// Changes the form of the Change Lists.
    pub(super) fn set_form(&mut self, form: ChangeListForm) {
        self.form = form;
    }

    /// Advertises a channel.
    pub(super) fn add_channel(&mut self, kind: Capability) {
        self.channels.entry(kind).or_default();
    }

    /// Removes a channel.
    pub(super) fn remove_channel(&mut self, kind: &Capability) {
        self.channels.remove(kind);
    }

    /// Stores the latest notification of a channel; `false` if there is no such channel.
    pub(super) fn set_latest(&mut self, kind: &Capability, body: Bytes) -> bool {
        match self.channels.get_mut(kind) {
            Some(latest) => {
                *latest = body;
                true
            }
            None => false,
        }
    }

    /// The channel of a topic's file name, with its latest notification.
    pub(super) fn channel(&self, file: &str) -> Option<(&Capability, &Bytes)> {
        self.channels
            .iter()
            .find(|(kind, _)| SetUris::channel_folder(kind) == file)
    }

    /// A document by its file name; `hub`: of its channels.
    pub(super) fn document(&self, file: &str, hub: Option<&Url>) -> Option<Bytes> {
        if let Some(list) = self.resource_lists.get(file) {
            return self.listed.then(|| list.clone());
        }
        if file == documents::CAPABILITY_LIST {
            let kinds = self.channels.keys();
            let lists = [
                self.listed.then_some(Capability::ResourceList),
                (self.change_lists.is_some()).then_some(Capability::ChangeList),
            ];
            let offered = lists.into_iter().flatten().chain(self.dumps.offered());
            let body =
                documents::capability_list(&self.uris, offered, kinds.zip(hub.into_iter().cycle()));
            return Some(body);
        }
        let lists = self.frozen.as_ref().or(self.change_lists.as_ref())?;
        documents::change_list(&self.uris, lists, self.form, file)
    }
}

/// The initial content of a resource: a line with its name, repeated to that length.
fn first_content(set: &str, name: &str, length: usize) -> Bytes {
    let line = format!("{set}/{name}, as it was at first\n");
    let text: Vec<u8> = line.bytes().cycle().take(length).collect();
    Bytes::from(text)
}
