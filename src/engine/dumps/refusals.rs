//! Packages that were fetched and found to be of no use: they are large, and not fetched again at every poll.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use url::Url;

use super::packages::PackageEntry;
use crate::clock;
use crate::engine::EngineError;
use crate::fetch::{Bounds, pause};

/// How long one is left alone.
const PAUSES: Bounds = Bounds {
    tries: u32::MAX,
    first: Duration::from_secs(60),
    longest: Duration::from_secs(6 * 3600),
};
/// How many are remembered.
const MOST: usize = 1024;

/// What was found to be of no use. A restart forgets it.
#[derive(Default)]
pub(in crate::engine) struct Refusals(Mutex<HashMap<Url, Refusal>>);

struct Refusal {
    /// What was told of it: another version may be a better one.
    version: String,
    times: u32,
    until: Instant,
    code: &'static str,
    message: String,
}

impl Refusals {
    /// Refuses a package whose pause is not over yet, for the reason that it was refused for.
    pub(in crate::engine) fn check(&self, package: &PackageEntry) -> Result<(), EngineError> {
        match self.lock().get(&package.uri) {
            Some(refusal)
                if refusal.version == package.version() && clock::now().mono < refusal.until =>
            {
                Err(EngineError::RefusedPackage {
                    code: refusal.code,
                    message: refusal.message.clone(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Remembers that a package is of no use.
    pub(in crate::engine) fn add(&self, package: &PackageEntry, error: &EngineError) {
        let mut refusals = self.lock();
        let version = package.version();
        let before = refusals.get(&package.uri);
        let before = before.filter(|before| before.version == version);
        let times = before.map_or(0, |before| before.times).saturating_add(1);
        let wait = pause(times, None, &PAUSES).unwrap_or(PAUSES.longest);
        if refusals.len() >= MOST {
            refusals.clear();
        }
        let refusal = Refusal {
            version,
            times,
            until: clock::now().mono + wait,
            code: error.code(),
            message: error.to_string(),
        };
        refusals.insert(package.uri.clone(), refusal);
    }

    /// Forgets what was said of a package: it is a good one now.
    pub(in crate::engine) fn remove(&self, package: &PackageEntry) {
        self.lock().remove(&package.uri);
    }

    /// Every change of the map is one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<Url, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
