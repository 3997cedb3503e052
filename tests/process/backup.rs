//! `backup`: a copy of the database, and what a Destination does that begins with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use resyncd_testkit::SampleSource;

use crate::support::process::{Home, text};
use crate::support::{SET, resources};

#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_catches_up_and_is_another_feed() {
    let source = SampleSource::start(resources(20)).await.unwrap();
    let hook = "[[source.hook]]\nname = \"failing\"\ncommand = [\"/bin/false\"]";
    let home = Home::new(&source.url(), hook);
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
    let why = text(&again.stderr);
    assert!(why.contains(name) && why.contains("[file-exists]"), "{why}");
    assert_eq!(fs::read(&file).unwrap(), copy);

    // A secret that only the service has is not needed.
    let config = fs::read_to_string(&home.config).unwrap();
    let secret = format!("{config}[source.auth]\nbearer_credential = \"absent\"\n");
    fs::write(&home.config, secret).unwrap();
    let other = home.folder().join("other.db");
    let output = home.run_command(&["backup", other.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(&home.config, config).unwrap();

    // What happens after the backup is not in it, but in the mirror.
    source.update(SET, "r0002.txt", "after the backup");
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0003.txt");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let feed = home.operator.changes(0).await[0].feed.clone();
    assert_eq!(running.stop().await.code(), Some(0));

    let state = home.folder().join("state");
    let former = fs::read(state.join("resyncd.db")).unwrap();
    let restored = home.run_command(&["restore", name]);
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    let aside = state.join("resyncd.db.replaced-1");
    let shown = text(&restored.stdout);
    assert!(shown.contains(aside.to_str().unwrap()), "{shown}");
    assert_eq!(fs::read(&aside).unwrap(), former, "it is set aside");
    assert_eq!(fs::read(&file).unwrap(), copy, "the backup stays");
    let mode = fs::metadata(state.join("resyncd.db"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let _running = home.run();
    source.create(SET, "newer.txt", "newer");
    source.notify_and_publish(SET).await.unwrap();
    home.settled(&source).await;
    let set = home.until("the status", |_| true).await;
    assert_eq!((set.resources, set.failed), (21, 0));
    // The numbers that the lost database has given are given again: they must be no positions any more.
    assert_ne!(home.operator.changes(0).await[0].feed, feed);
    // The numbers in between were never given: no hook is behind by them.
    let entries = home.operator.changes(0).await.len() as u64;
    let status = home.until_status("the hook fails", |status| {
        status.sources[0].hooks[0].error.is_some()
    });
    assert_eq!(status.await.sources[0].hooks[0].behind, Some(entries));
    let audit = home.run_command(&["audit"]);
    assert_eq!(audit.status.code(), Some(0), "{audit:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_of_a_folder_are_named_by_their_time_and_the_oldest_are_removed() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let folder = home.folder().join("backups");
    let slashed = format!("{}/", folder.display());
    let nowhere = home.run_command(&["backup", &slashed]);
    assert_eq!(nowhere.status.code(), Some(1), "{nowhere:?}");
    assert!(text(&nowhere.stderr).contains("create it first [no-folder]"));
    fs::create_dir(&folder).unwrap();
    // One of a time to come, as of a wrong clock, and what has almost such a name.
    let copies = ["19990101T000000", "20010101T000000", "29990101T000000"];
    let copies = copies.map(|at| format!("resyncd-{at}Z.db"));
    let others = ["resyncd.db", "resyncd-19990101T000000Z.db.old"];
    for name in copies.iter().map(String::as_str).chain(others) {
        fs::write(folder.join(name), "").unwrap();
    }
    fs::create_dir(folder.join("resyncd-19980101T000000Z.db")).unwrap();
    let output = home.run_command(&["backup", folder.to_str().unwrap(), "--keep", "2"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    let new = shown.lines().next().unwrap().split(": ").next().unwrap();
    assert!(new.starts_with(&format!("{slashed}resyncd-20")), "{shown}");
    assert!(fs::metadata(new).unwrap().len() > 10_000, "{shown}");
    for (name, stays) in copies.iter().zip([false, false, true]) {
        assert_eq!(folder.join(name).exists(), stays, "{name}: {shown}");
    }
    assert!(others.iter().all(|name| folder.join(name).exists()));
    assert!(folder.join("resyncd-19980101T000000Z.db").exists());
    // A file has no older ones.
    let file = home.folder().join("one.db");
    let arguments = ["backup", file.to_str().unwrap(), "--keep", "2"];
    let output = home.run_command(&arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!file.exists());
    let none = home.run_command(&["backup", &slashed, "--keep", "0"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_sound_backup_is_restored_and_never_beside_a_daemon() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let file = home.folder().join("backup.db");
    let name = file.to_str().unwrap();
    let output = home.run_command(&["backup", name]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let state = home.folder().join("state");
    let database = fs::read(state.join("resyncd.db")).unwrap();
    let sound = fs::read(&file).unwrap();
    let refuses = |code: &str| {
        let refused = home.run_command(&["restore", name]);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let why = text(&refused.stderr);
        assert!(why.contains(&format!("[{code}]")), "{code}: {why}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    };
    let mut schema = sound.clone();
    // The number of the schema: `PRAGMA user_version`.
    schema[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    let mut damaged = sound.clone();
    damaged[4096..].fill(0x5a);
    for (bytes, code) in [
        (&b"no database"[..], "backup-unusable"),
        (b"", "backup-unusable"),
        (&sound[..sound.len() / 2], "backup-unusable"),
        (&damaged, "backup-unusable"),
        (&schema, "newer-schema"),
    ] {
        fs::write(&file, bytes).unwrap();
        refuses(code);
    }
    fs::remove_file(&file).unwrap();
    refuses("backup-unusable");
    assert_eq!(fs::read(state.join("resyncd.db")).unwrap(), database);
    fs::write(&file, &sound).unwrap();
    let running = home.run();
    home.settled(&source).await;
    refuses("state-locked");
    assert_eq!(running.stop().await.code(), Some(0));
    let names = fs::read_dir(&state).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.contains(".re")).collect();
    assert!(left.is_empty(), "{left:?}");

    // Also where there is no database, and twice: each former one stays.
    fs::remove_dir_all(&state).unwrap();
    for aside in [false, true, true] {
        let restored = home.run_command(&["restore", name]);
        assert_eq!(restored.status.code(), Some(0), "{restored:?}");
        let shown = text(&restored.stdout);
        assert_eq!(shown.contains(".replaced-"), aside, "{shown}");
    }
    assert!(state.join("resyncd.db.replaced-2").exists());
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    home.assert_mirrored(&source, &[SET]);
}
