//! Packages that were fetched and turned out to be unusable, or to have a damaged manifest: they are large, and not fetched again at
//! every poll.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use resyncd_fetch::{Bounds, pause};
use url::Url;

use super::packages::PackageEntry;
use crate::clock;
use crate::engine::EngineError;

/// How long one is not fetched again.
const PAUSES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(60),
    longest: Duration::from_secs(6 * 3600),
};
/// How many are remembered.
const MOST: usize = 1024;

/// Unusable packages, by URI. A restart forgets them.
#[derive(Default)]
pub(super) struct RejectedPackages(Mutex<HashMap<Url, Rejection>>);

struct Rejection {
    /// Another version may be usable.
    version: String,
    times: u32,
    until: Instant,
    /// Fetched again it would be the same, and another version of it would be recognized.
    is_final: bool,
    code: &'static str,
    message: String,
}

impl RejectedPackages {
    /// Rejects a package whose pause is not over yet, with the reason of its rejection.
    pub(super) fn check(&self, package: &PackageEntry) -> Result<(), EngineError> {
        match self.0.lock().get(&package.uri) {
            Some(rejection)
                if rejection.version == package.version()
                    && (rejection.is_final || clock::now().mono < rejection.until) =>
            {
                Err(EngineError::RejectedPackage {
                    code: rejection.code,
                    message: rejection.message.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Remembers that a package is unusable.
    pub(super) fn add(&self, package: &PackageEntry, error: &EngineError) {
        let mut rejected = self.0.lock();
        let version = package.version();
        let before = rejected.get(&package.uri);
        let before = before.filter(|before| before.version == version);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let wait = pause(times, None, &PAUSES).unwrap_or(PAUSES.longest);
        if rejected.len() >= MOST {
            rejected.clear();
        }
        let rejection = Rejection {
            is_final: match error {
                // A repaired one has another digest, or another length.
                EngineError::UnreadEntries { .. } => {
                    package.content.length.is_some() || !package.content.hashes.is_empty()
                }
                _ => error.is_unsupported() && !version.is_empty(),
            },
            version,
            times,
            until: clock::now().mono + wait,
            code: error.code(),
            message: error.to_string(),
        };
        rejected.insert(package.uri.clone(), rejection);
    }

    /// Forgets a package that is usable now.
    pub(super) fn remove(&self, package: &PackageEntry) {
        self.0.lock().remove(&package.uri);
    }
}

#[cfg(test)]
mod tests {
    use resourcesync::Entry;

    use super::*;

    #[test]
    fn damaged_package_is_rejected_until_another_version_is_recognized() {
        let plain = Entry::new(Url::parse("https://example.org/package.zip").unwrap());
        let mut measured = plain.clone();
        measured.md.content.length = Some(5);
        let damaged = EngineError::UnreadEntries {
            document: String::new(),
            count: 1,
        };
        for (entry, is_final) in [(plain, false), (measured, true)] {
            let package = PackageEntry::of(entry.clone());
            let rejected = RejectedPackages::default();
            for times in 1..=2 {
                rejected.add(&package, &damaged);
                let error = rejected.check(&package).unwrap_err();
                assert_eq!(error.code(), "bad-entries");
                let rejections = rejected.0.lock();
                let rejection = &rejections[&package.uri];
                assert_eq!((rejection.times, rejection.is_final), (times, is_final));
            }
            let mut other = entry;
            other.md.content.length = Some(6);
            assert!(rejected.check(&PackageEntry::of(other)).is_ok());
            rejected.remove(&package);
            assert!(rejected.check(&package).is_ok());
        }
    }
}
