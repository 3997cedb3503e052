//! The Source's web server: renders what the Source publishes, and answers requests for it.

use axum::http;
use chrono::{DateTime, Utc};
use reqwest::header::{
    CONTENT_RANGE, DATE, ETAG, HeaderMap, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, RANGE,
};
use resourcesync::{
    Algorithm, Capability, ChangeKind, Digest, Entry, Head, Link, Root, write_document,
};
use resyncd_core::ResourceUri;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::network::Form;
use super::packages::{PackageForm, PackageNo, render_package};
use super::source::{
    Change, ChangeLists, Content, DumpOffer, Fault, Habits, List, Notification, Offered, PartForm,
    ResourceNo, ServerValidators, SetNo, SimulatedDocument, Source, bytes, digest, type_of,
};

pub(super) const BASE: &str = "http://source.example/";

/// What a URI of the Source leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Description,
    Document(SetNo, SimulatedDocument),
    ChangeList(SetNo, u32),
    Package(SetNo, PackageNo, PackageForm),
    Resource(ResourceNo),
}

impl Target {
    /// What a URI leads to.
    pub(super) fn of(url: &Url) -> Option<Self> {
        let uri = ResourceUri::try_from(url.clone()).ok()?;
        let url = uri.normalized();
        let path: Vec<&str> = url.path_segments()?.collect();
        match path[..] {
            [".well-known", "resourcesync"] => Some(Self::Description),
            ["resource", number] => Some(Self::Resource(number.parse().ok()?)),
            [set, file] => {
                let set = set.strip_prefix("set")?.parse().ok()?;
                if let Some((number, form)) = PackageNo::of_file(file) {
                    return Some(Self::Package(set, number, form));
                }
                let file = file.strip_suffix(".xml")?;
                let place = match file {
                    "capabilitylist" => SimulatedDocument::CapabilityList,
                    "resourcelist" => SimulatedDocument::ResourceList,
                    "changelist" => SimulatedDocument::ChangeListIndex,
                    "resourcedump" => SimulatedDocument::ResourceDump,
                    "changedump" => SimulatedDocument::ChangeDump,
                    _ => {
                        if let Some(number) = file.strip_prefix("part") {
                            SimulatedDocument::Part(number.parse().ok()?)
                        } else {
                            let key = file.strip_prefix("changes")?.parse().ok()?;
                            return Some(Self::ChangeList(set, key));
                        }
                    }
                };
                Some(Self::Document(set, place))
            }
            _ => None,
        }
    }

    pub(super) fn url(self) -> Url {
        let path = match self {
            Self::Description => ".well-known/resourcesync".to_owned(),
            Self::Resource(number) => format!("resource/{number}"),
            Self::ChangeList(set, key) => format!("set{set}/changes{key}.xml"),
            Self::Package(set, number, form) => format!("set{set}/{}", number.file_name(form)),
            Self::Document(set, place) => {
                let file = match place {
                    SimulatedDocument::CapabilityList => "capabilitylist".to_owned(),
                    SimulatedDocument::ResourceList => "resourcelist".to_owned(),
                    SimulatedDocument::Part(number) => format!("part{number}"),
                    SimulatedDocument::ChangeListIndex
                    | SimulatedDocument::ChangeLists
                    | SimulatedDocument::ClosedChangeLists => "changelist".to_owned(),
                    SimulatedDocument::ResourceDump => "resourcedump".to_owned(),
                    // No document: a notification about packages names the Change Dump.
                    SimulatedDocument::ChangeDump | SimulatedDocument::Packages => {
                        "changedump".to_owned()
                    }
                };
                format!("set{set}/{file}.xml")
            }
        };
        Url::parse(BASE).unwrap().join(&path).unwrap()
    }

    /// Its URI, written in another way: by https, and with a letter that is escaped.
    pub(super) fn respelled(self) -> Url {
        let uri = self.url().to_string();
        let uri = uri.replacen("http://", "https://", 1);
        Url::parse(&uri.replacen("/resource/", "/re%73ource/", 1)).unwrap()
    }

