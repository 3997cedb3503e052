//! Baseline, push and restarts.

use resyncd::config::{Config, XmppConfig, XmppPassword};
use resyncd::demo::{ChannelHub, Fault, SampleOptions, SampleSource};
use resyncd::status::{ChannelStatus, SetStatus, UnsubscribeResult};

use crate::prosody::{PASSWORD, Prosody, Publisher};
use crate::support::{Files, NAME, Rig, difference, eventually, files, path_of};

const NODE: &str = "changes";

/// A Source of version 0.1 that publishes its changes at a node, and a daemon that follows it.
struct Draft {
    rig: Rig,
    server: Prosody,
}

fn account(server: &Prosody) -> XmppConfig {
    XmppConfig {
        user: "resyncd".to_owned(),
        domain: "localhost".to_owned(),
        password: XmppPassword::new(PASSWORD).unwrap(),
        server: Some((server.address.ip().to_string(), server.address.port())),
    }
}

/// A site of these pages, whose Sitemap names the node. The content of each page is its path.
async fn site(pages: &[&str]) -> SampleSource {
    let source = SampleSource::start(SampleOptions {
        sets: Vec::new(),
        hub: ChannelHub::None,
        ..SampleOptions::default()
    })
    .await
    .unwrap();
    source.fail("/.well-known/resourcesync", Fault::Status(404), usize::MAX);
    let base = source.base();
    let mut entries = String::new();
    for page in pages {
        source.put_document(page, "text/plain", (*page).to_owned());
        let loc = base.join(page).unwrap();
        entries += &format!("<url><loc>{loc}</loc><lastmod>2012-08-08T08:00:00Z</lastmod></url>");
    }
    // Example 5.4.
    let sitemap = format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"
            xmlns:xhtml="http://www.w3.org/1999/xhtml"><xhtml:meta name="DCTERMS.modified" content="2012-08-08T16:30:00Z"/>
            <xhtml:link href="xmpp:pubsub.localhost" rs:protocol="http://xmpp.org/extensions/xep-0060.html"
            rs:pubsubnode="{NODE}"/>{entries}</urlset>"#
    );
    source.put_document("/sitemap.xml", "text/xml", sitemap);
    source
}

impl Draft {
    /// `None`: there is no server. The publisher has made the node.
    async fn start(pages: &[&str], change: impl FnOnce(&mut Config)) -> Option<(Self, Publisher)> {
        let server = Prosody::start().await?;
        let mut publisher = server.client("publisher").await;
        publisher.create(NODE).await;
        let source = site(pages).await;
        let url = source.base().join("/sitemap.xml").unwrap();
        let account = account(&server);
        let rig = Rig::follow(source, |config| {
            config.sources[0].url = url;
            config.xmpp = Some(account);
            change(config);
        })
        .await;
        Some((Self { rig, server }, publisher))
    }

    /// The document of these entries, as a Change Set.
    fn change_set(&self, entries: &[(&str, &str, &str)]) -> String {
        let base = self.rig.source.base();
        let entries: String = entries
            .iter()
            .map(|(path, change, time)| {
                let (loc, time) = (base.join(path).unwrap(), format!("2012-08-09T{time}Z"));
                match *change {
                    "deleted" => format!("<url><loc>{loc}</loc><expires>{time}</expires></url>"),
                    change => format!(
                        "<url><loc>{loc}</loc><lastmod rs:type='{change}'>{time}</lastmod></url>"
                    ),
                }
            })
            .collect();
        format!(
            "<urlset rs:type='changeset' xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:rs='http://www.openarchives.org/rs/terms/'>{entries}</urlset>"
        )
    }

    fn put(&self, path: &str, text: &str) {
        self.rig
            .source
            .put_document(path, "text/plain", text.to_owned());
    }

