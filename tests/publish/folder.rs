//! A folder as a Source.

use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use resourcesync::{ChangeKind, Entry, read_document};
use resyncd::cli::Daemon;
use resyncd::config::{Config, PublishedFolder};
use tempfile::TempDir;
use url::Url;

use crate::support::{Destination, client, eventually, files, free_address, send, soon};

/// A folder that a daemon publishes.
struct Folder {
    folder: TempDir,
    config: Config,
    daemon: Option<Daemon>,
    base: Url,
}

impl Folder {
    async fn start(names: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files");
        fs::create_dir(&path).unwrap();
        for name in names {
            put(&path, name, "as it was at first");
        }
        let mut config = Config::new(folder.path().join("state"), Vec::new());
        config.status.listen = "127.0.0.1:0".parse().unwrap();
        config.publish.listen = "127.0.0.1:0".parse().unwrap();
        config.http.allow_private_addresses = true;
        config.folders = vec![PublishedFolder {
            name: "files".to_owned(),
            path,
        }];
        let daemon = Daemon::start(config.clone()).await.unwrap();
        let base = Url::parse(&format!("http://{}/", daemon.publish.unwrap())).unwrap();
        Self {
            folder,
            config,
            daemon: Some(daemon),
            base,
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("files")
    }

    fn description(&self) -> Url {
        self.base.join("files/.rs/description.xml").unwrap()
    }

    /// The entries of a document of the set; `None`: there is none yet.
    async fn entries(&self, name: &str) -> Option<Vec<Entry>> {
        let description = get(&self.description()).await?;
        let list = description.first()?.loc.clone();
        get(&list.join(name).unwrap()).await
    }

    /// Waits until the Resource List names exactly these files.
    async fn until_listed(&self, expected: &[&str]) {
        let prefix = format!("{}files/", self.base);
        eventually("listed", None, async || {
            let entries = self.entries("resourcelist.xml").await.unwrap_or_default();
            let names = entries.iter().map(|entry| entry.loc.as_str());
            let mut names: Vec<&str> = names
                .map(|loc| loc.strip_prefix(&prefix).unwrap())
                .collect();
            names.sort_unstable();
            if names == expected {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }

    async fn stop(&mut self) {
        let daemon = self.daemon.take().unwrap();
        soon("the daemon stops", daemon.stop()).await;
    }
}

async fn get(url: &Url) -> Option<Vec<Entry>> {
    let answer = send(|| client().get(url.clone())).await;
    let body = answer.bytes().await.unwrap();
    let document = read_document(&body, url).ok()?;
    assert!(
        document.oddities.is_empty(),
        "{url}: {:?}",
        document.oddities
    );
    Some(document.entries)
}

/// Writes a file that has been left alone.
fn put(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    let earlier = SystemTime::now() - Duration::from_secs(10);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(earlier)
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_published_as_they_are_and_change() {
    let published = Folder::start(&["a.txt", "sub/b c.xml", ".hidden", "sub/.git/config"]).await;
    std::os::unix::fs::symlink("/etc/hostname", published.path().join("link")).unwrap();
    published.until_listed(&["a.txt", "sub/b%20c.xml"]).await;
    let entries = published.entries("resourcelist.xml").await.unwrap();
    assert!(
        entries.iter().all(|entry| entry.links.is_empty()),
        "{entries:?}"
    );
    let mut types: Vec<_> = entries
        .iter()
        .map(|entry| entry.md.content.media_type.clone().unwrap())
        .collect();
    types.sort_unstable();
    assert_eq!(types, ["text/plain", "text/xml"]);

    put(&published.path(), "more/new.txt", "new");
    fs::rename(
        published.path().join("a.txt"),
        published.path().join("renamed.txt"),
    )
    .unwrap();
    fs::remove_file(published.path().join("sub/b c.xml")).unwrap();
    published
        .until_listed(&["more/new.txt", "renamed.txt"])
        .await;
    let changes = published.entries("changelist-open.xml").await.unwrap();
    let kind_of = |name: &str| {
        let found = changes
            .iter()
            .find(|entry| entry.loc.path().ends_with(name));
        found.and_then(|entry| entry.md.change)
    };
    assert_eq!(kind_of("/a.txt"), Some(ChangeKind::Deleted));
    assert_eq!(kind_of("/renamed.txt"), Some(ChangeKind::Created));
    assert_eq!(kind_of("/sub/b%20c.xml"), Some(ChangeKind::Deleted));
    assert_eq!(kind_of("/more/new.txt"), Some(ChangeKind::Created));
    for hidden in [".hidden", "sub/.git/config", "link"] {
        let url = published.base.join(&format!("files/{hidden}")).unwrap();
        let answer = send(|| client().get(url.clone())).await;
        assert_eq!(answer.status().as_u16(), 404, "{hidden}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_and_come_with_their_folders() {
    let published = Folder::start(&["a.txt", "more/b.txt", "more/deep/c.txt"]).await;
    published
        .until_listed(&["a.txt", "more/b.txt", "more/deep/c.txt"])
        .await;
    let path = published.path();
    fs::rename(path.join("more"), path.join("other")).unwrap();
    published
        .until_listed(&["a.txt", "other/b.txt", "other/deep/c.txt"])
        .await;
    let elsewhere = published.folder.path().join("elsewhere");
    fs::rename(path.join("other/deep"), &elsewhere).unwrap();
    published.until_listed(&["a.txt", "other/b.txt"]).await;
    fs::rename(&elsewhere, path.join("deep")).unwrap();
    published
        .until_listed(&["a.txt", "deep/c.txt", "other/b.txt"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_become_another_kind_of_thing_is_deleted() {
    let published = Folder::start(&["a.txt", "b.txt", "sub/c.txt", "d.txt"]).await;
    published
        .until_listed(&["a.txt", "b.txt", "d.txt", "sub/c.txt"])
        .await;
    let path = published.path();
    for name in ["a.txt", "b.txt"] {
        fs::remove_file(path.join(name)).unwrap();
    }
    fs::remove_dir_all(path.join("sub")).unwrap();
    put(&path, "a.txt/new.txt", "in a folder");
    std::os::unix::fs::symlink("d.txt", path.join("b.txt")).unwrap();
    put(&path, "sub", "a file");
    published
        .until_listed(&["a.txt/new.txt", "d.txt", "sub"])
        .await;
}

/// A package without them would state that there are none.
#[tokio::test(flavor = "multi_thread")]
async fn package_is_not_made_without_its_files() {
    let published = Folder::start(&["a.txt", "manifest.xml"]).await;
    published.until_listed(&["a.txt", "manifest.xml"]).await;
    let dump = published.entries("resourcedump.xml").await.unwrap();
    let package = async || {
        let answer = send(|| client().get(dump[0].loc.clone())).await;
        (answer.status().as_u16(), answer.bytes().await.unwrap())
    };
    let elsewhere = published.folder.path().join("elsewhere");
    fs::rename(published.path(), &elsewhere).unwrap();
    fs::create_dir(published.path()).unwrap();
    let (status, text) = package().await;
    assert_eq!(status, 503, "{text:?}");
    fs::remove_dir(published.path()).unwrap();
    fs::rename(&elsewhere, published.path()).unwrap();
    let (status, bytes) = package().await;
    assert_eq!(status, 200);
    let zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    assert_eq!(zip.len(), 3);
    for other in [
        "resourcedump-1.zip",
        "resourcedump-00.zip",
        "resourcedump-+0.zip",
    ] {
        let url = dump[0].loc.join(other).unwrap();
        let answer = send(|| client().get(url.clone())).await;
        assert_eq!(answer.status().as_u16(), 404, "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_is_published_as_it_is_at_another_url() {
    let mut published = Folder::start(&["a.txt", "b.txt"]).await;
    published.until_listed(&["a.txt", "b.txt"]).await;
    published.stop().await;
    fs::remove_file(published.path().join("b.txt")).unwrap();
    let daemon = Daemon::start(published.config.clone()).await.unwrap();
    published.base = Url::parse(&format!("http://{}/", daemon.publish.unwrap())).unwrap();
    published.daemon = Some(daemon);
    published.until_listed(&["a.txt"]).await;
    put(&published.path(), "c.txt", "new");
    published.until_listed(&["a.txt", "c.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_of_a_time_before_1970_is_served() {
    let published = Folder::start(&["a.txt"]).await;
    let old = published.path().join("old.txt");
    fs::write(&old, "old").unwrap();
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(86_400 * 3650);
    let file = File::options().write(true).open(&old).unwrap();
    file.set_modified(before).unwrap();
    published.until_listed(&["a.txt", "old.txt"]).await;
    let url = published.base.join("files/old.txt").unwrap();
    let answer = send(|| client().get(url.clone())).await;
    assert!(!answer.headers().contains_key("last-modified"));
    assert_eq!(answer.text().await.unwrap(), "old");
}

#[tokio::test(flavor = "multi_thread")]
async fn file_that_is_replaced_by_one_of_the_same_length_and_time_is_another_one() {
    let published = Folder::start(&["a.txt"]).await;
    published.until_listed(&["a.txt"]).await;
    let path = published.path().join("a.txt");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let other = published.path().join(".other");
    fs::write(&other, "AS IT WAS AT FIRST").unwrap();
    File::options()
        .write(true)
        .open(&other)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    fs::rename(&other, &path).unwrap();
    eventually("updated", None, async || {
        let changes = published
            .entries("changelist-open.xml")
            .await
            .unwrap_or_default();
        let updated = changes
            .iter()
            .any(|entry| entry.md.change == Some(ChangeKind::Updated));
        if updated {
            Ok(())
        } else {
            Err(format!("{changes:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_that_is_empty_after_a_restart_deletes_nothing() {
    let mut published = Folder::start(&["a.txt", "b.txt"]).await;
    published.until_listed(&["a.txt", "b.txt"]).await;
    published.stop().await;
    let elsewhere = published.folder.path().join("elsewhere");
    fs::rename(published.path(), &elsewhere).unwrap();
    fs::create_dir(published.path()).unwrap();
    put(&published.path(), ".not-mounted", "");
    let base = published.base.clone();
    published.config.publish.listen = format!("127.0.0.1:{}", base.port().unwrap())
        .parse()
        .unwrap();
    published.daemon = Some(Daemon::start(published.config.clone()).await.unwrap());
    published.until_listed(&["a.txt", "b.txt"]).await;
    // Once there is a file, the folder is what it is. The test waits for what the system reports.
    put(&published.path(), "b.txt", "another one");
    published.until_listed(&["b.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn destination_follows_a_folder_by_push() {
    let published = Folder::start(&["a.txt"]).await;
    published.until_listed(&["a.txt"]).await;
    let destination = Destination::start(published.description(), |config| {
        config.sources[0].poll_interval = Duration::from_secs(86_400);
    })
    .await;
    destination
        .until("subscribed and in sync", |set| {
            set.state == "in-sync" && set.channels.iter().all(|channel| channel.state == "active")
        })
        .await;
    put(&published.path(), "b.txt", "pushed");
    let host = published.base.as_str().trim_start_matches("http://");
    let expected = format!("{host}files/b.txt");
    eventually("pushed", Some(destination.wakes()), async || {
        let found = files(&destination.config.sources[0].mirror);
        let is_there = found.get(&expected).is_some_and(|bytes| bytes == b"pushed");
        if is_there {
            Ok(())
        } else {
            Err(format!("{:?}", found.keys()))
        }
    })
    .await;
}

/// Ends a program when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Publishes a folder by a program that may read only what the modes of files allow; its log is a file beside that.
fn publish(folder: &Path, listen: SocketAddr) -> Running {
    let mut command = Command::new("/bin/sh");
    // Root may read everything by these capabilities.
    let run = "[ \"$(id -u)\" != 0 ] || set -- setpriv --bounding-set=-dac_override,-dac_read_search \"$@\"; exec \"$@\"";
    command.args(["-c", run, "sh", env!("CARGO_BIN_EXE_resyncd"), "publish"]);
    command.arg(folder.join("files"));
    command.arg("--state").arg(folder.join("state"));
    command.args(["--listen", &listen.to_string()]);
    let log = File::create(folder.join("log")).unwrap();
    Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_reported_and_all_else_is_published() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("files");
    for name in ["a.txt", "closed.txt", "closed/inside.txt", "z/b.txt"] {
        put(&path, name, "as it was at first");
    }
    let listen = free_address();
    let published = Folder {
        config: Config::new(folder.path().join("state"), Vec::new()),
        folder,
        daemon: None,
        base: Url::parse(&format!("http://{listen}/")).unwrap(),
    };
    let listening = || {
        eventually("it listens", None, async || {
            let connected = tokio::net::TcpStream::connect(listen).await;
            connected.map(drop).map_err(|error| error.to_string())
        })
    };
    let running = publish(published.folder.path(), listen);
    listening().await;
    let all = ["a.txt", "closed.txt", "closed/inside.txt", "z/b.txt"];
    published.until_listed(&all).await;
    drop(running);

    let set_mode = |name: &str, mode| {
        fs::set_permissions(path.join(name), Permissions::from_mode(mode)).unwrap();
    };
    put(&path, "z/c.txt", "new");
    fs::remove_file(path.join("a.txt")).unwrap();
    set_mode("closed.txt", 0o000);
    set_mode("closed", 0o000);
    let running = publish(published.folder.path(), listen);
    listening().await;
    let expected = ["closed.txt", "closed/inside.txt", "z/b.txt", "z/c.txt"];
    published.until_listed(&expected).await;
    let log = fs::read_to_string(published.folder.path().join("log")).unwrap();
    let line = log.lines().find(|line| line.contains("folder-unreadable"));
    assert!(line.is_some_and(|line| line.contains("number=2")), "{log}");
    drop(running);
    // So that the folder can be removed.
    set_mode("closed", 0o755);
}