    /// The set and the document that a fault may concern.
    pub(super) fn place(self) -> Option<(SetNo, SimulatedDocument)> {
        match self {
            Self::Document(set, place) => Some((set, place)),
            Self::ChangeList(set, _) => Some((set, SimulatedDocument::ChangeLists)),
            Self::Package(set, ..) => Some((set, SimulatedDocument::Packages)),
            Self::Description | Self::Resource(_) => None,
        }
    }

    /// The resource of that URI.
    pub(super) fn resource(uri: &str) -> ResourceNo {
        // Not parsed as a URI: this runs for each row after each commit.
        let path = uri.split_once("://source.example/");
        let number = path.and_then(|(_, path)| path.split_once('/'));
        match number.map(|(_, number)| number.parse()) {
            Some(Ok(number)) => number,
            _ => panic!("{uri} is no resource"),
        }
    }

    /// The set of that Capability List.
    pub(super) fn set(capability_list: &str) -> SetNo {
        let path = capability_list.strip_prefix(BASE).unwrap_or_default();
        let set = path.strip_prefix("set").and_then(|rest| {
            let number = rest.strip_suffix("/capabilitylist.xml")?;
            number.parse().ok()
        });
        set.unwrap_or_else(|| panic!("{capability_list} is no Capability List"))
    }
}

/// The topic of a channel.
pub(super) fn topic(set: SetNo, kind: &Capability) -> Url {
    let path = format!("set{set}/{}", kind.as_str());
    Url::parse(BASE).unwrap().join(&path).unwrap()
}

/// The document that a notification carries.
pub(super) fn notification(source: &Source, sent: &Notification, form: Form) -> Vec<u8> {
    let mut written = match &sent.content {
        Content::Changes { interval, entries } => {
            let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
            (head.md.from, head.md.until) = interval.unzip();
            let mut entries: Vec<Entry> =
                entries.iter().map(|entry| change(source, entry)).collect();
            for entry in &mut entries {
                // Who may not speak for the Source has nothing requested at another origin.
                entry.loc.set_scheme("http").unwrap();
            }
            write_document(&head, &entries)
        }
        Content::Framework(capability, at) => {
            let head = Head::new(Root::Urlset, Capability::FrameworkNotification);
            let place = match capability {
                Capability::CapabilityList => SimulatedDocument::CapabilityList,
                Capability::ResourceList => SimulatedDocument::ResourceList,
                Capability::ResourceDump => SimulatedDocument::ResourceDump,
                Capability::ChangeDump => SimulatedDocument::ChangeDump,
                _ => SimulatedDocument::ChangeListIndex,
            };
            let mut entry = pointer(Target::Document(sent.set, place), capability);
            entry.md.change = Some(ChangeKind::Updated);
            entry.md.datetime = Some(*at);
            write_document(&head, [&entry])
        }
    };
    match form {
        Form::Original => {}
        Form::Rewritten => written.extend(b"<!-- again -->\n"),
        Form::CutShort => written.truncate(written.len() * 2 / 3),
    }
    written
}

/// Whether it is a Change List that is closed.
pub(super) fn is_closed_list(source: &Source, target: Target) -> bool {
    let Target::ChangeList(set, key) = target else {
        return false;
    };
    let mut lists = source.published(set).lists.iter();
    lists.any(|list| list.key == key && list.until.is_some())
}

/// Answers a request for something that can be read.
pub(super) fn answer(
    source: &Source,
    target: Target,
    fault: Option<Fault>,
    headers: &HeaderMap,
    now: u64,
) -> http::Response<Vec<u8>> {
    match fault {
        Some(Fault::Gone) => return status(404),
        Some(Fault::Unavailable) => return status(503),
        Some(Fault::CutShort) | None => {}
    }
    let Some((mut body, written)) = render(source, target) else {
        return status(404);
    };
    if fault == Some(Fault::CutShort) {
        body.truncate(body.len() * 2 / 3);
    }
    serve(source, body, written, headers, now)
}

