//! The packages that a dump names (sections 11 and 13), and the copies of their manifests.

use resourcesync::media_type::{is_octets, may_be_package, unread_archive_suffix};
use resourcesync::{Capability, ContentInfo, DocumentSummary, Entry, SourceTime};
use resyncd_core::{NewsFilter, latest_source_time};
use url::Url;

use super::entry_batches::EntrySource;
use super::ingest::count_needed_members;
use super::package_files::PackageFile;
use super::polled_document::read_document;
use super::state::SetState;
use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::documents::SummarizedDocument;
use crate::store::SetId;

/// A package, as the entry of a dump states it.
#[derive(Clone, Debug)]
pub(crate) struct PackageEntry {
    pub(crate) uri: Url,
    /// The copy of its manifest.
    pub(crate) contents: Option<Url>,
    pub(crate) from: Option<SourceTime>,
    pub(crate) until: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    pub(crate) content: ContentInfo,
}

impl PackageEntry {
    pub(crate) fn of(entry: Entry) -> Self {
        let contents = entry.links("contents").next();
        Self {
            contents: contents.map(|link| link.href.clone()),
            from: entry.md.from.or(entry.md.at),
            until: entry.md.closed_at(latest_source_time(clock::now().wall)),
            lastmod: entry.lastmod,
            content: entry.md.content,
            uri: entry.loc,
        }
    }

    /// All that distinguishes this version of the package from another one at the same URI; empty if nothing does.
    pub(crate) fn version(&self) -> String {
        let time = |time: Option<SourceTime>| time.map(|time| time.to_string()).unwrap_or_default();
        let mut parts = vec![
            time(self.from),
            time(self.until),
            time(self.lastmod),
            self.content
                .length
                .map(|length| length.to_string())
                .unwrap_or_default(),
        ];
        parts.extend(self.content.hashes.iter().map(ToString::to_string));
        parts.retain(|part| !part.is_empty());
        parts.join(" ")
    }

    /// Rejects a package whose stated type is in none of the formats that are read, or whose name is that of such an archive where
    /// the type is generic or not stated. What it is its first bytes say.
    pub(crate) fn check_type(&self) -> Result<(), EngineError> {
        let stated = self.content.media_type.as_deref();
        let stated = stated.filter(|it| !is_octets(it));
        let other = match stated {
            Some(stated) => Some(stated).filter(|stated| !may_be_package(stated)),
            None => unread_archive_suffix(self.uri.path()),
        };
        match other {
            Some(other) => Err(EngineError::UnsupportedPackage {
                uri: self.uri.to_string(),
                media_type: other.to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// The entries of a package's manifest, its summary, and the file of the package; no file where only the copy of the manifest is read.
pub(super) type OpenManifest = (EntrySource, DocumentSummary, Option<PackageFile>);

impl SetState {
    /// Opens the manifest of a package. Where few of its members are needed its copy is enough: they are fetched one by one. `at`: the
    /// time of the Resource Dump that names it; `None`: a Change Dump does.
    pub(super) async fn open_manifest(
        &self,
        package: &PackageEntry,
        at: Option<SourceTime>,
    ) -> Result<OpenManifest, EngineError> {
        let (context, set) = (&self.context, self.record.id);
        let capability = match at {
            Some(_) => Capability::ResourceDumpManifest,
            None => Capability::ChangeDumpManifest,
        };
        let mut copy = None;
        if let Some(found) = manifest_copy(context, set, package, &capability).await? {
            let filter = match at {
                Some(_) => NewsFilter::everything(),
                None => self.news_of_package(package, &found.summary),
            };
            let counting = count_needed_members(context, set, found, at, filter);
            let (SummarizedDocument { document, summary }, needed) = counting.await?;
            if needed.are_few() {
                return Ok((EntrySource::Document(document), summary, None));
            }
            copy = Some((document, summary));
        }
        let opening = self.packages.open(set, package, &capability, &mut copy);
        match (opening.await, copy) {
            (Ok((opened, summary, file)), _) => {
                Ok((EntrySource::Package(opened), summary, Some(file)))
            }
            // No other document names these resources; but each of them can be fetched by itself.
            (Err(error), Some((document, summary)))
                if error.is_unsupported()
                    && at.is_some()
                    && self.offered(&Capability::ResourceList).is_empty() =>
            {
                tracing::warn!(code = error.code(), source = context.name(), package = %package.uri, %error,
                    "package unusable; fetching its resources one by one");
                Ok((EntrySource::Document(document), summary, None))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// The copy of a package's manifest; `None` if there is none that can be used.
async fn manifest_copy(
    context: &SourceContext,
    set: SetId,
    package: &PackageEntry,
    capability: &Capability,
) -> Result<Option<SummarizedDocument>, EngineError> {
    let Some(uri) = &package.contents else {
        return Ok(None);
    };
    let copy = read_document(context, set, uri).await;
    match copy.and_then(|copy| copy.read.expect(capability).map(|()| copy.read)) {
        Ok(copy) => Ok(Some(copy)),
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            tracing::info!(code = error.code(), source = context.name(), package = %package.uri, %error,
                "copy of a manifest unusable");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_type_that_is_not_read_is_rejected() {
        for (stated, rejected) in [
            ("application/zip", false),
            ("Application/ZIP; charset=binary", false),
            ("application/x-zip-compressed", false),
            ("application/bagit+zip", false),
            ("application/octet-stream", false),
            ("binary/octet-stream", false),
            ("application/gzip", false),
            ("application/x-tar", false),
            ("application/zstd", false),
            ("application/warc", false),
            ("application/x-xz", true),
            ("application/x-7z-compressed", true),
        ] {
            let url = Url::parse("https://example.org/package").unwrap();
            let mut entry = Entry::new(url);
            entry.md.content.media_type = Some(stated.to_owned());
            let checked = PackageEntry::of(entry).check_type();
            assert_eq!(checked.is_err(), rejected, "{stated}");
        }
    }

    #[test]
    fn name_of_an_archive_that_is_not_read_is_rejected_where_no_type_is_stated() {
        for (name, stated, rejected) in [
            ("a.tar.xz", None, true),
            ("a.tar.xz", Some("application/octet-stream"), true),
            ("a.tar.xz", Some("application/zip"), false),
            ("a.zip", None, false),
            ("a.tar.gz", None, false),
            ("package", None, false),
        ] {
            let url = Url::parse(&format!("https://example.org/{name}")).unwrap();
            let mut entry = Entry::new(url);
            entry.md.content.media_type = stated.map(str::to_owned);
            let checked = PackageEntry::of(entry).check_type();
            assert_eq!(checked.is_err(), rejected, "{name} {stated:?}");
        }
    }

    #[test]
    fn version_of_a_package_is_all_that_its_entry_states() {
        let url = Url::parse("https://example.org/package").unwrap();
        let entry = Entry::new(url);
        assert_eq!(PackageEntry::of(entry.clone()).version(), "");
        let mut longer = entry.clone();
        longer.md.content.length = Some(5);
        let mut newer = longer.clone();
        newer.lastmod = Some(SourceTime::from_micros(1));
        let versions = [entry, longer, newer].map(|entry| PackageEntry::of(entry).version());
        assert!(
            versions
                .iter()
                .all(|version| { versions.iter().filter(|other| *other == version).count() == 1 })
        );
    }
}
