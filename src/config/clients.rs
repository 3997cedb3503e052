//! The clients of a configuration.

use resyncd_channels::Transports;
use resyncd_fetch::{Client, FetchError};

use super::{Config, Source};
use crate::clock;

impl Config {
    /// The client of all requests, without those of one Source only.
    ///
    /// # Errors
    /// [`FetchError::Setup`] if TLS can't be set up.
    pub fn client(&self) -> Result<Client, FetchError> {
        let client = Client::new(&self.http, clock::now)?;
        Ok(client.with_max_uri_bytes(self.limits.uri))
    }

    /// What channels of no Source are opened and ended with, by the client of all requests.
    #[must_use]
    pub fn transports(&self, client: Client) -> Transports {
        Transports::new(client, self.xmpp.clone())
    }
}

impl Source {
    /// The same client for the requests of this Source, at its pace, with at most so many requests per hour to a
    /// host that is not its own. It obeys robots.txt, if the configuration says so.
    #[must_use]
    pub fn client(&self, shared: &Client, per_hour: u32) -> Client {
        let hub = self.hub.as_ref().map(|hub| hub.url());
        let urls = [&self.url].into_iter().chain(&self.sets).chain(hub);
        let client = shared.for_source(urls, &self.hosts, &self.credentials, per_hour);
        self.obeying_robots(client.with_pace(&self.pace))
    }

    /// The same client, which obeys robots.txt, if the configuration says so.
    #[must_use]
    pub fn obeying_robots(&self, client: Client) -> Client {
        if self.robots {
            client.with_robots(&self.name)
        } else {
            client
        }
    }
}
