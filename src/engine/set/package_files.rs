//! The files of packages: downloaded, resumed where an earlier try ended, verified, opened, and removed when they have been read.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::{Arc, Weak};
use std::time::Duration;

use resourcesync::{Capability, DocumentSummary, Verifier};
use resyncd_core::{ErrorClass, latest_source_time};
use resyncd_fetch::{AllowedHosts, FetchError, FetchedDocument, PartialPackage, SizeLimit};
use resyncd_mirror::Mirror;
use resyncd_packages::{Package, PackageError};
use url::Url;

use super::packages::PackageEntry;
use super::rejected_packages::RejectedPackages;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::{expect_capability, expect_undamaged};
use crate::engine::package_permits::PackagePermit;
use crate::metrics::CountedWait;
use crate::status::StatusError;
use crate::store::SetId;

/// A server that asks for a longer pause counts as unavailable for now.
const MAX_PAUSE: Duration = Duration::from_secs(120);

/// The package files of one Source, in its mirror's working folder.
pub(crate) struct PackageFiles {
    context: Arc<SourceContext>,
    /// The executor owns the mirror: it is there for as long as anything is applied.
    mirror: Weak<Mirror>,
    /// Held while files are registered or swept.
    sweep_lock: tokio::sync::Mutex<()>,
    rejected: RejectedPackages,
}

impl PackageFiles {
    pub(crate) fn new(context: Arc<SourceContext>, mirror: &Arc<Mirror>) -> Self {
        Self {
            context,
            mirror: Arc::downgrade(mirror),
            sweep_lock: tokio::sync::Mutex::default(),
            rejected: RejectedPackages::default(),
        }
    }

    /// Waits for a permit, downloads a package, opens it, and summarizes its manifest. The permit is free again when its file is
    /// dropped or removed. An unusable package is deleted, and rejected for a while. `copy`: the copy of the manifest, which is taken and
    /// states what the package has if it has none of its own.
    pub(super) async fn open(
        &self,
        set: SetId,
        entry: &PackageEntry,
        capability: &Capability,
        copy: &mut Option<ManifestCopy>,
    ) -> Result<(OpenedPackage, DocumentSummary, PackageFile), EngineError> {
        entry.check_type()?;
        self.rejected.check(entry)?;
        // Packages of others, or its own on a slow disk, may take any time.
        let waiting = self.context.counters.wait();
        self.context.until_hours().await;
        let permit = self.context.package_permits.acquire().await;
        let permit = permit.ok_or(EngineError::Interrupted)?;
        let mut is_second = false;
        loop {
            let (partial, resumed_from) = self.download(set, entry).await?;
            let checking = {
                let (entry, capability) = (entry.clone(), capability.clone());
                let (context, has_copy) = (Arc::clone(&self.context), copy.is_some());
                tokio::task::spawn_blocking(move || {
                    check(partial, &entry, &capability, has_copy, &context)
                })
            };
            let checked = checking
                .await
                .unwrap_or_else(|error| Err(EngineError::of_join(&error, &entry.uri)));
            match checked {
                // What an earlier try left may be of another version, and have spoilt the rest.
                Err(error) if resumed_from > 0 && !is_second => {
                    tracing::info!(code = error.code(), source = self.context.name(), %error, "resumed package unusable; downloading it again");
                    is_second = true;
                }
                Ok((mut opened, mut manifest, file)) => {
                    if opened.package.makes_manifest()
                        && let Some((document, summary)) = copy.take()
                    {
                        opened.manifest = Some(document);
                        manifest = summary;
                    }
                    let file = PackageFile {
                        file,
                        _permit: permit,
                        _waiting: waiting,
                    };
                    return Ok((opened, manifest, file));
                }
                Err(error @ EngineError::Interrupted) => return Err(error),
                Err(error) => {
                    self.rejected.add(entry, &error);
                    return Err(error);
                }
            }
        }
    }

    /// Removes the file of a package whose manifest was ingested. Fails if entries of the manifest are damaged, and rejects the package
    /// from then on: it would be the same if it was fetched again. `file`: `None` where only the copy of the manifest was read.
    pub(super) async fn end(
        &self,
        entry: &PackageEntry,
        manifest: &DocumentSummary,
        file: Option<PackageFile>,
    ) -> Result<(), EngineError> {
        let undamaged = expect_undamaged(manifest, &entry.uri);
        if let Some(file) = file {
            file.remove().await;
            match &undamaged {
                Ok(()) => self.rejected.remove(entry),
                Err(error) => self.rejected.add(entry, error),
            }
        }
        undamaged
    }

