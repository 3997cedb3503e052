//! The files of malicious URIs, and symlinks that another process has planted in the mirror.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use resourcesync::{Capability, Entry, Head, Root, write_document};
use resyncd_core::ResourceUri;
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};
use url::Url;

use crate::support::process::Home;
use crate::support::{NAME, Rig, SET, eventually, files, resources};

const LIST: &str = "/set1/resourcelist.xml";

/// Paths and queries of different URIs.
fn malicious() -> Vec<String> {
    let mut malicious: Vec<String> = [
        "/e/..%2f..%2fescape",
        "/e/%2e%2e/%2e%2e/%2E%2e/up",
        "/e/%2e%2e%2fhalf",
        "/e/..;/semicolon",
        "/e/%5c..%5cback",
        "/e/%252e%252e/twice",
        "/e/%00",
        "/e/a%00b",
        "/e/a%0Ab",
        "/e//double",
        "/e/double",
        "/e///",
        "//e",
        "/e/a",
        "/e/a/b",
        "/e/a/b/c",
        "/e/x/y/z",
        "/e/x/y",
        "/e/x",
        "/e/dir",
        "/e/dir/",
        "/e/dir/%index",
        "/e/dir/%index/x",
        "/%index",
        "/e/%made/00/x",
        "/%made/00/x",
        "/%made",
        "/.resyncd",
        "/.resyncd/lock",
        "/.resyncd/work/0",
        "/e/.resyncd",
        "/e/q",
        "/e/q?",
        "/e/q?x=1",
        "/e/q%3Fx=1",
        "/e/q?x=/../../../y",
        "/e/q?x=..%2F..%2Fy",
        "/e/Case",
        "/e/case",
        "/e/CASE",
        "/e/%C3%A9",
        "/e/e%CC%81",
        "/e/%E9",
        "/e/dot",
        "/e/dot.",
        "/e/dot..",
        "/e/dot%20",
        "/e/%20dot",
        "/e/...",
        "/e/CON",
        "/e/con",
        "/e/nul.txt",
        "/e/COM1",
        "/e/-rf",
        "/e/~root",
        "/e/$HOME",
        "/e/%25",
        "/e/%252F",
        "/e/%C0%AF",
        "/e/%E2%80%AEtxt",
        "/e/a:b",
        "/e/*",
    ]
    .map(str::to_owned)
    .into();
    for length in [254, 255, 256, 300] {
        malicious.push(format!("/e/{}", "n".repeat(length)));
    }
    malicious.push(format!("/e/q?{}", "n".repeat(300)));
    malicious.push(format!("/e{}", format!("/{}", "n".repeat(250)).repeat(16)));
    malicious.push(format!("/e/{}deep", "d/".repeat(1400)));
    malicious
}

fn publish_list(rig: &Rig, uris: &[&Url]) {
    let mut head = Head::new(Root::Urlset, Capability::ResourceList);
    head.md.at = Some(rig.source.boundary());
    let entries: Vec<Entry> = uris.iter().map(|&uri| Entry::new(uri.clone())).collect();
    let list = write_document(&head, &entries);
    rig.source.put_document(LIST, "application/xml", list);
}

#[tokio::test(flavor = "multi_thread")]
async fn malicious_uris_are_stored_as_separate_files_inside_the_mirror() {
    let options = SampleOptions {
        hub: ChannelHub::None,
        change_list: false,
        ..resources(1)
    };
    let rig = Rig::start_with(options, |config| config.sources[0].max_delete = 1.0).await;
    rig.settled().await;
    let mut uris = Vec::new();
    for malicious in malicious() {
        let text = format!(
            "{}{malicious}",
            rig.source.base().as_str().trim_end_matches('/')
        );
        let uri = ResourceUri::parse(&text).unwrap().url().clone();
        let path = &uri[url::Position::BeforePath..];
        let body = format!("bytes of {path}");
        rig.source.put_document(path, "text/plain", body);
        assert!(!uris.contains(&uri), "{uri}");
        uris.push(uri);
    }
    publish_list(&rig, &uris.iter().collect::<Vec<_>>());
    rig.operator.poll(NAME).await;
    rig.until("all are mirrored", |set| {
        set.resources == uris.len() as u64 && set.pending == 0 && set.state == "in-sync"
    })
    .await;

    let mut expected = BTreeMap::new();
    for uri in &uris {
        let known = rig.operator.resource(uri.as_str()).await.unwrap();
        let path = known["path"].as_str().unwrap().to_owned();
        assert!(
            path.split('/').all(|name| (1..256).contains(&name.len())),
            "{path}"
        );
        let body = format!("bytes of {}", &uri[url::Position::BeforePath..]);
        let other = expected.insert(path, body.into_bytes());
        assert_eq!(other, None, "{uri} shares its path");
    }
    let mirror = &rig.config.sources[0].mirror;
    assert!(files(mirror) == expected, "exactly these files, complete");
    let own: Vec<_> = fs::read_dir(mirror.join(".resyncd")).unwrap().collect();
    assert!(own.len() <= 4, "{own:?}");
    assert_eq!(fs::read_dir(mirror.parent().unwrap()).unwrap().count(), 2);

    // Every other resource is removed from the list; exactly their files are removed.
    let (remaining, removed): (Vec<_>, Vec<_>) =
        uris.iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let remaining: Vec<&Url> = remaining.into_iter().map(|(_, uri)| uri).collect();
    publish_list(&rig, &remaining);
    rig.operator.poll(NAME).await;
    rig.until("half remain", |set| {
        set.resources == remaining.len() as u64 && set.pending == 0 && set.state == "in-sync"
    })
    .await;
    for (_, uri) in removed {
        let known = rig.operator.resource(uri.as_str()).await.unwrap();
        assert_eq!(known["deleted"], true, "{uri}");
        let body = format!("bytes of {}", &uri[url::Position::BeforePath..]);
        expected.retain(|_, bytes| *bytes != body.as_bytes());
    }
    assert_eq!(expected.len(), remaining.len());
    assert!(files(mirror) == expected, "exactly the remaining files");
}

