//! Topics: the hubs of a channel and its canonical topic URI, from the topic itself (WebSub, section 4).

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use reqwest::Method;
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::without_userinfo;
use resyncd_core::{HubUri, MAX_HUBS, TopicUri};
use url::Url;

use super::FetchError;
use super::client::{Answer, Client, Follow};
use super::link_tags::LinkTags;

/// How much of a body is searched for links, in bytes.
const MAX_BODY: usize = 256 << 10;

/// The maximum total time. A subscription waits for it, but does not require it.
const MAX_TIME: Duration = Duration::from_secs(20);

/// The links of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicLinks {
    /// Its canonical URI (`rel="self"`): the topic to subscribe to.
    pub topic: Option<TopicUri>,
    /// Its hubs (`rel="hub"`), in its order.
    pub hubs: Vec<HubUri>,
}

impl TopicLinks {
    fn is_complete(&self) -> bool {
        self.topic.is_some() && !self.hubs.is_empty()
    }

    /// Adds missing links from a source of lower precedence.
    fn complete(&mut self, other: Self) {
        self.topic = self.topic.take().or(other.topic);
        if self.hubs.is_empty() {
            self.hubs = other.hubs;
        }
    }

    fn add(&mut self, rel: &str, href: Url) {
        if rel == "self" {
            self.topic = self.topic.take().or(TopicUri::try_from(href).ok());
        } else if rel == "hub"
            && let Ok(hub) = HubUri::try_from(href)
            && self.hubs.len() < MAX_HUBS
            && !self.hubs.contains(&hub)
        {
            self.hubs.push(hub);
        }
    }

    fn of_headers(answer: &Answer) -> Self {
        let mut found = Self::default();
        for link in answer.links() {
            found.add(&link.rel, link.href);
        }
        found
    }

    fn of_body(text: &str, url: &Url) -> Self {
        let mut found = Self::default();
        for link in LinkTags::of_head(text, url) {
            for rel in ["hub", "self"] {
                if link.relates(rel) {
                    found.add(rel, without_userinfo(link.href.clone()));
                }
            }
        }
        found
    }
}

impl Client {
    /// Requests the links of a topic: by HEAD, and if a link is missing, by GET. Link headers take precedence over links in the
    /// body, which may be XML or HTML. Redirects are followed. At most 256 KiB are read.
    ///
    /// # Errors
    /// [`FetchError`] if the request fails. A topic without links is not an error.
    pub async fn ask_topic(&self, topic: &TopicUri) -> Result<TopicLinks, FetchError> {
        let asking = async {
            let by_head = match self.head_or_get(topic, Method::HEAD).await {
                Ok(answer) => TopicLinks::of_headers(&answer),
                // Some servers support only GET.
                Err(FetchError::Status { .. }) => TopicLinks::default(),
                Err(error) => return Err(error),
            };
            if by_head.is_complete() {
                return Ok(by_head);
            }
            match self.get_links(topic).await {
                Ok(mut links) => {
                    links.complete(by_head);
                    Ok(links)
                }
                Err(_) if !by_head.hubs.is_empty() => Ok(by_head),
                Err(error) => Err(error),
            }
        };
        tokio::time::timeout(MAX_TIME.min(self.timeout()), asking)
            .await
            .unwrap_or(Err(FetchError::Timeout))
    }

    async fn get_links(&self, topic: &TopicUri) -> Result<TopicLinks, FetchError> {
        let mut answer = self.head_or_get(topic, Method::GET).await?;
        let mut links = TopicLinks::of_headers(&answer);
        if !links.is_complete() {
            let mut body = Vec::new();
            while body.len() < MAX_BODY
                && let Some(chunk) = answer.chunk().await?
            {
                body.extend_from_slice(&chunk);
            }
            links.complete(TopicLinks::of_body(&text(&body), &answer.url));
        }
        Ok(links)
    }

    async fn head_or_get(&self, topic: &TopicUri, method: Method) -> Result<Answer, FetchError> {
        let request = |http: &reqwest::Client, url| http.request(method.clone(), url);
        let answer = self.ask_document(topic.url(), Follow::All, request).await?;
        if answer.response.status().is_success() {
            Ok(answer)
        } else {
            Err(answer.into_error().await)
        }
    }
}

