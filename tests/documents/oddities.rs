//! Oddities are logged once per document, and shown as long as they exist.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::fmt::MakeWriter;

use crate::documents::site::{Follower, Site, change_list, changed, listed, resource_list};
use crate::support::{Rig, eventually, resources};

/// The log of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn of_this_process() -> &'static Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        LOG.get_or_init(|| {
            let log = Self::default();
            let builder = tracing_subscriber::fmt().with_ansi(false);
            builder.with_writer(log.clone()).init();
            log
        })
    }

    /// The lines with `odd-document` for documents of a site.
    fn odd_documents(&self, site: &Site) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let document = format!("document={}", site.url("/"));
        let lines = text
            .lines()
            .filter(|line| line.contains("code=\"odd-document\"") && line.contains(&document));
        lines.map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oddity_is_logged_once_and_shown_until_it_is_corrected() {
    let log = Log::of_this_process();
    let site = Site::with_lists(&resource_list(&listed("/a"))).await;
    site.put("/a", "0");
    let misspelt = |changes: &[String]| {
        let (namespace, spelling) = ("openarchives.org/rs/terms/", "openarchives.org/rs/terms");
        change_list(&changes.concat()).replace(namespace, spelling)
    };
    site.put("/changes.xml", &misspelt(&[]));
    let follower = Follower::start(site).await;
    follower.until_mirrored(&[("/a", "0")]).await;
    follower
        .until_oddities(&["/changes.xml namespace-spelling=1"])
        .await;
    let lines = log.odd_documents(&follower.site);
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("oddities=namespace-spelling=1"),
        "{lines:#?}"
    );
    assert!(lines[0].contains("source=\"sample\""), "{lines:#?}");

    let mut changes = Vec::new();
    for n in 1..4 {
        let time = format!("02T0{n}:00:00");
        changes.push(changed("/a", "updated", &time));
        follower.site.put("/a", &n.to_string());
        follower.site.put("/changes.xml", &misspelt(&changes));
        follower.poll().await;
        follower.until_mirrored(&[("/a", &n.to_string())]).await;
    }
    follower
        .until_oddities(&["/changes.xml namespace-spelling=1"])
        .await;
    assert_eq!(
        log.odd_documents(&follower.site).len(),
        1,
        "the same oddity"
    );

    // A second oddity.
    changes.reverse();
    follower.site.put("/changes.xml", &misspelt(&changes));
    follower.poll().await;
    let both = [
        "/changes.xml namespace-spelling=1",
        "/changes.xml newest-first=1",
    ];
    follower.until_oddities(&both).await;
    // It is shown a moment before it is logged.
    eventually("it is logged", None, async || {
        let lines = log.odd_documents(&follower.site);
        (lines.len() == 2)
            .then_some(())
            .ok_or(format!("{lines:#?}"))
    })
    .await;

    changes.reverse();
    follower
        .site
        .put("/changes.xml", &change_list(&changes.concat()));
    follower.poll().await;
    follower.until_oddities(&[]).await;
    assert_eq!(log.odd_documents(&follower.site).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn conforming_source_has_no_oddities() {
    let rig = Rig::start(resources(5)).await;
    rig.settled().await;
    let since = rig.operator.last_change().await;
    rig.source
        .update(crate::support::SET, "r0001.txt", "updated");
    rig.source
        .notify_and_publish(crate::support::SET)
        .await
        .unwrap();
    rig.until_in_feed(since, "r0001.txt").await;
    rig.operator.poll(crate::support::NAME).await;
    let set = rig.settled().await;
    assert!(set.oddities.is_empty(), "{:#?}", set.oddities);
}
