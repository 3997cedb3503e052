//! Limits the number of concurrent requests per host.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

/// The pool of a permit: downloads of content must not delay documents and hubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pool {
    /// Documents, and requests to hubs.
    Documents,
    /// Resources.
    Content,
    /// Packages: they take long, so that only one at a time is downloaded, without delaying others.
    Packages,
}

/// The permits for concurrent requests, per pool and host.
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

    /// Waits until a request to the host of the URL may start. It counts until the permit is dropped.
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
        let mut hosts = self.hosts.lock();
        // Hosts are remote input and must not accumulate: unused ones are removed.
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
    /// The available permits of a pool, of all hosts together.
    pub(super) fn available(&self, pool: Pool) -> usize {
        let hosts = self.hosts.lock();
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
        assert!(permits.hosts.lock().len() <= 1024);
    }
}