    async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        eventually(what, Some(self.rig.wakes()), async || {
            let status = self.rig.operator.status().await;
            let sets = status.sources.into_iter().flat_map(|source| source.sets);
            let sets: Vec<SetStatus> = sets.collect();
            match &sets[..] {
                [set] if wanted(set) => Ok(set.clone()),
                sets => Err(format!("{sets:#?}")),
            }
        })
        .await
    }

    async fn until_channel(
        &self,
        what: &str,
        wanted: impl Fn(&ChannelStatus) -> bool,
    ) -> ChannelStatus {
        let set = self.until(what, |set| set.channels.iter().any(&wanted));
        set.await.channels.remove(0)
    }

    /// Waits until the first copy is complete, and the node is subscribed to.
    async fn settled(&self) {
        let set = self.until("in sync and subscribed", |set| {
            let is_active = set.channels.iter().all(|channel| channel.state == "active");
            set.state == "in-sync" && set.pending == 0 && !set.channels.is_empty() && is_active
        });
        set.await;
    }

    /// Waits until the mirror holds exactly these pages.
    async fn until_pages(&self, pages: &[(&str, &str)]) {
        let base = self.rig.source.base();
        let wanted: Files = pages
            .iter()
            .map(|(page, text)| {
                let path = path_of(&base.join(page).unwrap());
                (path, text.as_bytes().to_vec())
            })
            .collect();
        let mirror = &self.rig.config.sources[0].mirror;
        eventually(
            "the mirror has these pages",
            Some(self.rig.wakes()),
            async || match difference(&wanted, &files(mirror)).as_str() {
                "" => Ok(()),
                wrong => Err(wrong.to_owned()),
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_pushed_by_the_node_that_the_sitemap_names() {
    let Some((draft, mut publisher)) = Draft::start(&["/a", "/b"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    draft.until_pages(&[("/a", "/a"), ("/b", "/b")]).await;
    let channel = draft.until_channel("shown", |_| true).await;
    assert_eq!(channel.transport, "xmpp");
    assert_eq!(channel.topic, "xmpp:pubsub.localhost?;node=changes");
    assert_eq!((channel.hub, channel.lease_expires_at), (None, None));
    draft.put("/a", "changed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.until_pages(&[("/a", "changed"), ("/b", "/b")]).await;
    draft.put("/c", "created");
    draft.rig.source.fail("/b", Fault::Status(404), usize::MAX);
    let set = draft.change_set(&[("/c", "created", "09:00:00"), ("/b", "deleted", "09:00:01")]);
    publisher.publish(NODE, "2", &set).await;
    draft
        .until_pages(&[("/a", "changed"), ("/c", "created")])
        .await;
    let channel = draft.until_channel("counted", |it| it.inbox == 0).await;
    assert_eq!((channel.received, channel.rejected), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_either_side_loses_nothing() {
    let Some((mut draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    draft.rig.stop_daemon().await;
    // Only the node states it.
    draft.put("/a", "missed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.rig.start_daemon().await;
    draft.until_pages(&[("/a", "missed")]).await;

    draft.server.stop();
    draft
        .until_channel("lost", |channel| channel.state == "expired")
        .await;
    draft.server.start_again().await;
    draft.settled().await;
    draft.put("/a", "pushed");
    let mut publisher = draft.server.client("publisher").await;
    let set = draft.change_set(&[("/a", "updated", "10:00:00")]);
    publisher.publish(NODE, "2", &set).await;
    draft.until_pages(&[("/a", "pushed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_ended_on_request() {
    let Some((draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    let subscriptions = publisher.subscriptions(NODE).await;
    assert!(
        subscriptions.contains("resyncd@localhost/resyncd-"),
        "{subscriptions}"
    );
    let path = format!("/sources/{NAME}/unsubscribe");
    let (_, body) = draft.rig.operator.post(&path).await;
    let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
    assert_eq!(results.len(), 1, "{results:?}");
    assert!(results[0].confirmed, "{results:?}");
    let subscriptions = publisher.subscriptions(NODE).await;
    assert!(
        !subscriptions.contains("resyncd@localhost"),
        "{subscriptions}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn set_is_polled_where_the_account_is_not_accepted() {
    let wrong = |config: &mut Config| {
        if let Some(account) = &mut config.xmpp {
            account.password = XmppPassword::new("wrong").unwrap();
        }
    };
    let Some((draft, _publisher)) = Draft::start(&["/a"], wrong).await else {
        return;
    };
    let channel = draft
        .until_channel("rejected", |channel| channel.error.is_some())
        .await;
    assert_eq!(channel.state, "pending");
    assert_eq!(channel.error.unwrap().code, "xmpp-authentication");
    draft.until("in sync", |set| set.state == "in-sync").await;
    draft.until_pages(&[("/a", "/a")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_of_somebody_else_is_rejected() {
    let Some((draft, mut publisher)) = Draft::start(&["/a"], |_| {}).await else {
        return;
    };
    draft.settled().await;
    let subscriptions = publisher.subscriptions(NODE).await;
    let own = subscriptions.split("jid='").nth(1).unwrap();
    let own = own.split('\'').next().unwrap();
    let mut evil = draft.server.client("evil").await;
    let set = draft.change_set(&[("/evil", "created", "08:00:00")]);
    draft.put("/evil", "evil");
    evil.send(&format!(
        "<message to='{own}'><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='{NODE}'><item id='1'>{set}</item>\
         </items></event></message>"
    ))
    .await;
    let channel = draft
        .until_channel("rejected", |channel| channel.rejected > 0)
        .await;
    assert_eq!(channel.error.unwrap().code, "foreign-publisher");
    // It goes on.
    draft.put("/a", "changed");
    let set = draft.change_set(&[("/a", "updated", "08:00:00")]);
    publisher.publish(NODE, "1", &set).await;
    draft.until_pages(&[("/a", "changed")]).await;
}
