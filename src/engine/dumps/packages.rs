//! Packages (sections 11 and 13): which of them a dump names, and the copies of their manifests.

use url::Url;

use crate::clock;
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::reading::ChangedDocument;
use crate::engine::reading::summary::expect_manifest;
use crate::protocol::{Capability, Digest, Entry, SourceTime, is_zip, media_type_essence};
use crate::store::SetId;
use crate::sync::latest_believed;

/// A package, as the entry of a dump tells of it.
#[derive(Clone, Debug)]
pub(in crate::engine) struct PackageEntry {
    pub(in crate::engine) uri: Url,
    /// The copy of its manifest.
    pub(in crate::engine) contents: Option<Url>,
    pub(in crate::engine) from: Option<SourceTime>,
    pub(in crate::engine) until: Option<SourceTime>,
    lastmod: Option<SourceTime>,
    media_type: Option<String>,
    pub(in crate::engine) length: Option<u64>,
    pub(in crate::engine) hashes: Vec<Digest>,
}

impl PackageEntry {
    pub(in crate::engine) fn of(entry: Entry) -> Self {
        let contents = entry.links("contents").next();
        Self {
            contents: contents.map(|link| link.href.clone()),
            from: entry.md.from.or(entry.md.at),
            until: entry.md.closed_at(latest_believed(clock::now().wall)),
            lastmod: entry.lastmod,
            media_type: entry.md.media_type,
            length: entry.md.length,
            hashes: entry.md.hashes,
            uri: entry.loc,
        }
    }

    /// All that tells this version of the package from another one at the same URI; empty if nothing does.
    pub(in crate::engine) fn version(&self) -> String {
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
    pub(in crate::engine) fn check_type(&self) -> Result<(), EngineError> {
        match &self.media_type {
            Some(told) if !is_zip(told) && !media_type_essence(told).ends_with("/octet-stream") => {
                Err(EngineError::UnsupportedPackage {
                    uri: self.uri.to_string(),
                    media_type: told.clone(),
                })
            }
            _ => Ok(()),
        }
    }
}

impl SourceContext {
    /// The copy of a package's manifest; `None` if there is none that is of any use.
    pub(in crate::engine) async fn contents_of(
        &self,
        set: SetId,
        package: &PackageEntry,
        capability: &Capability,
    ) -> Result<Option<ChangedDocument>, EngineError> {
        let Some(uri) = &package.contents else {
            return Ok(None);
        };
        let read = self.fresh(set, uri, true).await;
        match read.and_then(|fresh| match fresh {
            Some(fresh) => expect_manifest(&fresh.survey, capability, uri).map(|()| Some(fresh)),
            None => Ok(None),
        }) {
            Err(error @ (EngineError::Store(_) | EngineError::Interrupted)) => Err(error),
            Err(error) => {
                tracing::info!(code = error.code(), source = self.name(), package = %package.uri, %error,
                    "the copy of a manifest is of no use");
                Ok(None)
            }
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_type_that_is_another_one_is_refused_by_its_word() {
        for (told, refused) in [
            ("application/zip", false),
            ("Application/ZIP; charset=binary", false),
            ("application/x-zip-compressed", false),
            ("application/bagit+zip", false),
            ("application/octet-stream", false),
            ("binary/octet-stream", false),
            ("application/gzip", true),
            ("application/x-xz", true),
            ("application/warc", true),
        ] {
            let url = Url::parse("https://example.org/package").unwrap();
            let mut entry = Entry::new(url);
            entry.md.media_type = Some(told.to_owned());
            let checked = PackageEntry::of(entry).check_type();
            assert_eq!(checked.is_err(), refused, "{told}");
        }
    }

    #[test]
    fn version_of_a_package_is_all_that_is_told_of_it() {
        let url = Url::parse("https://example.org/package").unwrap();
        let entry = Entry::new(url);
        assert_eq!(PackageEntry::of(entry.clone()).version(), "");
        let mut longer = entry.clone();
        longer.md.length = Some(5);
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
