//! A process that ends between a rename and the commit of its record, and a Source that then reverts the change.

use resyncd::demo::{Fault, SampleSource};

use crate::process::Home;
use crate::support::{SET, resources};

const NAME: &str = "r0001.txt";
const PATH: &str = "/set1/res/r0001.txt";
/// Two versions of the same length.
const FORMER: &str = "former version";
const NEWER: &str = "newer version!";

/// Where the mirror has the resource.
fn mirrored(home: &Home, source: &SampleSource) -> std::path::PathBuf {
    let uri = source.resource_uri(SET, NAME).to_string();
    home.mirror.join(uri.trim_start_matches("http://"))
}

/// After the kill the file is the newer version, the record is that of the former one, and the task is pending.
#[tokio::test(flavor = "multi_thread")]
async fn update_that_the_source_reverts_after_a_kill_is_not_mistaken_for_the_former_version() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.update(SET, NAME, FORMER);
    source.refresh_resource_list(SET);
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    source.update(SET, NAME, NEWER);
    source.fail(PATH, Fault::Status(503), usize::MAX);
    source.notify_and_publish(SET).await.unwrap();
    home.until("the task is pending", |set| set.pending == 1)
        .await;
    running.kill();
    // What the rename has done before the kill.
    let file = mirrored(&home, &source);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), FORMER);
    std::fs::write(&file, NEWER).unwrap();
    source.update(SET, NAME, FORMER);
    source.heal(PATH);
    let running = home.run();
    home.until_status("the daemon runs", |_| true).await;
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), FORMER);
    assert_eq!(running.stop().await.code(), Some(0));
}
