//! What an audit makes of the daemon's database, and of a daemon at work.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_database_is_made_anew_without_fetching() {
    let source = SampleSource::start(resources(5)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_dir_all(home.folder().join("state")).unwrap();
    alter(&file(&source, &home, SET, "r0001.txt"), |bytes| {
        bytes[0] ^= 1
    });
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["altered r0001.txt digest"]);
    assert!(!home.folder().join("state").exists());
    let told = home.tell(&["audit", "--repair", "--json"]);
    assert_found(&told, 0, &["+altered r0001.txt digest"]);
    assert_eq!(lines(&told).1["adopted"], 4);
    sync(&home);
    home.assert_mirrored(&source, &[SET]);
    let fetched = |name: &str| source.hits(&format!("/set1/res/{name}"));
    assert_eq!((fetched("r0000.txt"), fetched("r0004.txt")), (1, 1));
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(home.set().await.unwrap().resources, 5);
    // Whoever follows the feed hears of what was not fetched, too.
    let told = home.operator.changes(0).await;
    let mut told: Vec<_> = told.iter().map(|line| line.uri.clone()).collect();
    told.sort();
    let all = (0..5).map(|number| source.resource_uri(SET, &format!("r{number:04}.txt")));
    assert_eq!(told, all.map(String::from).collect::<Vec<_>>());
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_that_no_list_tells_of_count() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    source.update(SET, "r0000.txt", "newer than the lists");
    source.create(SET, "new.txt", "newer than the lists");
    source.delete(SET, "r0001.txt");
    source.notify_and_publish(SET).await.unwrap();
    home.until_mirrored(&source).await;
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    alter(&file(&source, &home, SET, "new.txt"), |bytes| bytes[0] ^= 1);
    let told = home.tell(&["audit", "--json"]);
    assert_found(&told, 1, &["altered new.txt digest"]);
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_daemon_it_only_looks() {
    let source = SampleSource::start(resources(10)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    for round in 0..5 {
        source.update(SET, "r0003.txt", format!("round {round}"));
        source.create(SET, &format!("new{round}.txt"), "new");
        source.delete(SET, &format!("r{:04}.txt", round + 5));
        source.notify_and_publish(SET).await.unwrap();
        // It may be behind for a moment, and is given that.
        assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    }
    // Here it is behind for more than a moment.
    source.fail("/set1/res/r0003.txt", Fault::Slow(SECOND), 1);
    source.update(SET, "r0003.txt", "slow");
    source.notify_and_publish(SET).await.unwrap();
    assert_found(&home.tell(&["audit", "--json"]), 0, &[]);
    let told = home.tell(&["audit", "--repair"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let said = text(&told.stderr);
    assert!(
        said.contains("another resyncd is running") && said.contains("state-locked"),
        "{said}"
    );
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}