/// The beginning of a body as text. Some servers compress without being asked to: gzip is recognized by its bytes.
fn text(body: &[u8]) -> String {
    let mut plain = Vec::new();
    if body.starts_with(&GZIP_MAGIC) {
        // It may be truncated: the bytes before the error are used.
        let _ = GzDecoder::new(body)
            .take(MAX_BODY as u64)
            .read_to_end(&mut plain);
    } else {
        plain.extend_from_slice(&body[..body.len().min(MAX_BODY)]);
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::test_site::{self, Received, TestSite};

    const LINKS: (&str, &str) = ("link", "</hub>; rel=hub, </own>; rel=self");

    async fn ask(site: &TestSite, path: &str) -> Result<TopicLinks, FetchError> {
        let topic = TopicUri::parse(&site.url(path)).unwrap();
        test_site::client().ask_topic(&topic).await
    }

    /// Checks the links of a topic that answers so, as paths, and the methods of the requests.
    async fn check(
        answer: impl Fn(&Received) -> axum::response::Response + Send + Sync + 'static,
        topic: Option<&str>,
        hubs: &[&str],
        methods: &[&str],
    ) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        let site = TestSite::start(move |received| {
            log.lock().unwrap().push(received.method.to_string());
            answer(&received)
        })
        .await;
        let found = ask(&site, "/topic").await.unwrap();
        let base = site.url("");
        let path = |uri: &str| uri.strip_prefix(&base).unwrap_or(uri).to_owned();
        assert_eq!(
            found.topic.map(|topic| path(topic.as_str())).as_deref(),
            topic
        );
        let found: Vec<String> = found.hubs.iter().map(|hub| path(hub.as_str())).collect();
        assert_eq!(found, hubs);
        assert_eq!(*asked.lock().unwrap(), methods);
    }

    #[tokio::test]
    async fn get_is_not_sent_where_head_has_all_links() {
        let links = |_: &Received| test_site::ok_with(&[LINKS], "");
        check(links, Some("/own"), &["/hub"], &["HEAD"]).await;
        let several = |_: &Received| {
            let links = "</1>; rel=hub, </2>; rel=\"hub\", </1>; rel=hub, <ftp://x/>; rel=hub";
            test_site::ok_with(&[("link", links), ("link", "</own>; rel=self")], "")
        };
        check(several, Some("/own"), &["/1", "/2"], &["HEAD"]).await;
    }

    #[tokio::test]
    async fn get_is_sent_where_head_lacks_links() {
        check(
            |received| match received.method {
                Method::HEAD => test_site::status(405),
                _ => test_site::ok_with(&[LINKS], ""),
            },
            Some("/own"),
            &["/hub"],
            &["HEAD", "GET"],
        )
        .await;
        check(
            |received| match received.method {
                Method::HEAD => test_site::ok_with(&[("link", "</hub>; rel=hub")], ""),
                _ => test_site::status(500),
            },
            None,
            &["/hub"],
            &["HEAD", "GET"],
        )
        .await;
    }

    #[tokio::test]
    async fn links_of_the_body_complete_those_of_the_headers() {
        for body in [
            "<feed><link rel='hub' href='/hub'/><link rel='self' href='/own'/><entry>",
            "<rss><channel><atom:link rel='hub' href='hub'/><atom:link rel='self' href='own'/>",
            "<html><head><link rel=hub href=/hub><link rel=self href=/own></head>",
        ] {
            let both = &["HEAD", "GET"];
            check(move |_| test_site::ok(body), Some("/own"), &["/hub"], both).await;
            // Headers take precedence.
            check(
                move |_| test_site::ok_with(&[("link", "</better>; rel=hub")], body),
                Some("/own"),
                &["/better"],
                both,
            )
            .await;
        }
        check(|_| test_site::ok("text"), None, &[], &["HEAD", "GET"]).await;
    }

    #[tokio::test]
    async fn redirects_are_followed_and_targets_relative_to_their_end() {
        check(
            |received| match received.path() {
                "/topic" => test_site::redirect(301, "/deep/topic"),
                _ => test_site::ok_with(&[("link", "<hub>; rel=hub, <own>; rel=self")], ""),
            },
            Some("/deep/own"),
            &["/deep/hub"],
            &["HEAD", "HEAD"],
        )
        .await;
    }

    #[tokio::test]
    async fn endless_topics_are_truncated_and_missing_ones_are_errors() {
        let endless = "<head>".to_owned() + &" ".repeat(MAX_BODY) + "<link rel=hub href=/late>";
        let answer = move |_: &Received| test_site::ok(endless.clone());
        check(answer, None, &[], &["HEAD", "GET"]).await;
        let site = TestSite::start(|_| test_site::status(404)).await;
        assert_eq!(ask(&site, "/").await.unwrap_err().code(), "not-found");
    }
}
