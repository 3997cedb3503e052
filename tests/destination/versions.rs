//! Versions of resources: each one that the Source announces is stored (section 14.6).

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::IntoResponse;
use parking_lot::Mutex;
use resourcesync::{Entry, Link, SourceTime};
use resyncd::config::Config;
use resyncd::status::{ResourceVersion, VersionsStatus};
use resyncd_core::version_name;
use resyncd_testkit::{ChannelHub, Fault, SampleOptions};
use url::Url;

use super::duplicates::{announce, update};
use crate::support::{Files, NAME, Rig, SET, eventually, files, path_of, resources};

const RESOURCE: &str = "r0001.txt";
const OWN: &str = "/set1/res/r0001.txt";

fn folder(rig: &Rig) -> PathBuf {
    rig.config.sources[0].versions.as_deref().unwrap().into()
}

/// Has versions stored beside the mirror.
fn keep(config: &mut Config) {
    let source = &mut config.sources[0];
    source.versions = Some(source.mirror.with_file_name("versions").into());
}

/// A Source that is polled on request, whose versions are stored.
async fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options, |config| {
        keep(config);
        change(config);
    })
    .await;
    rig.idle().await;
    // What was published before the folder was open is stored after it. What is replaced before that is missed.
    until_counted(&rig, 0, 0).await;
    rig
}

async fn rig() -> Rig {
    rig_with(|_| {}).await
}

/// The path of a version of a resource, relative to the folder.
fn path_in(rig: &Rig, name: &str, at: SourceTime) -> String {
    let resource = path_of(&rig.source.resource_uri(SET, name));
    format!("{resource}/{}", version_name(at).unwrap())
}

/// Waits until a version has these bytes.
async fn until_stored(rig: &Rig, name: &str, at: SourceTime, bytes: &str) {
    let path = folder(rig).join(path_in(rig, name, at));
    let what = format!("{} is stored", path.display());
    eventually(&what, Some(rig.wakes()), async || {
        match std::fs::read(&path) {
            Ok(found) if found == bytes.as_bytes() => Ok(()),
            found => Err(format!("{found:?}; {:#?}", versions(rig, name).await)),
        }
    })
    .await;
}

