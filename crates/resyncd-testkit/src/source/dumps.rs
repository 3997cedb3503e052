//! The dumps of a set: Resource Dumps and Change Dumps (the core, sections 11 and 13).

use std::collections::BTreeMap;

use bytes::Bytes;
use resourcesync::{
    Algorithm, Capability, ContentInfo, Digest, Entry, Head, Interval, Link, Metadata, Root,
    SourceTime,
};

use super::documents::{self, CHANGE_DUMP, RESOURCE_DUMP, SetUris};
use super::options::{DumpOptions, MemberFault};
use super::package::{Bitstream, DumpPackage};
use super::served::ServedFile;

/// The dumps of a set, with their packages.
#[derive(Debug)]
pub(super) struct Dumps {
    uris: SetUris,
    options: DumpOptions,
    digests: bool,
    /// When the published Resource Dump was made, and its packages.
    snapshot: (SourceTime, Vec<DumpPackage>),
    /// The packages of the Change Dump, by their numbers, oldest first. All of them are closed.
    changes: BTreeMap<usize, (Interval, DumpPackage)>,
    /// Changes that are in no package yet, with their bytes.
    unpacked: Vec<(Entry, Option<Bytes>)>,
    packed_until: SourceTime,
    /// By URI; of the packages that are still to be made.
    faults: BTreeMap<String, MemberFault>,
}

impl Dumps {
    /// The dumps of a set whose history begins at `start`.
    pub(super) fn new(
        uris: SetUris,
        options: DumpOptions,
        digests: bool,
        start: SourceTime,
    ) -> Self {
        Self {
            uris,
            options,
            digests,
            snapshot: (start, Vec::new()),
            changes: BTreeMap::new(),
            unpacked: Vec::new(),
            packed_until: start,
            faults: BTreeMap::new(),
        }
    }

    /// The capabilities that the Capability List advertises.
    pub(super) fn offered(&self) -> impl Iterator<Item = Capability> + use<> {
        let dumps = [
            (self.options.resource_dump).then_some(Capability::ResourceDump),
            (self.options.change_dump).then_some(Capability::ChangeDump),
        ];
        dumps.into_iter().flatten()
    }

    /// Plans a fault of a resource's member in later packages, or removes it.
    pub(super) fn plan_fault(&mut self, uri: &str, fault: Option<MemberFault>) {
        match fault {
            Some(fault) => self.faults.insert(uri.to_owned(), fault),
            None => self.faults.remove(uri),
        };
    }

    /// Publishes a Resource Dump.
    pub(super) fn refresh(
        &mut self,
        resources: impl Iterator<Item = (Entry, Bytes)>,
        at: SourceTime,
    ) {
        if !self.options.resource_dump {
            return;
        }
        let head = self.head(
            Root::Urlset,
            Capability::ResourceDumpManifest,
            snapshot_metadata(at),
        );
        let bitstreams: Vec<Bitstream> = resources
            .map(|(entry, bytes)| Bitstream {
                name: format!("resources/{}", self.name_of(&entry)),
                bytes: Some(bytes),
                entry,
            })
            .collect();
        let packages = bitstreams
            .chunks(self.options.entries_per_package.max(1))
            .map(|some| DumpPackage::pack(&head, some.to_vec(), self.options.paths, &self.faults));
        self.snapshot = (at, packages.collect());
    }

    /// Adds a change to the next package.
    pub(super) fn add_change(&mut self, entry: Entry, bytes: Option<Bytes>) {
        if self.options.change_dump {
            self.unpacked.push((entry, bytes));
        }
    }

    /// Packs the changes since the last package into one, or into several if there are too many; returns how many.
    pub(super) fn pack_changes(&mut self, until: SourceTime) -> usize {
        let before = self.changes.len();
        let most = self.options.entries_per_package.max(1);
        while self.unpacked.len() > most {
            // A package ends where the next one's first change begins, so changes of one moment stay together.
            let moment = |(entry, _): &(Entry, Option<Bytes>)| entry.changed_at();
            let first = moment(&self.unpacked[most]);
            let end = self
                .unpacked
                .partition_point(|change| moment(change) < first);
            let Some(first) = first.filter(|_| end > 0) else {
                break;
            };
            let rest = self.unpacked.split_off(end);
            self.pack_interval(first);
            self.unpacked = rest;
        }
        self.pack_interval(until);
        self.changes.len() - before
    }

    fn pack_interval(&mut self, until: SourceTime) {
        let interval = Interval::new(self.packed_until, until)
            .expect("a boundary never lies before an earlier one");
        let number = self.changes.keys().next_back().map_or(1, |last| last + 1);
        let unpacked = std::mem::take(&mut self.unpacked);
        let bitstreams = unpacked
            .into_iter()
            .enumerate()
            .map(|(at, (entry, bytes))| {
                let name = format!("changes/{at:04}/{}", self.name_of(&entry));
                Bitstream { entry, name, bytes }
            });
        let head = self.head(
            Root::Urlset,
            Capability::ChangeDumpManifest,
            interval_metadata(interval),
        );
        let package = DumpPackage::pack(
            &head,
            bitstreams.collect(),
            self.options.paths,
            &self.faults,
        );
        self.changes.insert(number, (interval, package));
        self.packed_until = until;
    }

    /// Drops the oldest packages of the Change Dump and retains `keep`; returns how many were dropped.
    pub(super) fn drop_old_changes(&mut self, keep: usize) -> usize {
        let dropped = self.changes.len().saturating_sub(keep);
        for _ in 0..dropped {
            self.changes.pop_first();
        }
        dropped
    }

