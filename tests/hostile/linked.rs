//! A Source whose entries link to what it has no business to have fetched.

use resyncd::config::{Filter, Source};
use resyncd::demo::{ChannelHub, SampleOptions, SampleSource};
use resyncd::protocol::{ContentInfo, Link, LinkRules, MediaRange};

use crate::private_addresses::Canaries;
use crate::site::{GuardedDaemon, PUBLIC, Site, entry, ok, redirect};
use crate::support::{Rig, SET, files, resources};

/// Everything that links name.
fn follow_all(source: &mut Source) {
    let rules = LinkRules::new(true, vec![MediaRange::parse("*/*").unwrap()]);
    source.filter = Filter::everything().following(rules);
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_resources_at_private_addresses_are_not_requested() {
    let canaries = Canaries::start().await;
    let links = |n: usize, spelling: &str| {
        let href = spelling.replace('\t', "&#9;");
        let rel = ["alternate", "describedby"][n % 2];
        format!(r#"<rs:ln rel="{rel}" href="{href}" type="text/xml"/>"#)
    };
    let targets = canaries.spellings.clone();
    let list = |base: &str| {
        // Links to private addresses, and to what leads to one.
        canaries.list(|n, spelling| {
            let redirecting = format!("{base}/r/{}", 1000 + n);
            let links = links(n, spelling) + &links(n, &redirecting);
            entry(&format!("{base}/r/{n}"), &links)
        })
    };
    let count = targets.len() as u64;
    let site = Site::of_list(PUBLIC, list, move |n| match n.checked_sub(1000) {
        Some(n) => redirect(302, &targets[n]),
        None => ok("public"),
    })
    .await;
    let daemon = GuardedDaemon::follow_with(site.url("/"), follow_all).await;
    let sets = daemon
        .until("all were tried", |sets| {
            sets.len() == 1 && sets[0].resources >= count && sets[0].pending == 0
        })
        .await;
    canaries.assert_silent();
    assert!(sets[0].failed > 80, "{sets:#?}");
    let codes: Vec<&str> = sets[0].errors.iter().map(|it| it.code.as_str()).collect();
    assert!(codes.contains(&"forbidden-address"), "{codes:?}");
    let found = files(&daemon.config.sources[0].mirror);
    assert!(found.into_values().all(|bytes| bytes == b"public"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_linked_resources_at_the_host_of_somebody_else_are_limited() {
    const ENTRIES: usize = 11;
    let victim = SampleSource::start(resources(0)).await.unwrap();
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(ENTRIES)
    };
    let source = SampleSource::start(options).await.unwrap();
    let content = ContentInfo {
        media_type: Some("text/xml".to_owned()),
        ..ContentInfo::default()
    };
    for owner in 0..ENTRIES {
        let links = (0..64).map(|n| {
            let path = format!("/{owner}/{n}.xml");
            victim.put_document(&path, "text/xml", "x");
            Link {
                content: content.clone(),
                ..Link::new("describedby", victim.base().join(&path).unwrap())
            }
        });
        let links = links.collect();
        source.set_links(SET, &format!("r{owner:04}.txt"), links);
    }
    source.refresh_resource_list(SET);
    let rig = Rig::follow(source, |config| {
        // For resources it is 600 times as many: 600 at once, and 600 more in an hour.
        config.limits.third_party_requests = 2;
        follow_all(&mut config.sources[0]);
    })
    .await;
    let set = rig
        .until("the limit is reached", |set| {
            let is_limited = |code: &str| code == "third-party-limit";
            set.errors.iter().any(|error| is_limited(&error.code))
        })
        .await;
    assert!(set.resources >= 600, "{set:#?}");
    assert!(victim.traffic().0 < 700);
}