/// Answers a request with a document that was written at that moment, unless the Destination has it.
pub(super) fn serve(
    source: &Source,
    body: Vec<u8>,
    written: u64,
    headers: &HeaderMap,
    now: u64,
) -> http::Response<Vec<u8>> {
    let date = |moment: u64| {
        let at = source.stamp(moment).to_datetime();
        DateTime::<Utc>::format(&at, "%a, %d %b %Y %H:%M:%S GMT").to_string()
    };
    let mut answer = http::Response::builder()
        .status(200)
        .header(DATE, date(now));
    let asked = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match source.habits.validators {
        ServerValidators::Nothing => {}
        ServerValidators::Etag => {
            let digest: [u8; 32] = Sha256::digest(&body).into();
            let etag: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
            let etag = format!("\"{etag}\"");
            if asked(IF_NONE_MATCH) == Some(&etag) {
                return status(304);
            }
            answer = answer.header(ETAG, etag);
        }
        ServerValidators::LastModified => {
            let modified = date(written);
            if asked(IF_MODIFIED_SINCE) == Some(&modified) {
                return status(304);
            }
            answer = answer.header(LAST_MODIFIED, modified);
        }
    }
    answer.body(body).unwrap()
}

/// Answers a request with a piece of a file, from where it asks for on; then the connection breaks off, unless it was the last one.
pub(super) fn serve_piece(
    file: &[u8],
    length: usize,
    headers: &HeaderMap,
) -> http::Response<reqwest::Body> {
    let range = headers.get(RANGE).and_then(|range| range.to_str().ok());
    let first = range.and_then(|range| {
        let first = range.strip_prefix("bytes=")?.strip_suffix('-')?;
        first.parse().ok()
    });
    let from: usize = first.unwrap_or_default();
    let end = file.len().min(from + length);
    let mut chunks = vec![Ok(file[from..end].to_vec())];
    if end < file.len() {
        chunks.push(Err(std::io::Error::from(
            std::io::ErrorKind::ConnectionReset,
        )));
    }
    let mut answer = http::Response::builder().header(ETAG, "\"piece\"");
    if first.is_some() {
        let (last, all) = (file.len() - 1, file.len());
        let range = format!("bytes {from}-{last}/{all}");
        answer = answer.status(206).header(CONTENT_RANGE, range);
    }
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    answer.body(body).unwrap()
}

pub(super) fn status(status: u16) -> http::Response<Vec<u8>> {
    let answer = http::Response::builder().status(status);
    answer.body(Vec::new()).unwrap()
}

/// A document or a representation, and when it was written; `None`: there is none.
fn render(source: &Source, target: Target) -> Option<(Vec<u8>, u64)> {
    if let Some((set, _)) = target.place()
        && set >= source.habits.sets
    {
        return None;
    }
    match target {
        Target::Description => Some((description(source), 0)),
        Target::Resource(resource) => {
            if !source.resources().contains(&resource) {
                return None;
            }
            let version = source.content(resource)?;
            let written = source.last_change(resource)?.moment;
            Some((bytes(resource, version), written))
        }
        Target::ChangeList(set, key) => {
            let mut lists = source.published(set).lists.iter();
            let list = lists.find(|list| list.key == key)?;
            Some((change_list(source, set, list), list.written))
        }
        Target::Package(set, number, form) => render_package(source, set, number, form),
        Target::Document(set, place) => {
            let published = source.published(set);
            match place {
                SimulatedDocument::CapabilityList => Some((
                    capability_list(source, set),
                    published.capability_list_written,
                )),
                SimulatedDocument::ResourceList => {
                    let list = &published.resource_list;
                    match source.habits.part_form {
                        _ if source.habits.parts == 0 => {
                            Some((resource_list(source, set, 0)?, list.written))
                        }
                        PartForm::Pages => {
                            Some((resource_list(source, set, 0)?, list.parts[0].written))
                        }
                        PartForm::Dated | PartForm::Undated | PartForm::Typed => {
                            Some((resource_list_index(source, set), list.written))
                        }
                    }
                }
                SimulatedDocument::Part(number) => {
                    let part = published.resource_list.parts.get(number)?;
                    let body = resource_list(source, set, number)?;
                    (source.habits.parts > 0).then_some((body, part.written))
                }
                SimulatedDocument::ChangeListIndex
                    if source.habits.change_lists == ChangeLists::Index =>
                {
                    Some((change_list_index(source, set), published.index_written))
                }
                SimulatedDocument::ResourceDump => {
                    Some((resource_dump(source, set), published.resource_dump.written))
                }
                SimulatedDocument::ChangeDump => {
                    let written = published.lists.iter().map(|list| list.written).max()?;
                    let written = written.max(published.index_written);
                    Some((change_dump(source, set), written))
                }
                SimulatedDocument::ChangeListIndex
                | SimulatedDocument::ChangeLists
                | SimulatedDocument::ClosedChangeLists
                | SimulatedDocument::Packages => None,
            }
        }
    }
}

