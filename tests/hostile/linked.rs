//! A Source whose entries link to what it has no business to have fetched.

use resyncd::config::{Filter, Source};
use resyncd_core::{LinkRules, MediaRange};

use crate::hostile::private_addresses::Canaries;
use crate::support::files;
use crate::support::site::{GuardedDaemon, PUBLIC, Site, entry, ok, redirect};

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
