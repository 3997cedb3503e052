//! How packages come to disk, and go from there: fetched, on from where an earlier try ended, held against what was told of
//! them, opened, and removed when they have been read.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::{Arc, Weak};
use std::time::Duration;

use url::Url;

use super::members::Opened;
use super::packages::PackageEntry;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::reading::summary::expect_manifest;
use crate::fetch::{
    AllowedHosts, Bounds, Disposition, FetchError, Package, PackageError, PartialPackage, pause,
};
use crate::mirror::Mirror;
use crate::protocol::{Capability, DocumentSummary, Verifier};
use crate::status::StatusError;
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
impl SourceContext {
    /// Fetches a package, opens it, and reads its manifest once through. What can't be used is thrown away.
    pub(in crate::engine) async fn open_package(
        self: &Arc<Self>,
        set: SetId,
        entry: &PackageEntry,
        capability: &Capability,
    ) -> Result<OpenPackage, EngineError> {
        entry.check_type()?;
        self.refusals.check(entry)?;
        let mut is_second = false;
        loop {
            let (partial, at_first) = self.download(set, entry).await?;
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
                Ok(open) => {
                    self.refusals.remove(entry);
                    return Ok(open);
                }
                Err(error) => {
                    self.refusals.add(entry, &error);
                    return Err(error);
                }
            }
        }
    }

    /// What there is of a package on disk.
    async fn partial(&self, set: SetId, uri: &Url) -> Result<PartialPackage, EngineError> {
        let mirror = self.open_mirror()?;
        let uri = uri.clone();
        // Nobody sweeps before the file is noted and open.
        let _turn = self.package_files.lock().await;
        let name = PartialPackage::name(&uri);
        self.store.keep_package_file(set, name).await?;
        let opening = tokio::task::spawn_blocking(move || {
            let folder = mirror.package_folder()?;
            PartialPackage::open(&folder, &uri)
                .map_err(|error| EngineError::of_package(&uri, PackageError::Io(error)))
        });
        opening.await.map_err(|_| EngineError::Interrupted)?
    }

    /// Removes what was left of packages that are of no use any more, once a set has got by without them.
    pub(in crate::engine) async fn sweep_packages(&self, set: SetId) -> Result<(), EngineError> {
        let _turn = self.package_files.lock().await;
        if !self.store.drop_package_files(set).await? {
            return Ok(());
        }
        let kept = self.store.package_files(self.name()).await?;
        let mirror = self.open_mirror()?;
        let sweeping =
            tokio::task::spawn_blocking(move || mirror.sweep_packages(&|name| kept.contains(name)));
        let swept = sweeping.await.map_err(|_| EngineError::Interrupted)?;
        if let Err(error) = swept {
            tracing::warn!(code = error.code(), source = self.name(), %error, "packages that are of no use can't be removed");
        }
        Ok(())
    }

    fn open_mirror(&self) -> Result<Arc<Mirror>, EngineError> {
        // The applier has it for as long as anything is applied.
        let mirror = self.mirror.get().and_then(Weak::upgrade);
        mirror.ok_or(EngineError::Interrupted)
    }

    /// Fetches what is missing of a package. As long as something comes of it, it is tried again. Also answers how much there
    /// was at first.
    async fn download(
        &self,
        set: SetId,
        entry: &PackageEntry,
    ) -> Result<(PartialPackage, u64), EngineError> {
        let uri = &entry.uri;
        let hosts = AllowedHosts::new(&self.source.hosts);
        let limits = [self.limits.package, entry.length];
        let limit = limits.into_iter().flatten().min();
        let mut partial = self.partial(set, uri).await?;
        let at_first = partial.received();
        let (mut reached, mut tried) = (at_first, 0);
        loop {
            let error = match self.client.get_package(uri, &hosts, limit, partial).await {
                Ok(whole) => {
                    self.runtime_status.note_taken(self.name(), None);
                    return Ok((whole, at_first));
                }
                Err(error) => error,
            };
            if matches!(error, FetchError::Disk { .. }) {
                let now = clock::now();
                let status_error = StatusError::new(error.code(), error.to_string(), now.wall);
                let runtime_status = &self.runtime_status;
                runtime_status.note_refusal(self.name(), None, status_error, now.mono);
            }
            partial = self.partial(set, uri).await?;
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
pub(in crate::engine) struct OpenPackage {
    pub(in crate::engine) opened: Opened,
    /// What its manifest is.
    pub(in crate::engine) survey: DocumentSummary,
    file: PartialPackage,
}

impl OpenPackage {
    /// Parts what is read from what is thrown away when it has been read.
    pub(in crate::engine) fn split(self) -> (Opened, DocumentSummary, PackageFile) {
        (self.opened, self.survey, PackageFile(self.file))
    }
}

/// The file of a package; it stays if it is dropped.
pub(in crate::engine) struct PackageFile(PartialPackage);

impl PackageFile {
    /// Throws it away. What can't be removed now is swept later.
    pub(in crate::engine) async fn remove(self) {
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
) -> Result<(Opened, DocumentSummary), EngineError> {
    let uri = &entry.uri;
    let io = |error| EngineError::of_package(uri, PackageError::Io(error));
    let file = partial.file().map_err(io)?;
    let mut file = file.ok_or(EngineError::Interrupted)?;
    verify(partial, &mut file, entry)?;
    let of_package = |error| EngineError::of_package(uri, error);
    let package = Package::open(file).map_err(of_package)?;
    let latest = latest_believed(clock::now().wall);
    let manifest = package.manifest(uri, limit).map_err(of_package)?;
    let survey =
        DocumentSummary::read(manifest, latest).map_err(|error| of_package(error.into()))?;
    expect_manifest(&survey, capability, uri)?;
    let uri = uri.clone();
    Ok((Opened { package, uri }, survey))
}

/// Verifies a package against its announced length and digests. It is read only if there are digests.
fn verify(
    partial: &PartialPackage,
    file: &mut File,
    entry: &PackageEntry,
) -> Result<(), EngineError> {
    let differs = |mismatch| EngineError::PackageMismatch {
        uri: entry.uri.to_string(),
        mismatch,
    };
    let io = |error| EngineError::of_package(&entry.uri, PackageError::Io(error));
    let mut verifier = Verifier::of_announced_only(entry.length, &entry.hashes);
    verifier.check_length(partial.received()).map_err(differs)?;
    if entry.hashes.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    verifier.read_all(file, |_| {}).map_err(io)?;
    verifier.finish().map(drop).map_err(differs)
}