/// The number of files and folders below a folder.
fn inodes(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let is_folder = entry.file_type().unwrap().is_dir();
            1 + if is_folder { inodes(&entry.path()) } else { 0 }
        })
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_paths_take_few_inodes() {
    let rig = Rig::start(SampleOptions {
        hub: ChannelHub::None,
        change_list: false,
        ..resources(1)
    })
    .await;
    rig.settled().await;
    // None of their folders is that of another one.
    let number = 300;
    let uris = (0..number).map(|n| {
        let path = format!("/{n}/{}a", "d/".repeat(22 + n % 100));
        rig.source.put_document(&path, "text/plain", "x");
        rig.source.base().join(&path).unwrap()
    });
    let uris: Vec<Url> = uris.collect();
    publish_list(&rig, &uris.iter().collect::<Vec<_>>());
    rig.operator.poll(NAME).await;
    rig.until("all are mirrored", |set| {
        set.resources == number as u64 && set.pending == 0 && set.state == "in-sync"
    })
    .await;
    let mirror = &rig.config.sources[0].mirror;
    assert_eq!(files(mirror).len(), number);
    let inodes = inodes(mirror);
    assert!(inodes < 3 * number, "{inodes} files and folders");
}

/// A file outside the mirror that must stay as it is.
struct Outside {
    folder: PathBuf,
    file: PathBuf,
}

impl Outside {
    fn beside(home: &Home) -> Self {
        let folder = home.folder().join("outside");
        fs::create_dir(&folder).unwrap();
        let file = folder.join("r0000.txt");
        fs::write(&file, "outside").unwrap();
        Self { folder, file }
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!(fs::read(&self.file).unwrap(), b"outside");
        assert_eq!(fs::read_dir(&self.folder).unwrap().count(), 1);
    }
}

/// Symlinks in the place of a file and a folder, dangling and to the outside: neither the daemon nor an audit follows or replaces
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn planted_symlinks_are_neither_followed_nor_replaced() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    source.create(SET, "folder/a.txt", "one");
    source.create(SET, "folder/b.txt", "one");
    source.refresh_resource_list(SET);
    let home = Home::new(&source.url(), "");
    let daemon = home.run();
    home.settled(&source).await;
    let outside = Outside::beside(&home);
    let base = home.mirror.join(source.base().authority()).join("set1/res");
    fs::remove_file(base.join("r0000.txt")).unwrap();
    symlink(&outside.file, base.join("r0000.txt")).unwrap();
    fs::remove_file(base.join("r0001.txt")).unwrap();
    symlink(outside.folder.join("nothing"), base.join("r0001.txt")).unwrap();
    fs::rename(base.join("folder"), base.join("moved")).unwrap();
    symlink(&outside.folder, base.join("folder")).unwrap();

    // New versions are published at other paths; removing through a symlink fails.
    for name in ["r0000.txt", "r0001.txt", "folder/a.txt"] {
        source.update(SET, name, format!("new {name}"));
    }
    source.delete(SET, "folder/b.txt");
    source.create(SET, "folder/c.txt", "new folder/c.txt");
    source.notify_and_publish(SET).await.unwrap();
    let mirror = home.mirror.canonicalize().unwrap();
    for name in ["r0000.txt", "r0001.txt", "folder/a.txt", "folder/c.txt"] {
        let uri = source.resource_uri(SET, name);
        eventually(name, None, async || {
            let known = home.operator.resource(uri.as_str()).await;
            let path = known.map(|known| known["path"].as_str().unwrap_or_default().to_owned());
            let path = home.mirror.join(path.ok_or("not known")?);
            let is_inside = path
                .canonicalize()
                .is_ok_and(|path| path.starts_with(&mirror));
            let text = fs::read_to_string(&path).unwrap_or_default();
            if is_inside && text == format!("new {name}") {
                Ok(())
            } else {
                Err(format!("{path:?} holds {text:?}"))
            }
        })
        .await;
    }
    let failed = home.until("the deletion has failed", |set| set.failed == 1);
    assert_eq!(failed.await.error.unwrap().code, "path-blocked");
    outside.assert_untouched();
    daemon.stop().await;

    let audit = home.run_command(&["audit"]);
    assert_eq!(audit.status.code(), Some(1), "{audit:?}");
    outside.assert_untouched();
    home.run_command(&["audit", "--repair"]);
    outside.assert_untouched();
    for link in ["r0000.txt", "r0001.txt", "folder"] {
        assert!(base.join(link).is_symlink(), "{link}");
    }
}