    /// What is on disk of a package.
    async fn partial(&self, set: SetId, uri: &Url) -> Result<PartialPackage, EngineError> {
        let mirror = self.open_mirror()?;
        let uri = uri.clone();
        // No sweep until the file is registered and open.
        let _lock = self.sweep_lock.lock().await;
        let name = PartialPackage::name(&uri);
        self.context
            .store
            .mark_package_file_needed(set, name)
            .await?;
        let opening = tokio::task::spawn_blocking(move || {
            let folder = mirror.package_folder().map_err(std::io::Error::other);
            folder
                .and_then(|folder| PartialPackage::open(&folder, &uri))
                .map_err(|error| EngineError::of_package(&uri, PackageError::Io(error)))
        });
        opening
            .await
            .map_err(|error| EngineError::of_join(&error, "a package file"))?
    }

    /// Removes the files of packages that are not needed any more, after a poll of a set that did not need them.
    pub(super) async fn sweep(&self, set: SetId) -> Result<(), EngineError> {
        let _lock = self.sweep_lock.lock().await;
        let store = &self.context.store;
        if !store.unmark_needed_package_files(set).await? {
            return Ok(());
        }
        let needed = store.package_files(self.context.name()).await?;
        let mirror = self.open_mirror()?;
        let sweeping = tokio::task::spawn_blocking(move || {
            mirror.sweep_packages(&|name| needed.contains(name))
        });
        let swept = sweeping.await;
        let swept = swept.map_err(|error| EngineError::of_join(&error, "package files"))?;
        if let Err(error) = swept {
            tracing::warn!(code = error.code(), source = self.context.name(), %error, "package files can't be removed");
        }
        Ok(())
    }

    fn open_mirror(&self) -> Result<Arc<Mirror>, EngineError> {
        self.mirror.upgrade().ok_or(EngineError::Interrupted)
    }

    /// Downloads what is missing of a package, as often as at least some bytes are received. Also returns how many bytes were
    /// on disk before.
    async fn download(
        &self,
        set: SetId,
        entry: &PackageEntry,
    ) -> Result<(PartialPackage, u64), EngineError> {
        let context = &self.context;
        let uri = &entry.uri;
        let hosts = AllowedHosts::new(&context.source.hosts);
        let stated = entry.content.length;
        let stated = stated.map(|bytes| SizeLimit::new(bytes, "the length that its dump states"));
        let limits = [context.limits.package.map(SizeLimit::package), stated];
        let limit = limits.into_iter().flatten().min_by_key(|limit| limit.bytes);
        let mut partial = self.partial(set, uri).await?;
        let resumed_from = partial.received();
        let (mut reached, mut tried) = (resumed_from, 0);
        loop {
            let error = match context
                .client
                .get_package(uri, &hosts, limit, partial)
                .await
            {
                Ok(complete) => {
                    context
                        .runtime_status
                        .clear_disk_error(context.name(), None);
                    return Ok((complete, resumed_from));
                }
                Err(error) => error,
            };
            if matches!(error, FetchError::Disk { .. }) {
                let now = clock::now();
                let status_error = StatusError::new(error.code(), error.to_string(), now.wall);
                let runtime_status = &context.runtime_status;
                runtime_status.note_disk_error(context.name(), None, status_error, now.mono);
            }
            partial = self.partial(set, uri).await?;
            tried = if partial.received() > reached {
                1
            } else {
                tried + 1
            };
            reached = partial.received();
            let pause = match error.class() {
                ErrorClass::Retry => {
                    let client = &context.client;
                    client.pause(tried, error.retry_after(), client.package_retries())
                }
                ErrorClass::Fatal | ErrorClass::Unusable => None,
            };
            let Some(pause) = pause.filter(|pause| *pause <= MAX_PAUSE) else {
                let uri = uri.to_string();
                return Err(EngineError::Fetch { uri, error });
            };
            tokio::time::sleep(pause).await;
        }
    }
}

/// An open package, and where it came from.
pub(super) struct OpenedPackage {
    pub(super) package: Package,
    /// The base of its manifest's relative URIs.
    pub(super) uri: Url,
    /// The copy of its manifest, if it has none of its own.
    pub(super) manifest: Option<Box<FetchedDocument>>,
}

/// A copy of a manifest with its summary.
pub(super) type ManifestCopy = (Box<FetchedDocument>, DocumentSummary);

/// The file of a package; dropping it leaves it on disk, and ends the package's progress.
pub(super) struct PackageFile {
    file: PartialPackage,
    _permit: PackagePermit,
    _waiting: CountedWait,
}

