//! Hosts that refuse every request for a resource.

use resyncd_testkit::{Fault, SampleSource};

use crate::support::{Rig, SET, eventually, resources};

const RESOURCES: usize = 300;

/// A host that answers nothing but 403, or 500, gets fewer and fewer requests, also where no two are for the same resource.
#[tokio::test(flavor = "multi_thread")]
async fn host_that_refuses_everything_is_slowed_down_until_it_serves_again() {
    for status in [403, 500] {
        let source = SampleSource::start(resources(RESOURCES)).await.unwrap();
        let paths = (0..RESOURCES).map(|number| format!("/{SET}/res/r{number:04}.txt"));
        let paths: Vec<String> = paths.collect();
        for path in &paths {
            source.fail(path, Fault::Status(status), usize::MAX);
        }
        let rig = Rig::follow(source, |_| {}).await;
        let hits = || -> u64 { paths.iter().map(|path| rig.source.hits(path)).sum() };
        let host = eventually("slowed down to one request", None, async || {
            let hosts = rig.operator.status().await.hosts;
            let slowed = hosts.into_iter().find(|host| host.at_once == 1);
            slowed.ok_or_else(|| "not yet".to_owned())
        })
        .await;
        let slowed = host.slowed.unwrap();
        assert_eq!(slowed.code, "http-status");
        assert!(slowed.message.contains(&status.to_string()), "{slowed:?}");
        let began = std::time::Instant::now();
        let before = hits();
        assert!(before < 100, "{status}: {before}");
        eventually("some more requests", None, async || {
            (hits() >= before + 3)
                .then_some(())
                .ok_or_else(|| "not yet".to_owned())
        })
        .await;
        let most = began.elapsed().as_secs() + 2;
        let found = hits() - before;
        assert!(found <= most, "{status}: {found}, at most {most}");
        for path in &paths {
            rig.source.heal(path);
        }
        rig.until("most are there", |set| set.resources > 250).await;
    }
}