fn pointer(target: Target, capability: &Capability) -> Entry {
    let mut entry = Entry::new(target.url());
    entry.md.capability = Some(capability.clone());
    entry
}

pub(super) fn head(root: Root, capability: Capability, set: SetNo) -> Head {
    let mut head = Head::new(root, capability);
    let up = Target::Document(set, SimulatedDocument::CapabilityList);
    head.links.push(Link::new("up", up.url()));
    head
}

fn description(source: &Source) -> Vec<u8> {
    let head = Head::new(Root::Urlset, Capability::Description);
    let sets = 0..source.habits.sets;
    let entries: Vec<Entry> = sets
        .map(|set| {
            let list = Target::Document(set, SimulatedDocument::CapabilityList);
            pointer(list, &Capability::CapabilityList)
        })
        .collect();
    write_document(&head, &entries)
}

fn capability_list(source: &Source, set: SetNo) -> Vec<u8> {
    let published = source.published(set);
    let mut head = Head::new(Root::Urlset, Capability::CapabilityList);
    let up = Link::new("up", Target::Description.url());
    head.links.push(up);
    let mut entries = Vec::new();
    let mut name = |document, capability: &Capability| {
        entries.push(pointer(Target::Document(set, document), capability));
    };
    let Habits {
        resource_dump,
        change_dump,
        ..
    } = source.habits;
    if published.offered == Offered::Everything {
        if resource_dump != DumpOffer::InPlace {
            name(SimulatedDocument::ResourceList, &Capability::ResourceList);
        }
        if resource_dump != DumpOffer::Absent {
            name(SimulatedDocument::ResourceDump, &Capability::ResourceDump);
        }
    }
    if published.offered != Offered::Nothing && change_dump != DumpOffer::Absent {
        name(SimulatedDocument::ChangeDump, &Capability::ChangeDump);
    }
    let change_list = match source.habits.change_lists {
        _ if published.offered == Offered::Nothing || change_dump == DumpOffer::InPlace => None,
        ChangeLists::Absent => None,
        ChangeLists::Index => Some(Target::Document(set, SimulatedDocument::ChangeListIndex)),
        ChangeLists::Open | ChangeLists::Replaced => {
            let last = published.lists.last();
            last.map(|list| Target::ChangeList(set, list.key))
        }
    };
    entries.extend(change_list.map(|list| pointer(list, &Capability::ChangeList)));
    write_document(&head, &entries)
}

/// The entry of a package: it states its length and its digest.
fn package(source: &Source, set: SetNo, number: PackageNo) -> Option<Entry> {
    let (bytes, written) = render_package(source, set, number, PackageForm::Archive)?;
    let mut entry = Entry::new(Target::Package(set, number, PackageForm::Archive).url());
    entry.lastmod = Some(source.stamp(written));
    entry.md.content.media_type = Some("application/zip".to_owned());
    entry.md.content.length = Some(bytes.len() as u64);
    entry.md.content.hashes = vec![Digest::of(Algorithm::Sha256, &bytes)];
    if source.habits.manifest_copies {
        let copy = Target::Package(set, number, PackageForm::ManifestCopy);
        entry.links.push(Link::new("contents", copy.url()));
    }
    Some(entry)
}

fn resource_dump(source: &Source, set: SetNo) -> Vec<u8> {
    let dump = &source.published(set).resource_dump;
    let mut head = head(Root::Urlset, Capability::ResourceDump, set);
    head.md.at = Some(dump.at);
    let packages = 0..dump.parts.len();
    let packages = packages.filter_map(|number| package(source, set, PackageNo::Resources(number)));
    write_document(&head, &packages.collect::<Vec<_>>())
}

