//! Packages (sections 11 and 13): which of them a dump names, the copies of their manifests, and how they come to disk.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use url::Url;

use super::EngineError;
use super::following::Following;
use super::members::Opened;
use super::reading::Fresh;
use super::survey::Survey;
use crate::clock;
use crate::fetch::{
    AllowedHosts, Bounds, Disposition, FetchedDocument, Package, PackageError, PartialPackage,
    pause,
};
use crate::protocol::{Capability, Digest, Entry, Hashing, SourceTime};
use crate::store::SetId;
use crate::sync::latest_believed;

/// How often a package is tried, and with what pauses, as long as nothing of it comes.
const TRIES: Bounds = Bounds {
    tries: 4,
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
};
/// What a server may ask to be left alone for, before the package counts as one that can't be had for now.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// How much of a package is hashed at once, in bytes.
const CHUNK: usize = 1 << 20;

/// Whether a media type may be that of a ZIP file.
pub(super) fn is_zip(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default();
    matches!(
        essence.trim().to_ascii_lowercase().as_str(),
        "application/zip"
            | "application/x-zip"
            | "application/x-zip-compressed"
            | "multipart/x-zip"
    )
}

/// A package, as the entry of a dump tells of it.
#[derive(Clone, Debug)]
pub(super) struct PackageEntry {
    pub(super) uri: Url,
    /// The copy of its manifest.
    pub(super) contents: Option<Url>,
    pub(super) from: Option<SourceTime>,
    pub(super) until: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    media_type: Option<String>,
    length: Option<u64>,
    hashes: Vec<Digest>,
}

impl PackageEntry {
    pub(super) fn of(entry: Entry) -> Self {
        let contents = entry.links("contents").next();
        Self {
            contents: contents.map(|link| link.href.clone()),
            from: entry.md.from.or(entry.md.at),
            until: entry.md.until.or(entry.md.completed),
            lastmod: entry.lastmod,
            media_type: entry.md.media_type,
            length: entry.md.length,
            hashes: entry.md.hashes,
            uri: entry.loc,
        }
    }

    /// All that tells this version of the package from another one at the same URI; empty if nothing does.
    pub(super) fn version(&self) -> String {
        let time = |time: Option<SourceTime>| time.map(|time| time.to_string()).unwrap_or_default();
        let mut told = vec![
            time(self.from),
            time(self.until),
            time(self.lastmod),
            self.length
                .map(|length| length.to_string())
                .unwrap_or_default(),
        ];
        told.extend(self.hashes.iter().map(ToString::to_string));
        told.retain(|part| !part.is_empty());
        told.join(" ")
    }