impl PackageFile {
    /// Removes it. If that fails it is swept later.
    async fn remove(self) {
        let _ = tokio::task::spawn_blocking(move || self.file.remove()).await;
    }
}

/// Verifies a package and opens it. For a blocking thread.
fn check(
    file: PartialPackage,
    entry: &PackageEntry,
    capability: &Capability,
    has_copy: bool,
    context: &SourceContext,
) -> Result<(OpenedPackage, DocumentSummary, PartialPackage), EngineError> {
    match open(&file, entry, capability, has_copy, context) {
        Ok((opened, manifest)) => Ok((opened, manifest, file)),
        Err(error) => {
            // If it can't be removed now it is swept later.
            let _ = file.remove();
            Err(error)
        }
    }
}

fn open(
    partial: &PartialPackage,
    entry: &PackageEntry,
    capability: &Capability,
    has_copy: bool,
    context: &SourceContext,
) -> Result<(OpenedPackage, DocumentSummary), EngineError> {
    let uri = &entry.uri;
    let io = |error| EngineError::of_package(uri, PackageError::Io(error));
    let file = partial.file().map_err(io)?;
    let mut file = file.ok_or(EngineError::Interrupted)?;
    verify(partial, &mut file, entry)?;
    let of_package = |error| EngineError::of_package(uri, error);
    let package = Package::open(file, partial.folder(), context.limits.package);
    let package = package.map_err(of_package)?;
    let package = package.with_manifest_at(entry.contents.as_ref());
    // What its members state does not say what has changed, nor what was deleted.
    let states_changes = *capability == Capability::ChangeDumpManifest;
    if package.makes_manifest() && states_changes && !has_copy {
        return Err(of_package(PackageError::NoManifest));
    }
    let latest = latest_source_time(clock::now().wall);
    // With the limits that hold when its entries are ingested: what they cut is counted here.
    let manifest = package.manifest(context.base_uri(uri), context.limits.document);
    let manifest = manifest.map_err(of_package)?;
    let summary =
        DocumentSummary::read(manifest, latest).map_err(|error| of_package(error.into()))?;
    expect_capability(&summary, capability, format_args!("the manifest of {uri}"))?;
    let opened = OpenedPackage {
        package,
        uri: uri.clone(),
        manifest: None,
    };
    Ok((opened, summary))
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
    let mut verifier = Verifier::of_announced_only(entry.content.length, &entry.content.hashes);
    verifier.check_length(partial.received()).map_err(differs)?;
    if entry.content.hashes.is_empty() {
        return Ok(());
    }
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    verifier.read_all(file, |_| {}).map_err(io)?;
    verifier.finish().map(drop).map_err(differs)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;
    use reqwest::{Request, Response};
    use resourcesync::Entry;
    use resyncd_fetch::HttpNetwork;

    use super::*;
    use crate::engine::tests::{NAME, TestSource};

    /// A site that has nothing.
    struct Nothing;

    impl HttpNetwork for Nothing {
        fn send(&self, _: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
            std::future::ready(Err(FetchError::Status {
                status: 404,
                retry_after: None,
            }))
            .boxed()
        }
    }

    #[tokio::test]
    async fn package_waits_for_its_permit_before_anything_else() {
        let uri = Url::parse("https://example.org/package.zip").unwrap();
        let source = TestSource::new(&uri, |client| client.with_network(Arc::new(Nothing)));
        let (store, context) = (&source.store, &source.context);
        let packages = PackageFiles::new(Arc::clone(context), &source.mirror);
        let set = store.begin_set(NAME, &uri).await.unwrap().id;

        let acquire = || context.package_permits.acquire().now_or_never().flatten();
        let occupied: Vec<_> = std::iter::from_fn(acquire).collect();
        let (entry, capability) = (
            PackageEntry::of(Entry::new(uri)),
            Capability::ResourceDumpManifest,
        );
        let mut copy = None;
        let mut opening = Box::pin(packages.open(set, &entry, &capability, &mut copy));
        assert!(futures_util::poll!(&mut opening).is_pending());
        // A write that it had queued would be on disk by then.
        assert!(store.answers().await);
        assert!(store.package_files(NAME).await.unwrap().is_empty());
        drop(occupied);
        let error = opening.await.err().unwrap();
        assert_eq!(error.code(), "not-found");
        assert_eq!(store.package_files(NAME).await.unwrap().len(), 1);
        // A package that fails has freed its permit.
        let free: Vec<_> = std::iter::from_fn(acquire).collect();
        assert_eq!(free.len(), crate::engine::package_permits::OF_A_SOURCE);
    }
}