/// The versions of a resource, as the daemon states them.
async fn versions(rig: &Rig, name: &str) -> Vec<ResourceVersion> {
    let uri = rig.uri(name);
    let (status, body) = rig.operator.get(&format!("/versions?uri={uri}")).await;
    assert_eq!(status, 200, "{body}");
    let lines = body.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn status(rig: &Rig) -> VersionsStatus {
    let status = rig.operator.status().await;
    status.sources[0].versions.clone().unwrap()
}

/// Waits until so many versions are pending and given up.
async fn until_counted(rig: &Rig, pending: u64, failed: u64) -> VersionsStatus {
    eventually("versions are counted", Some(rig.wakes()), async || {
        let found = status(rig).await;
        if (found.pending, found.failed) == (pending, failed) {
            Ok(found)
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await
}

/// Waits until a version is shown with this code.
async fn until_failing(rig: &Rig, name: &str, code: &str) -> ResourceVersion {
    eventually(code, Some(rig.wakes()), async || {
        let found = versions(rig, name).await;
        let has_code = |it: &&ResourceVersion| it.error.as_ref().is_some_and(|it| it.code == code);
        let failing = found.iter().find(has_code).cloned();
        failing.ok_or(format!("{found:#?}"))
    })
    .await
}

/// Serves a memento on the Source's own host, and adds a link to it to the entry.
fn put_memento(rig: &Rig, entry: &mut Entry, path: &str, bytes: &str) {
    rig.source
        .put_document(path, "text/plain", bytes.to_owned());
    let href = rig.source.base().join(path).unwrap();
    let mut link = Link::new("memento", href);
    link.content = entry.md.content.clone();
    entry.links.push(link);
}

/// What an archive answers to a path and an `Accept-Datetime`: status, headers and body.
type Answer = (u16, Vec<(&'static str, String)>, String);

/// A path that was requested, with its `Accept-Datetime`.
type Asked = (String, Option<String>);

/// A server of versions.
struct Archive {
    url: Url,
    requests: Arc<Mutex<Vec<Asked>>>,
}

impl Archive {
    async fn start(answer: impl Fn(&str, Option<&str>) -> Answer + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (of_server, answer) = (Arc::clone(&requests), Arc::new(answer));
        let router = Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
            let (requests, answer) = (Arc::clone(&of_server), Arc::clone(&answer));
            async move {
                let datetime = headers.get("accept-datetime");
                let datetime = datetime.map(|value| value.to_str().unwrap().to_owned());
                let (status, stated, body) = answer(uri.path(), datetime.as_deref());
                requests.lock().push((uri.path().to_owned(), datetime));
                let mut response = body.into_response();
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                for (name, value) in stated {
                    response.headers_mut().insert(name, value.parse().unwrap());
                }
                response
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests }
    }

    fn link(&self, rel: &str, path: &str) -> Link {
        Link::new(rel, self.url.join(path).unwrap())
    }

    /// How often a path was requested.
    fn hits(&self, path: &str) -> usize {
        let requests = self.requests.lock();
        requests.iter().filter(|(asked, _)| asked == path).count()
    }
}

fn http_date(at: SourceTime) -> String {
    resyncd_fetch::format_http_date(at).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn baseline_push_and_poll_store_what_they_announce() {
    let rig = Rig::start_with(resources(3), |config| {
        keep(config);
        config.sources[0].trust_hub = Some(true);
    })
    .await;
    rig.idle().await;
    until_counted(&rig, 0, 0).await;
    let stored = files(&folder(&rig));
    assert_eq!(stored.len(), 3, "{:?}", stored.keys());
    let state = rig.source.state(SET);
    for (path, bytes) in &stored {
        let uri = format!("http://{}", path.rsplit_once('/').unwrap().0);
        assert_eq!(state[&uri], bytes, "{uri}");
    }
    // Each is the mirror's file.
    let inode = |path: PathBuf| std::fs::metadata(path).unwrap().ino();
    for path in stored.keys() {
        let mirrored = rig.config.sources[0]
            .mirror
            .join(path.rsplit_once('/').unwrap().0);
        assert_eq!(inode(mirrored), inode(folder(&rig).join(path)), "{path}");
    }

    let pushed = rig.source.update(SET, RESOURCE, "pushed");
    rig.source.notify_and_publish(SET).await.unwrap();
    until_stored(&rig, RESOURCE, pushed, "pushed").await;
    rig.until_holds(RESOURCE, "pushed").await;

    let polled = rig.source.update(SET, RESOURCE, "polled");
    let created = rig.source.create(SET, "new.txt", "new");
    rig.operator.poll(NAME).await;
    until_stored(&rig, RESOURCE, polled, "polled").await;
    until_stored(&rig, "new.txt", created, "new").await;
    // The files are in place before they are recorded.
    rig.settled().await;
    until_counted(&rig, 0, 0).await;
    // The earlier ones are as they were.
    let now = files(&folder(&rig));
    let unchanged: Files = stored
        .into_iter()
        .filter(|(path, bytes)| now.get(path) == Some(bytes))
        .collect();
    assert_eq!((unchanged.len(), now.len()), (3, 6));
    let found = versions(&rig, RESOURCE).await;
    let times: Vec<&str> = found.iter().filter_map(|it| it.at.as_deref()).collect();
    assert_eq!(times[1..], [pushed.to_string(), polled.to_string()]);
    assert!(
        found
            .iter()
            .all(|it| it.state == "stored" && it.error.is_none())
    );
    assert_eq!(found[2].path, Some(path_in(&rig, RESOURCE, polled)));
    assert_eq!(found[2].length, Some(6));

    // A resource that is deleted leaves its versions.
    rig.source.delete(SET, RESOURCE);
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
    assert_eq!(files(&folder(&rig)), now);
    assert_eq!(versions(&rig, RESOURCE).await, found);
    until_counted(&rig, 0, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_stored_unless_it_is_configured() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let status = rig.operator.status().await;
    assert_eq!(status.sources[0].versions, None);
    assert!(versions(&rig, RESOURCE).await.is_empty());
    let (status, body) = rig
        .operator
        .post(&format!(
            "/sources/{NAME}/backfill?uri={}",
            rig.uri(RESOURCE)
        ))
        .await;
    assert_eq!(status, 409, "{body}");
    assert!(body.contains("no-versions"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_a_change_list_is_stored_from_its_memento() {
    let rig = rig().await;
    let (mut entries, mut times) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let bytes = format!("version {number}");
        let mut entry = update(&rig, RESOURCE, &bytes);
        put_memento(&rig, &mut entry, &format!("/m/{number}"), &bytes);
        times.push(entry.lastmod.unwrap());
        entries.push(entry);
        rig.source.advance(std::time::Duration::from_secs(1));
    }
    announce(&rig, &entries).await;
    for (number, at) in (1..=3).zip(times) {
        until_stored(&rig, RESOURCE, at, &format!("version {number}")).await;
    }
    rig.until_mirrored().await;
    // The last one is what the mirror has.
    assert_eq!(rig.source.hits("/m/3"), 0);
    assert_eq!((rig.source.hits("/m/1"), rig.source.hits("/m/2")), (1, 1));
    until_counted(&rig, 0, 0).await;
    // A list that states the same again changes nothing.
    let stored = files(&folder(&rig));
    announce(&rig, &entries).await;
    rig.until("polled", |set| set.state == "in-sync" && set.pending == 0)
        .await;
    assert_eq!(files(&folder(&rig)), stored);
    assert_eq!((rig.source.hits("/m/1"), rig.source.hits("/m/2")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_was_replaced_before_it_was_fetched_is_stored() {
    let rig = rig().await;
    rig.source.fail(OWN, Fault::Status(503), usize::MAX);
    let mut first = update(&rig, RESOURCE, "first");
    put_memento(&rig, &mut first, "/m/1", "first");
    // Until the second one is announced, nothing serves it.
    rig.source.fail("/m/1", Fault::Status(503), usize::MAX);
    announce(&rig, std::slice::from_ref(&first)).await;
    rig.until("pending", |set| set.pending == 1).await;
    rig.source.advance(std::time::Duration::from_secs(1));
    let second = update(&rig, RESOURCE, "second");
    let third = {
        rig.source.advance(std::time::Duration::from_secs(1));
        update(&rig, RESOURCE, "third")
    };
    announce(&rig, &[first.clone(), second.clone()]).await;
    eventually("the second is pending", Some(rig.wakes()), async || {
        let found = versions(&rig, RESOURCE).await;
        // The one of the baseline, and the first.
        (found.len() == 2)
            .then_some(())
            .ok_or(format!("{found:#?}"))
    })
    .await;
    announce(&rig, &[first.clone(), second.clone(), third.clone()]).await;
    // It has no place of its own.
    let missed = until_failing(&rig, RESOURCE, "version-missed").await;
    assert_eq!(missed.at, Some(second.lastmod.unwrap().to_string()));
    assert_eq!(missed.state, "failed");
    rig.source.heal("/m/1");
    rig.source.heal(OWN);
    until_stored(&rig, RESOURCE, first.lastmod.unwrap(), "first").await;
    until_stored(&rig, RESOURCE, third.lastmod.unwrap(), "third").await;
    let set = rig
        .until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
    assert!(set.error.is_none(), "{set:?}");
    let counted = until_counted(&rig, 0, 1).await;
    assert_eq!(counted.error.unwrap().code, "version-missed");
}

#[tokio::test(flavor = "multi_thread")]
async fn memento_is_fetched_where_the_uri_is_gone_or_serves_other_bytes() {
    let rig = rig().await;
    let mut entry = update(&rig, RESOURCE, "announced");
    put_memento(&rig, &mut entry, "/m/1", "announced");
    rig.source.fail(OWN, Fault::Status(404), usize::MAX);
    announce(&rig, &[entry.clone()]).await;
    rig.until_holds(RESOURCE, "announced").await;
    until_stored(&rig, RESOURCE, entry.lastmod.unwrap(), "announced").await;
    rig.source.heal(OWN);
    rig.source.advance(std::time::Duration::from_secs(1));
    let mut entry = update(&rig, RESOURCE, "announced again");
    put_memento(&rig, &mut entry, "/m/2", "announced again");
    rig.source.advance(std::time::Duration::from_secs(1));
    rig.source.update(SET, RESOURCE, "newer");
    announce(&rig, &[entry.clone()]).await;
    rig.until_holds(RESOURCE, "announced again").await;
    until_stored(&rig, RESOURCE, entry.lastmod.unwrap(), "announced again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_stored_as_a_timegate_has_it_at_its_time() {
    let rig = rig().await;
    // A TimeGate states seconds: the version before has another one.
    rig.source.advance(std::time::Duration::from_secs(2));
    let mut entry = update(&rig, RESOURCE, "newer by now");
    entry.md.content.hashes.clear();
    entry.md.content.length = None;
    let at = entry.lastmod.unwrap();
    let archive = Archive::start(move |path, _| match path {
        "/timegate" => (302, vec![("location", "/m/1".to_owned())], String::new()),
        "/m/1" => {
            let stated = vec![("memento-datetime", http_date(at))];
            (200, stated, "as it was".to_owned())
        }
        _ => (404, Vec::new(), String::new()),
    })
    .await;
    entry.links.push(archive.link("timegate", "/timegate"));
    announce(&rig, &[entry]).await;
    until_stored(&rig, RESOURCE, at, "as it was").await;
    rig.until_holds(RESOURCE, "newer by now").await;
    let asked = archive.requests.lock()[0].clone();
    assert_eq!(asked, ("/timegate".to_owned(), Some(http_date(at))));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_version_of_a_timegate_is_not_stored() {
    for (hours, code) in [
        (Some(1), "memento-too-late"),
        (Some(100_000), "memento-in-future"),
        (None, "no-memento"),
    ] {
        let rig = rig().await;
        let mut first = update(&rig, RESOURCE, "first");
        let at = first.lastmod.unwrap();
        let archive = Archive::start(move |_, _| {
            let later = |hours: i64| SourceTime::from_micros(at.micros() + hours * 3_600_000_000);
            let stated = hours.map(|hours| ("memento-datetime", http_date(later(hours))));
            (200, stated.into_iter().collect(), "first".to_owned())
        })
        .await;
        first.links.push(archive.link("timegate", "/timegate"));
        rig.source.advance(std::time::Duration::from_secs(1));
        let second = update(&rig, RESOURCE, "second");
        announce(&rig, &[first, second.clone()]).await;
        let failing = until_failing(&rig, RESOURCE, code).await;
        assert_eq!(failing.at, Some(at.to_string()), "{code}");
        assert!(failing.path.is_none(), "{code}");
        until_stored(&rig, RESOURCE, second.lastmod.unwrap(), "second").await;
        let set = rig.until("in sync", |set| set.state == "in-sync").await;
        assert!(set.error.is_none() && set.failed == 0, "{set:?}");
        // The next one uses the clock of its own.
        drop(rig);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_is_not_available_is_tried_again_after_a_restart() {
    let mut rig = rig().await;
    let mut first = update(&rig, RESOURCE, "first");
    put_memento(&rig, &mut first, "/m/1", "first");
    rig.source.fail("/m/1", Fault::Status(404), usize::MAX);
    rig.source.advance(std::time::Duration::from_secs(1));
    let second = update(&rig, RESOURCE, "second");
    announce(&rig, &[first.clone(), second]).await;
    rig.until_holds(RESOURCE, "second").await;
    let failing = until_failing(&rig, RESOURCE, "not-found").await;
    assert_eq!(failing.state, "pending");
    assert!(failing.next_try_at.is_some());
    let set = rig
        .until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
    assert!(set.error.is_none() && set.failed == 0, "{set:?}");
    rig.stop_daemon().await;
    // What a kill leaves.
    let work = folder(&rig).join(".resyncd/work");
    std::fs::write(work.join("7"), "incomple").unwrap();
    let published = folder(&rig).join(path_in(&rig, RESOURCE, first.lastmod.unwrap()));
    std::fs::write(&published, "first").unwrap();
    rig.start_daemon().await;
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/retry")).await;
    assert_eq!(status, 202, "{body}");
    until_counted(&rig, 0, 0).await;
    assert_eq!(std::fs::read(published).unwrap(), b"first");
    assert!(std::fs::read_dir(work).unwrap().next().is_none());
    assert!(
        versions(&rig, RESOURCE)
            .await
            .iter()
            .all(|it| it.state == "stored")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_a_time_map_are_stored_once() {
    let rig = rig().await;
    let day = |day: i64| SourceTime::from_micros((1_000_000_000 + 86_400 * day) * 1_000_000);
    let memento = move |number: i64| {
        format!(
            "</m/{number}>; rel=\"memento\"; datetime=\"{}\",\n",
            http_date(day(number))
        )
    };
    let archive = Archive::start(move |path, _| {
        let page = match path {
            "/map" => format!("</map>;rel=self,</map/2>;rel=\"timemap\",\n{}", memento(1)),
            "/map/2" => format!(
                "</map>;rel=\"timemap\",{}{}{}",
                memento(2),
                memento(3),
                memento(4)
            ),
            // It leads to another version.
            "/m/3" => {
                let stated = vec![("memento-datetime", http_date(day(2)))];
                return (200, stated, "version 2".to_owned());
            }
            "/m/4" => return (404, Vec::new(), String::new()),
            path => {
                let number: i64 = path.trim_start_matches("/m/").parse().unwrap();
                let stated = vec![("memento-datetime", http_date(day(number)))];
                return (200, stated, format!("version {number}"));
            }
        };
        (
            200,
            vec![("content-type", "application/link-format".to_owned())],
            page,
        )
    })
    .await;
    let backfill = format!("/sources/{NAME}/backfill?uri={}", rig.uri(RESOURCE));
    let (status, body) = rig.operator.post(&backfill).await;
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("no-time-map"), "{body}");
    let unknown = format!("/sources/{NAME}/backfill?uri={}", rig.uri("none"));
    let (status, body) = rig.operator.post(&unknown).await;
    assert_eq!(status, 404, "{body}");
    assert!(body.contains("unknown-resource"), "{body}");
    let mut entry = update(&rig, RESOURCE, "updated");
    entry.links.push(archive.link("timemap", "/map"));
    announce(&rig, &[entry]).await;
    rig.until_holds(RESOURCE, "updated").await;
    rig.until("in sync", |set| set.state == "in-sync" && set.pending == 0)
        .await;
    assert_eq!(
        archive.requests.lock().len(),
        0,
        "it is only read on request"
    );
    for _ in 0..2 {
        let (status, body) = rig.operator.post(&backfill).await;
        assert_eq!(status, 202, "{body}");
        until_stored(&rig, RESOURCE, day(1), "version 1").await;
        until_stored(&rig, RESOURCE, day(2), "version 2").await;
        until_failing(&rig, RESOURCE, "other-memento").await;
        until_failing(&rig, RESOURCE, "not-found").await;
        eventually("the TimeMap is read", Some(rig.wakes()), async || {
            let found = versions(&rig, RESOURCE).await;
            let missing = found.iter().filter(|it| it.state != "stored");
            if missing.clone().count() == 2 && missing.clone().all(|it| it.at.is_some()) {
                Ok(())
            } else {
                Err(format!("{found:#?}"))
            }
        })
        .await;
    }
    assert_eq!((archive.hits("/map"), archive.hits("/map/2")), (2, 2));
    assert_eq!((archive.hits("/m/1"), archive.hits("/m/2")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_hold_for_versions() {
    let archive = Archive::start(|_, _| (200, Vec::new(), "first".to_owned())).await;
    let rig = rig_with(|config| {
        let own = config.sources[0].url.clone();
        config.sources[0].hosts = vec![format!(
            "{}:{}",
            own.host_str().unwrap(),
            own.port().unwrap()
        )];
    })
    .await;
    let mut first = update(&rig, RESOURCE, "first");
    first.links.push(archive.link("memento", "/m/1"));
    rig.source.advance(std::time::Duration::from_secs(1));
    let second = update(&rig, RESOURCE, "second");
    announce(&rig, &[first, second]).await;
    let failing = until_failing(&rig, RESOURCE, "forbidden-host").await;
    assert_eq!(failing.state, "failed");
    assert_eq!(archive.requests.lock().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_that_cannot_be_used_does_not_stop_the_mirror() {
    let blocked = tempfile::NamedTempFile::new().unwrap();
    let path = blocked.path().to_owned();
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let rig = Rig::start_with(options, |config| {
        config.sources[0].versions = Some((&path).into());
    })
    .await;
    rig.settled().await;
    // It is opened beside the tasks.
    eventually("the attention", Some(rig.wakes()), async || {
        let attention = rig.operator.status().await.sources.remove(0).attention;
        let is_shown = attention.iter().any(|it| it.code == "versions-unusable");
        is_shown.then_some(()).ok_or(format!("{attention:?}"))
    })
    .await;
    let set = rig.set().await;
    assert!(set.state == "in-sync" && set.failed == 0, "{set:?}");
    until_counted(&rig, 3, 0).await;
    // Once it can be used, what the mirror has is stored.
    drop(blocked);
    until_counted(&rig, 0, 0).await;
    assert_eq!(files(&path).len(), 3);
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_of_the_same_time_do_not_replace_a_stored_version() {
    let rig = rig().await;
    let first = update(&rig, RESOURCE, "first");
    let at = first.lastmod.unwrap();
    announce(&rig, std::slice::from_ref(&first)).await;
    until_stored(&rig, RESOURCE, at, "first").await;
    rig.until_holds(RESOURCE, "first").await;
    // As a Source has it whose times are whole seconds.
    let mut second = update(&rig, RESOURCE, "second");
    (second.lastmod, second.md.datetime) = (first.lastmod, first.md.datetime);
    announce(&rig, &[second.clone()]).await;
    rig.until_holds(RESOURCE, "second").await;
    let conflicting = until_failing(&rig, RESOURCE, "version-conflict").await;
    assert_eq!(conflicting.state, "stored");
    assert_eq!(conflicting.at, Some(at.to_string()));
    until_stored(&rig, RESOURCE, at, "first").await;
    let counted = until_counted(&rig, 0, 1).await;
    assert_eq!(counted.error.unwrap().code, "version-conflict");
    // A person's retry does not replace it either.
    let (status, body) = rig.operator.post(&format!("/sources/{NAME}/retry")).await;
    assert_eq!(status, 202, "{body}");
    until_counted(&rig, 0, 1).await;
    until_stored(&rig, RESOURCE, at, "first").await;
}