    /// Refuses a package that is not a ZIP file by its own word. A type that says nothing is not believed.
    fn check_type(&self) -> Result<(), EngineError> {
        match &self.media_type {
            Some(told) if !is_zip(told) && told != "application/octet-stream" => {
                Err(EngineError::UnsupportedPackage {
                    uri: self.uri.to_string(),
                    media_type: told.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}

/// The packages of a dump, one by one, however many there are. The document is read as they are taken.
pub(super) fn packages_of(
    mut document: Box<FetchedDocument>,
) -> mpsc::Receiver<Result<PackageEntry, EngineError>> {
    let (sender, packages) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || {
        let told = read_packages(&mut document, &sender);
        // When nobody takes them any more, nobody asks why.
        let _ = told.map_err(|error| sender.blocking_send(Err(error)));
    });
    packages
}

fn read_packages(
    document: &mut FetchedDocument,
    sender: &mpsc::Sender<Result<PackageEntry, EngineError>>,
) -> Result<(), EngineError> {
    let mut reader = document.reader()?;
    while let Some(entry) = reader.next_entry()? {
        let package = PackageEntry::of(entry);
        if sender.blocking_send(Ok(package)).is_err() {
            break;
        }
    }
    Ok(())
}

impl Following {
    /// The copy of a package's manifest; `None` if there is none that is of any use.
    pub(super) async fn contents_of(
        &self,
        set: SetId,
        package: &PackageEntry,
        capability: &Capability,
    ) -> Result<Option<Fresh>, EngineError> {
        let Some(uri) = &package.contents else {
            return Ok(None);
        };
        let read = self.fresh(set, uri, true).await;
        match read.and_then(|fresh| match fresh {
            Some(fresh) => fresh
                .survey
                .expect_manifest(capability, uri)
                .map(|()| Some(fresh)),
            None => Ok(None),
        }) {
            Err(EngineError::Store(error)) => Err(error.into()),
            Err(error) => {
                tracing::info!(code = error.code(), source = self.name(), package = %package.uri, %error,
                    "the copy of a manifest is of no use");
                Ok(None)
            }
            read => read,
        }
    }

    /// Fetches a package, opens it, and reads its manifest once through. What can't be used is thrown away.
    pub(super) async fn open_package(
        self: &Arc<Self>,
        entry: &PackageEntry,
        capability: &Capability,
    ) -> Result<OpenPackage, EngineError> {
        entry.check_type()?;
        let mut is_second = false;
        loop {
            let (partial, at_first) = self.download(&entry.uri).await?;
            let checking = {
                let (entry, capability) = (entry.clone(), capability.clone());
                let limit = self.limits.document;
                tokio::task::spawn_blocking(move || check(partial, &entry, &capability, limit))
            };
            match checking.await.map_err(|_| EngineError::Interrupted)? {
                // What an earlier try left may be of another version, and have spoilt the rest.
                Err(error) if at_first > 0 && !is_second => {
                    tracing::info!(code = error.code(), source = self.name(), %error, "a package is fetched anew");
                    is_second = true;
                }
                checked => return checked,
            }
        }
    }

    /// What there is of a package on disk.
    async fn partial(&self, uri: &Url) -> Result<PartialPackage, EngineError> {
        // The applier has it for as long as anything is applied.
        let mirror = self.mirror.get().and_then(Weak::upgrade);
        let mirror = mirror.ok_or(EngineError::Interrupted)?;
        let uri = uri.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let folder = mirror.package_folder()?;
            PartialPackage::open(&folder, &uri)
                .map_err(|error| EngineError::of_package(&uri, PackageError::Io(error)))
        });
        opening.await.map_err(|_| EngineError::Interrupted)?
    }

    /// Fetches what is missing of a package. As long as something comes of it, it is tried again. Also answers how much there
    /// was at first.
    async fn download(&self, uri: &Url) -> Result<(PartialPackage, u64), EngineError> {
        let hosts = AllowedHosts::new(&self.source.hosts);
        let mut partial = self.partial(uri).await?;
        let at_first = partial.received();
        let (mut reached, mut tried) = (at_first, 0);
        loop {
            let error = match self.client.get_package(uri, &hosts, None, partial).await {
                Ok(whole) => return Ok((whole, at_first)),
                Err(error) => error,
            };
            partial = self.partial(uri).await?;
            tried = if partial.received() > reached {
                1
            } else {
                tried + 1
            };
            reached = partial.received();
            let pause = match error.disposition() {
                Disposition::RetryLater { after } => pause(tried, after, &TRIES),
                Disposition::GiveUp => None,
            };
            let Some(pause) = pause.filter(|pause| *pause <= LONGEST_PAUSE) else {
                let uri = uri.to_string();
                return Err(EngineError::Fetch { uri, error });
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// A package that is at hand, and its file.
pub(super) struct OpenPackage {
    pub(super) opened: Opened,
    /// What its manifest is.
    pub(super) survey: Survey,
    file: PartialPackage,
}

impl OpenPackage {
    /// Parts what is read from what is thrown away when it has been read.
    pub(super) fn split(self) -> (Opened, Survey, PackageFile) {
        (self.opened, self.survey, PackageFile(self.file))
    }
}

/// The file of a package; it stays if it is dropped.
pub(super) struct PackageFile(PartialPackage);

impl PackageFile {
    /// Throws it away. What can't be removed now is swept later.
    pub(super) async fn remove(self) {
        let _ = tokio::task::spawn_blocking(move || self.0.remove()).await;
    }
}

/// Holds a package against what was told of it, and opens it. For a blocking thread.
fn check(
    file: PartialPackage,
    entry: &PackageEntry,
    capability: &Capability,
    limit: u64,
) -> Result<OpenPackage, EngineError> {
    match open(&file, entry, capability, limit) {
        Ok((opened, survey)) => Ok(OpenPackage {
            opened,
            survey,
            file,
        }),
        Err(error) => {
            // It is of no use; what can't be removed now is swept later.
            let _ = file.remove();
            Err(error)
        }
    }
}

fn open(
    partial: &PartialPackage,
    entry: &PackageEntry,
    capability: &Capability,
    limit: u64,
) -> Result<(Opened, Survey), EngineError> {
    let uri = &entry.uri;
    let io = |error| EngineError::of_package(uri, PackageError::Io(error));
    let file = partial.file().map_err(io)?;
    let mut file = file.ok_or(EngineError::Interrupted)?;
    let got = partial.received();
    if let Some(told) = entry.length.filter(|&told| told != got) {
        let uri = uri.to_string();
        return Err(EngineError::PackageLength { uri, told, got });
    }
    verify(&mut file, entry)?;
    let of_package = |error| EngineError::of_package(uri, error);
    let package = Package::open(file).map_err(of_package)?;
    let latest = latest_believed(clock::now().wall);
    let manifest = package.manifest(uri, limit).map_err(of_package)?;
    let survey = Survey::of(manifest, latest).map_err(|error| of_package(error.into()))?;
    survey.expect_manifest(capability, uri)?;
    let uri = uri.clone();
    Ok((Opened { package, uri }, survey))
}

/// Holds the bytes against the digests that were told.
fn verify(file: &mut File, entry: &PackageEntry) -> Result<(), EngineError> {
    let mut hashing = Hashing::new(entry.hashes.iter().map(Digest::algorithm));
    if entry.hashes.is_empty() {
        return Ok(());
    }
    let io = |error| EngineError::of_package(&entry.uri, PackageError::Io(error));
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = file.read(&mut chunk).map_err(io)?;
        if read == 0 {
            break;
        }
        hashing.update(&chunk[..read]);
    }
    let hashes = hashing.finish();
    for told in &entry.hashes {
        let differs = |got: &&Digest| got.algorithm() == told.algorithm() && *got != told;
        if let Some(got) = hashes.iter().find(differs) {
            return Err(EngineError::PackageDigest {
                uri: entry.uri.to_string(),
                told: told.clone(),
                got: got.clone(),
            });
        }
    }
    Ok(())
}
