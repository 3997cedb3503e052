//! Related resources: a daemon that is killed while it mirrors them.

use resyncd_testkit::Fault;

use crate::support::process::Home;
use crate::support::{Examples, KEYS, NAME, Way, soon, until_verified};

#[tokio::test(flavor = "multi_thread")]
async fn examples_are_mirrored_with_each_key_after_a_kill() {
    for way in Way::ALL {
        for key in KEYS {
            let examples = Examples::start(way).await;
            let source = &examples.source;
            let home = Home::new(&source.url(), &key.toml(&examples));
            let last = examples.last_path(&key);
            let mut since = 0;
            if !way.is_of_changes() {
                source.fail(&last, Fault::Stalled, usize::MAX);
            }
            let hits = source.hits(&last);
            let mut running = home.run();
            if way.is_of_changes() {
                home.until("the bases are mirrored", |set| {
                    let is_active = set.channels.iter().all(|it| it.state == "active");
                    set.state == "in-sync" && set.pending == 0 && is_active
                })
                .await;
                until_verified(source).await;
                Examples::until_bases_are_stored(&home.operator).await;
                since = home.operator.last_change().await;
                source.fail(&last, Fault::Stalled, usize::MAX);
                examples.publish().await;
                if way != Way::Push {
                    home.operator.poll(NAME).await;
                }
            }
            soon("the last request", source.wait_for_hits(&last, hits + 1)).await;
            running.kill();
            source.heal(&last);
            running = home.run();
            home.until("restarted", |_| true).await;
            examples
                .check(&key, &home.operator, &home.mirror, since, 1)
                .await;
            running.kill();
        }
    }
}
