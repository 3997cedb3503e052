//! resyncd as a Source: what it publishes, and who follows that.

mod content;
mod documents;
mod dumps;
mod folder;
mod hub;
mod losing;
mod versions;

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode};
use resourcesync::{Document, read_document};
use resyncd::config::Config;
use resyncd_testkit::SampleOptions;
use url::Url;

use crate::support::{
    Destination, NAME, Rig, client_with, eventually, files, path_of, resources, send,
};

/// A Rig whose mirror is published.
struct Published {
    rig: Rig,
    base: Url,
}

impl Published {
    async fn start(options: SampleOptions, change: impl FnOnce(&mut Config)) -> Self {
        let rig = Rig::start_with(options, |config| {
            publish(config);
            change(config);
        })
        .await;
        let address = rig.daemon().publish.unwrap();
        let base = Url::parse(&format!("http://{address}/")).unwrap();
        let published = Self { rig, base };
        published.rig.settled().await;
        published.until_published().await;
        published
    }

    /// Of this number of resources.
    async fn of(number: usize) -> Self {
        Self::start(resources(number), |_| {}).await
    }

    /// Waits until the set is published.
    async fn until_published(&self) {
        eventually("published", Some(self.rig.wakes()), async || {
            let description = self.document(&self.description()).await;
            match description.entries.len() {
                1 => Ok(()),
                _ => Err(format!("{description:?}")),
            }
        })
        .await;
    }

    fn description(&self) -> Url {
        self.base
            .join(&format!("{NAME}/.rs/description.xml"))
            .unwrap()
    }

    async fn answer(&self, method: Method, url: &Url, headers: &[(HeaderName, &str)]) -> Answer {
        let response = send(|| {
            let client = client_with(Policy::none());
            let asked = client.request(method.clone(), url.clone());
            let headers = headers.iter();
            headers.fold(asked, |asked, (name, value)| asked.header(name, *value))
        })
        .await;
        Answer {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    async fn get(&self, url: &Url) -> Answer {
        self.answer(Method::GET, url, &[]).await
    }

    /// A document, which must be well-formed and without any deviation from the specification.
    async fn document(&self, url: &Url) -> Document {
        let answer = self.get(url).await;
        assert_eq!(answer.status, StatusCode::OK, "{url}");
        let document = read_document(&answer.body, url).unwrap();
        assert!(
            document.oddities.is_empty(),
            "{url}: {:?}",
            document.oddities
        );
        document
    }

    /// The Capability List of the set.
    async fn capability_list(&self) -> Url {
        let description = self.document(&self.description()).await;
        description.entries[0].loc.clone()
    }

    /// A document of the set.
    async fn of_set(&self, name: &str) -> Url {
        self.capability_list().await.join(name).unwrap()
    }

    /// Where the file of a resource is published.
    fn file(&self, name: &str) -> Url {
        let path = path_of(&Url::parse(&self.rig.uri(name)).unwrap());
        self.base.join(&format!("{NAME}/{path}")).unwrap()
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Publishes what the first Source has.
fn publish(config: &mut Config) {
    config.publish.listen = "127.0.0.1:0".parse().unwrap();
    config.sources[0].publish = true;
}

/// Waits until a mirror has the files of another one, which are published at a base.
async fn until_equal(destination: &Destination, expected: &Destination, base: &Url) {
    let folder = format!(
        "{}/{NAME}/",
        base.as_str()
            .trim_start_matches("http://")
            .trim_end_matches('/')
    );
    eventually(
        "the mirrors are equal",
        Some(destination.wakes()),
        async || {
            let of_source = files(&expected.config.sources[0].mirror).into_iter();
            let of_source = of_source
                .map(|(path, bytes)| (format!("{folder}{path}"), bytes))
                .collect();
            let found = files(&destination.config.sources[0].mirror);
            let difference = crate::support::difference(&of_source, &found);
            match difference.as_str() {
                "" => Ok(()),
                _ => Err(difference),
            }
        },
    )
    .await;
}
