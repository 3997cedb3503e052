//! One package: a ZIP file of bitstreams with their manifest (the core, sections 11.2 and 13.2).

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use bytes::Bytes;
use resourcesync::{Entry, Head};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::documents;
use super::options::{MemberFault, PathForm};

/// The folder of a package on the machine that made it, for [`PathForm::Local`].
const LOCAL_FOLDER: &str = "/srv/source/dump";

/// An entry of a manifest, and the member if there are bytes.
#[derive(Clone, Debug)]
pub(super) struct Bitstream {
    pub(super) entry: Entry,
    /// The member's name.
    pub(super) name: String,
    pub(super) bytes: Option<Bytes>,
}

/// A package and a copy of its manifest.
#[derive(Clone, Debug)]
pub(super) struct DumpPackage {
    pub(super) zip: Bytes,
    pub(super) manifest: Bytes,
}

impl DumpPackage {
    /// Packs bitstreams; `faults` are by URI.
    pub(super) fn pack(
        head: &Head,
        bitstreams: Vec<Bitstream>,
        paths: PathForm,
        faults: &BTreeMap<String, MemberFault>,
    ) -> Self {
        let mut members = Vec::new();
        let mut entries = Vec::new();
        for bitstream in bitstreams {
            let mut entry = bitstream.entry;
            if let Some(bytes) = bitstream.bytes {
                entry.md.path = Some(match paths {
                    PathForm::LeadingSlash => format!("/{}", bitstream.name),
                    PathForm::NoSlash => bitstream.name.clone(),
                    PathForm::Local => format!("{LOCAL_FOLDER}/{}", bitstream.name),
                });
                match faults.get(entry.loc.as_str()) {
                    None => members.push((bitstream.name, bytes)),
                    Some(MemberFault::Missing) => {}
                    Some(MemberFault::WrongBytes) => {
                        let wrong = bytes.iter().map(|byte| !byte).collect();
                        members.push((bitstream.name, wrong));
                    }
                }
            }
            entries.push(entry);
        }
        let manifest = documents::document(head, &entries);
        members.insert(0, ("manifest.xml".to_owned(), manifest.clone()));
        Self {
            zip: zip(&members).expect("writing to memory does not fail"),
            manifest,
        }
    }
}

fn zip(members: &[(String, Bytes)]) -> zip::result::ZipResult<Bytes> {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(name.as_str(), options)?;
        zip.write_all(bytes)?;
    }
    Ok(Bytes::from(zip.finish()?.into_inner()))
}
