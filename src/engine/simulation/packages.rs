//! The packages of the Source's dumps: ZIP files with a manifest.

use std::io::{Cursor, Write};

use resourcesync::{Capability, ChangeKind, Entry, Head, Root, write_document};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::documents::{change, head, listed};
use super::source::{Change, SetNo, Source, bytes};

/// Which package of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageNo {
    /// Of the Resource Dump, by its place.
    Resources(usize),
    /// Of the Change Dump, by the key of the Change List whose changes it has.
    Changes(u32),
}

/// What of a package is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageForm {
    Archive,
    ManifestCopy,
}

impl PackageNo {
    pub(super) fn file_name(self, form: PackageForm) -> String {
        let extension = match form {
            PackageForm::Archive => "zip",
            PackageForm::ManifestCopy => "manifest",
        };
        match self {
            Self::Resources(number) => format!("resources{number}.{extension}"),
            Self::Changes(key) => format!("changes{key}.{extension}"),
        }
    }

    /// The package that a file is of, and which of its files that is.
    pub(super) fn of_file(name: &str) -> Option<(Self, PackageForm)> {
        let (name, extension) = name.split_once('.')?;
        let form = match extension {
            "zip" => PackageForm::Archive,
            "manifest" => PackageForm::ManifestCopy,
            _ => return None,
        };
        let number = match name.strip_prefix("resources") {
            Some(number) => Self::Resources(number.parse().ok()?),
            None => Self::Changes(name.strip_prefix("changes")?.parse().ok()?),
        };
        Some((number, form))
    }
}

/// A package, or the copy of its manifest, and when it was written; `None`: there is none.
pub(super) fn render_package(
    source: &Source,
    set: SetNo,
    number: PackageNo,
    form: PackageForm,
) -> Option<(Vec<u8>, u64)> {
    let published = source.published(set);
    let (head, entries, written) = match number {
        PackageNo::Resources(number) => {
            let part = published.resource_dump.parts.get(number)?;
            let mut head = head(Root::Urlset, Capability::ResourceDumpManifest, set);
            head.md.at = Some(part.at);
            let entries = part.entries.iter();
            let entries = entries.map(|it| (listed(source, it), it.clone()));
            (head, entries.collect::<Vec<_>>(), part.written)
        }
        PackageNo::Changes(key) => {
            let list = published.lists.iter().find(|list| list.key == key)?;
            let mut head = head(Root::Urlset, Capability::ChangeDumpManifest, set);
            head.md.from = Some(list.from).filter(|_| source.habits.lists_say_from);
            head.md.until = list.until;
            let entries = list.entries.iter();
            let entries = entries.map(|it| (change(source, it), it.clone()));
            (head, entries.collect(), list.written)
        }
    };
    let (manifest, members) = pack(&head, entries);
    let bytes = match form {
        PackageForm::Archive => archive(manifest, members),
        PackageForm::ManifestCopy => manifest,
    };
    Some((bytes, written))
}

/// The name of a member, and its bytes.
pub(super) type Member = (String, Vec<u8>);

/// The manifest, and the members that it names.
pub(super) fn pack(head: &Head, entries: Vec<(Entry, Change)>) -> (Vec<u8>, Vec<Member>) {
    let mut members: Vec<Member> = Vec::new();
    let mut named = Vec::new();
    for (mut entry, change) in entries {
        let Change {
            resource, version, ..
        } = change;
        if entry.md.change != Some(ChangeKind::Deleted) {
            let name = format!("resource{resource}/version{version}");
            entry.md.path = Some(format!("/{name}"));
            if members.iter().all(|(known, _)| *known != name) {
                members.push((name, bytes(resource, version)));
            }
        }
        named.push(entry);
    }
    (write_document(head, &named), members)
}

/// A package with its manifest and these members.
pub(super) fn archive(manifest: Vec<u8>, members: Vec<Member>) -> Vec<u8> {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let manifest = ("manifest.xml".to_owned(), manifest);
    for (name, bytes) in std::iter::once(manifest).chain(members) {
        archive.start_file(name, options).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}