fn change_dump(source: &Source, set: SetNo) -> Vec<u8> {
    let says_from = source.habits.lists_say_from;
    let mut head = head(Root::Urlset, Capability::ChangeDump, set);
    let lists = &source.published(set).lists;
    head.md.from = lists.first().map(|list| list.from).filter(|_| says_from);
    let packages = lists.iter().filter_map(|list| {
        let mut entry = package(source, set, PackageNo::Changes(list.key))?;
        entry.md.from = Some(list.from).filter(|_| says_from);
        entry.md.until = list.until;
        Some(entry)
    });
    write_document(&head, &packages.collect::<Vec<_>>())
}

fn resource_list(source: &Source, set: SetNo, number: usize) -> Option<Vec<u8>> {
    let parts = &source.published(set).resource_list.parts;
    let part = parts.get(number)?;
    let mut head = head(Root::Urlset, Capability::ResourceList, set);
    head.md.at = Some(part.at);
    if source.habits.part_form == PartForm::Pages && number + 1 < parts.len() {
        let next = Target::Document(set, SimulatedDocument::Part(number + 1));
        head.links.push(Link::new("next", next.url()));
    }
    let entries = part.entries.iter().map(|change| listed(source, change));
    Some(write_document(&head, &entries.collect::<Vec<_>>()))
}

/// The entry of a resource as a change has left it.
pub(super) fn listed(source: &Source, change: &Change) -> Entry {
    let mut entry = Entry::new(Target::Resource(change.resource).url());
    entry.lastmod = Some(change.at);
    entry.md.content.media_type = Some(type_of(change.resource).to_owned());
    if source.habits.hashes {
        entry.md.content.hashes = vec![digest(change.resource, change.version)];
    }
    entry
}

fn resource_list_index(source: &Source, set: SetNo) -> Vec<u8> {
    let list = &source.published(set).resource_list;
    let mut head = head(Root::Sitemapindex, Capability::ResourceList, set);
    head.md.at = Some(list.at);
    let parts = list.parts.iter().enumerate();
    let entries: Vec<Entry> = parts
        .map(|(number, part)| {
            let mut entry =
                Entry::new(Target::Document(set, SimulatedDocument::Part(number)).url());
            entry.lastmod = Some(part.at).filter(|_| source.habits.part_form == PartForm::Dated);
            if source.habits.part_form == PartForm::Typed {
                let first = part.entries.first();
                entry.md.content.media_type = first.map(|it| type_of(it.resource).to_owned());
            }
            entry
        })
        .collect();
    write_document(&head, &entries)
}

fn change_list(source: &Source, set: SetNo, list: &List) -> Vec<u8> {
    let mut head = head(Root::Urlset, Capability::ChangeList, set);
    head.md.from = Some(list.from).filter(|_| source.habits.lists_say_from);
    head.md.until = list.until;
    let entries: Vec<Entry> = list
        .entries
        .iter()
        .map(|entry| change(source, entry))
        .collect();
    write_document(&head, &entries)
}

fn change_list_index(source: &Source, set: SetNo) -> Vec<u8> {
    let says_from = source.habits.lists_say_from;
    let mut head = head(Root::Sitemapindex, Capability::ChangeList, set);
    let lists = &source.published(set).lists;
    head.md.from = lists.first().map(|list| list.from).filter(|_| says_from);
    let entries: Vec<Entry> = lists
        .iter()
        .map(|list| {
            let mut entry = Entry::new(Target::ChangeList(set, list.key).url());
            entry.md.from = Some(list.from).filter(|_| says_from);
            entry.md.until = list.until;
            entry
        })
        .collect();
    write_document(&head, &entries)
}

/// The entry of a change.
pub(super) fn change(source: &Source, change: &Change) -> Entry {
    let target = Target::Resource(change.resource);
    let uri = if source.habits.respells {
        target.respelled()
    } else {
        target.url()
    };
    let mut entry = Entry::new(uri);
    entry.md.change = Some(change.kind);
    entry.md.datetime = Some(change.at).filter(|_| !source.habits.undated);
    if change.kind != ChangeKind::Deleted {
        entry.md.content.media_type = Some(type_of(change.resource).to_owned());
    }
    if source.habits.hashes && change.kind != ChangeKind::Deleted {
        entry.md.content.hashes = vec![digest(change.resource, change.version)];
    }
    entry
}
