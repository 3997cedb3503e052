//! How many requests may be under way at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

/// Who a permit is for: downloads of content must not keep documents and hubs waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pool {
    /// Documents, and requests to hubs.
    Documents,
    /// Resources.
    Content,
    /// Packages: they take long, so they go one at a time, and keep nobody else waiting.
    Packages,
}

/// How many requests may be under way at once, for each host.
pub(super) struct Permits {
    per_host: usize,
    hosts: Mutex<HashMap<(Pool, String), Arc<Semaphore>>>,
}

impl Permits {
    pub(super) fn new(per_host: usize) -> Self {
        Self {
            per_host: per_host.clamp(1, Semaphore::MAX_PERMITS),
            hosts: Mutex::default(),
        }
    }

    /// Waits until one more request to the URL's host may start. It counts until the permit is dropped.
    pub(super) async fn acquire(&self, pool: Pool, url: &Url) -> OwnedSemaphorePermit {
        let authority = format!(
            "{}:{}",
            url.host_str().unwrap_or_default(),
            url.port_or_known_default().unwrap_or_default()
        );
        self.semaphore(pool, authority)
            .acquire_owned()
            .await
            .expect("a semaphore of Permits is never closed")
    }

    fn semaphore(&self, pool: Pool, authority: String) -> Arc<Semaphore> {
        let permits = match pool {
            Pool::Documents | Pool::Content => self.per_host,
            Pool::Packages => 1,
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Hosts come from outside, so they must not pile up: those that nobody uses are forgotten.
        if hosts.len() >= 1024 {
            hosts.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        hosts
            .entry((pool, authority))
            .or_insert_with(|| Arc::new(Semaphore::new(permits)))
            .clone()
    }
}

#[cfg(test)]
impl Permits {
    /// The permits of a pool that are not taken, of all hosts together.
    pub(super) fn available(&self, pool: Pool) -> usize {
        let hosts = self.hosts.lock().unwrap();
        hosts
            .iter()
            .filter(|((of, _), _)| *of == pool)
            .map(|(_, semaphore)| semaphore.available_permits())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_hosts_are_removed() {
        let permits = Permits::new(2);
        for n in 0..5000 {
            permits.semaphore(Pool::Content, format!("host{n}:80"));
        }
        assert!(permits.hosts.lock().unwrap().len() <= 1024);
    }
}
