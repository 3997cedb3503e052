//! A Source of version 0.1 that publishes its changes at a node, and a daemon that follows it.

use resyncd::config::Config;
use resyncd::status::{ChannelStatus, SetStatus};
use resyncd_channels::{XmppAccount, XmppPassword};
use resyncd_testkit::{ChannelHub, Fault, SampleOptions, SampleSource};

use crate::support::{Files, NAME, Rig, difference, eventually, files, path_of};
use crate::xmpp::prosody::{PASSWORD, Prosody, Publisher};
use crate::xmpp::scripted::Scripted;

pub(crate) const NODE: &str = "changes";

/// Both, and the XMPP server.
pub(crate) struct Draft<S> {
    pub(crate) rig: Rig,
    pub(crate) server: S,
}

/// The account at a server.
pub(crate) fn account(host: &str, port: u16) -> XmppAccount {
    XmppAccount {
        user: "resyncd".to_owned(),
        domain: "localhost".to_owned(),
        password: XmppPassword::new(PASSWORD).unwrap(),
        server: Some((host.to_owned(), port)),
    }
}

/// Makes the Source list these pages, which have this date.
pub(crate) fn put_sitemap(source: &SampleSource, pages: &[&str], date: &str) {
    put_sitemap_with(source, pages, date, "");
}

/// The same, with further links.
pub(crate) fn put_sitemap_with(source: &SampleSource, pages: &[&str], date: &str, links: &str) {
    let base = source.base();
    let mut entries = String::new();
    for page in pages {
        let loc = base.join(page).unwrap();
        entries += &format!("<url><loc>{loc}</loc><lastmod>{date}T08:00:00Z</lastmod></url>");
    }
    // Example 5.4.
    let sitemap = format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/"
            xmlns:xhtml="http://www.w3.org/1999/xhtml"><xhtml:meta name="DCTERMS.modified" content="{date}T16:30:00Z"/>
            <xhtml:link href="xmpp:pubsub.localhost" rs:protocol="http://xmpp.org/extensions/xep-0060.html"
            rs:pubsubnode="{NODE}"/>{links}{entries}</urlset>"#
    );
    source.put_document("/sitemap.xml", "text/xml", sitemap);
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
    for page in pages {
        source.put_document(page, "text/plain", (*page).to_owned());
    }
    put_sitemap(&source, pages, "2012-08-08");
    source
}

impl Draft<Prosody> {
    /// `None`: there is no server. The publisher has made the node.
    pub(crate) async fn start(
        pages: &[&str],
        change: impl FnOnce(&mut Config),
    ) -> Option<(Self, Publisher)> {
        let server = Prosody::start().await?;
        let mut publisher = server.client("publisher").await;
        publisher.create(NODE, 20).await;
        let address = server.address;
        let draft = Draft::follow(server, pages, |config| {
            config.xmpp = Some(account(&address.ip().to_string(), address.port()));
            change(config);
        });
        Some((draft.await, publisher))
    }
}

impl Draft<Scripted> {
    /// The daemon knows the server by this name.
    pub(crate) async fn start_scripted(host: &str, change: impl FnOnce(&mut Config)) -> Self {
        let server = Scripted::start().await;
        let port = server.address.port();
        let draft = Draft::follow(server, &["/a"], |config| {
            config.xmpp = Some(account(host, port));
            change(config);
        });
        draft.await
    }
}

impl<S> Draft<S> {
    pub(crate) async fn follow(
        server: S,
        pages: &[&str],
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let source = site(pages).await;
        let url = source.base().join("/sitemap.xml").unwrap();
        let rig = Rig::follow(source, |config| {
            config.sources[0].url = url;
            change(config);
        })
        .await;
        Self { rig, server }
    }

    /// The document of these entries, as a Change Set.
    pub(crate) fn change_set(&self, entries: &[(&str, &str, &str)]) -> String {
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

    pub(crate) fn put(&self, path: &str, text: &str) {
        self.rig
            .source
            .put_document(path, "text/plain", text.to_owned());
    }

    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
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

    pub(crate) async fn until_channel(
        &self,
        what: &str,
        wanted: impl Fn(&ChannelStatus) -> bool,
    ) -> ChannelStatus {
        let set = self.until(what, |set| set.channels.iter().any(&wanted));
        set.await.channels.remove(0)
    }

    /// Waits until the first copy is complete, and the node is subscribed to.
    pub(crate) async fn settled(&self) {
        let set = self.until("in sync and subscribed", |set| {
            let is_active = set.channels.iter().all(|channel| channel.state == "active");
            set.state == "in-sync" && set.pending == 0 && !set.channels.is_empty() && is_active
        });
        set.await;
    }

    /// Waits until the mirror holds exactly these pages.
    pub(crate) async fn until_pages(&self, pages: &[(&str, &str)]) {
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

    /// A poll finds a page that has changed since.
    pub(crate) async fn expect_polled(&self) {
        self.put("/a", "polled");
        put_sitemap(&self.rig.source, &["/a"], "2012-08-09");
        self.rig.operator.poll_in_the_end(NAME).await;
        self.until_pages(&[("/a", "polled")]).await;
    }
}