    /// A dump, an index of them, a package or a copy of its manifest, by file name.
    pub(super) fn document(&self, file: &str) -> Option<ServedFile> {
        let resources = self.options.resource_dump && file.starts_with("resourcedump");
        let changes = self.options.change_dump && file.starts_with("changedump");
        match (resources, changes) {
            (true, _) => self.resource_dump().file(file),
            (_, true) => self.change_dump().file(file),
            _ => None,
        }
    }

    fn resource_dump(&self) -> Dump<'_> {
        let (at, packages) = &self.snapshot;
        let packages = packages.iter().enumerate();
        Dump {
            dumps: self,
            capability: Capability::ResourceDump,
            name: RESOURCE_DUMP,
            md: snapshot_metadata(*at),
            packages: packages
                .map(|(number, package)| (number, snapshot_metadata(*at), package))
                .collect(),
        }
    }

    fn change_dump(&self) -> Dump<'_> {
        let first = self.changes.values().next();
        let from = first.map_or(self.packed_until, |(interval, _)| interval.from());
        let packages = self.changes.iter();
        Dump {
            dumps: self,
            capability: Capability::ChangeDump,
            name: CHANGE_DUMP,
            md: Metadata {
                from: Some(from),
                ..Metadata::default()
            },
            packages: packages
                .map(|(number, (interval, package))| {
                    (*number, interval_metadata(*interval), package)
                })
                .collect(),
        }
    }

    fn head(&self, root: Root, capability: Capability, md: Metadata) -> Head {
        let mut head = Head::new(root, capability);
        head.md = Metadata {
            capability: head.md.capability,
            ..md
        };
        head.links.push(self.uris.up());
        head
    }

    /// The name of a resource within the set.
    fn name_of(&self, entry: &Entry) -> String {
        let folder = self.uris.resource("");
        let name = entry.loc.as_str().strip_prefix(folder.as_str());
        name.unwrap_or_default().to_owned()
    }
}

/// The metadata of a snapshot.
fn snapshot_metadata(at: SourceTime) -> Metadata {
    Metadata {
        at: Some(at),
        completed: Some(at),
        ..Metadata::default()
    }
}

/// The metadata of what covers an interval.
fn interval_metadata(interval: Interval) -> Metadata {
    Metadata {
        from: Some(interval.from()),
        until: Some(interval.until()),
        ..Metadata::default()
    }
}

/// A dump as it is published.
struct Dump<'a> {
    dumps: &'a Dumps,
    capability: Capability,
    /// The file name of the dump, or of their index.
    name: &'static str,
    md: Metadata,
    /// Each with its number and the times of its entry.
    packages: Vec<(usize, Metadata, &'a DumpPackage)>,
}

impl Dump<'_> {
    fn file(&self, file: &str) -> Option<ServedFile> {
        if file == self.name {
            return Some(ServedFile::xml(if self.dumps.options.indexed {
                self.index()
            } else {
                self.dump(self.md.clone(), &self.packages, false)
            }));
        }
        let found = self.packages.iter().position(|(number, ..)| {
            let stem = self.stem(*number);
            file.strip_prefix(stem.as_str())
                .is_some_and(|rest| rest.starts_with(['.', '-']))
        })?;
        let only = &self.packages[found..=found];
        let (number, md, package) = &only[0];
        let stem = self.stem(*number);
        match file.strip_prefix(stem.as_str())? {
            ".zip" => Some(ServedFile {
                media_type: "application/zip".to_owned(),
                body: package.zip.clone(),
            }),
            "-manifest.xml" if self.dumps.options.contents => {
                Some(ServedFile::xml(package.manifest.clone()))
            }
            ".xml" if self.dumps.options.indexed => {
                Some(ServedFile::xml(self.dump(md.clone(), only, true)))
            }
            _ => None,
        }
    }

    /// What the names of the files of a package begin with.
    fn stem(&self, number: usize) -> String {
        let name = self.name.trim_end_matches(".xml");
        format!("{name}-{number:04}")
    }

    fn index(&self) -> Bytes {
        let head = self.head(Root::Sitemapindex, self.md.clone());
        let entries: Vec<Entry> = self
            .packages
            .iter()
            .map(|(number, md, _)| {
                let file = format!("{}.xml", self.stem(*number));
                let mut entry = Entry::new(self.dumps.uris.file(&file));
                entry.md = md.clone();
                entry
            })
            .collect();
        documents::document(&head, &entries)
    }

    fn dump(
        &self,
        md: Metadata,
        packages: &[(usize, Metadata, &DumpPackage)],
        indexed: bool,
    ) -> Bytes {
        let uris = &self.dumps.uris;
        let mut head = self.head(Root::Urlset, md);
        if indexed {
            head.links.push(Link::new("index", uris.file(self.name)));
        }
        let mut entries = Vec::new();
        for (number, md, package) in packages {
            let stem = self.stem(*number);
            let mut entry = Entry::new(uris.file(&format!("{stem}.zip")));
            entry.lastmod = md.at.or(md.until);
            entry.md = Metadata {
                content: ContentInfo {
                    length: Some(package.zip.len() as u64),
                    media_type: Some("application/zip".to_owned()),
                    hashes: Vec::new(),
                },
                ..md.clone()
            };
            if self.dumps.digests {
                entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, &package.zip)];
            }
            if self.dumps.options.contents {
                let copy = uris.file(&format!("{stem}-manifest.xml"));
                let mut contents = Link::new("contents", copy);
                contents.content.media_type = Some("application/xml".to_owned());
                entry.links.push(contents);
            }
            entries.push(entry);
        }
        documents::document(&head, &entries)
    }

    fn head(&self, root: Root, md: Metadata) -> Head {
        self.dumps.head(root, self.capability.clone(), md)
    }
}
