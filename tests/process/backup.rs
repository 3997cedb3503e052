//! `backup`: a copy of the database, and what a Destination does that begins with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use resyncd_testkit::SampleSource;

use crate::support::process::{Home, text};
use crate::support::{SET, resources};

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_catches_up_and_is_another_feed() {
    let source = SampleSource::start(resources(20)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let file = home.folder().join("backup.db");
    let name = file.to_str().unwrap();
    let nothing = home.run_command(&["backup", name]);
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    assert!(text(&nothing.stderr).contains("[no-database]"));
    let nowhere = home.folder().join("nowhere/backup.db");
    let nowhere = home.run_command(&["backup", nowhere.to_str().unwrap()]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(text(&nowhere.stderr).contains("create it first [no-folder]"));

    let running = home.run();
    home.settled(&source).await;
    source.update(SET, "r0001.txt", "before the backup");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let output = home.run_command(&["backup", name]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).starts_with(name), "{output:?}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has the secrets of hubs");
    let copy = fs::read(&file).unwrap();
    let again = home.run_command(&["backup", name]);
    assert_eq!(
        again.status.code(),
        Some(1),
        "no file is replaced: {again:?}"
    );
    assert_eq!(fs::read(&file).unwrap(), copy);

    // A secret that only the service has is not needed.
    let text = fs::read_to_string(&home.config).unwrap();
    let secret = format!("{text}[source.auth]\nbearer_credential = \"absent\"\n");
    fs::write(&home.config, secret).unwrap();
    let other = home.folder().join("other.db");
    let output = home.run_command(&["backup", other.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(&home.config, text).unwrap();

    // What happens after the backup is not in it, but in the mirror.
    source.update(SET, "r0002.txt", "after the backup");
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0003.txt");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let feed = home.operator.changes(0).await[0].feed.clone();
    assert_eq!(running.stop().await.code(), Some(0));

    for entry in fs::read_dir(home.folder().join("state")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::copy(&file, home.folder().join("state/resyncd.db")).unwrap();
    let _running = home.run();
    source.create(SET, "newer.txt", "newer");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let set = home.until("the status", |_| true).await;
    assert_eq!((set.resources, set.failed), (21, 0));
    // The numbers that the lost database has given are given again: they must be no positions any more.
    assert_ne!(home.operator.changes(0).await[0].feed, feed);
    let audit = home.run_command(&["audit"]);
    assert_eq!(audit.status.code(), Some(0), "{audit:?}");
}
