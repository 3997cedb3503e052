//! Patches that take more time than their length.

use resourcesync::{Algorithm, ContentInfo, Digest, Link};
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource};

use crate::support::process::Home;
use crate::support::{NAME, SET, change, change_list, eventually, resources, time};

const RESOURCE: &str = "r0001.txt";
const PATCH: &str = "/patch";
/// The processor time of the daemon, also on a slow machine and without optimization. Comparing all that is declared takes many times
/// as much.
const MOST_SECONDS: u64 = 20;

/// The processor time that a process has taken, in seconds.
fn processor_seconds(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    // Those of the process and of the kernel for it.
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    ticks / rustix::param::clock_ticks_per_second()
}

/// A patch whose content declares thousands of prefixes, each of which is compared with thousands of others.
fn costly_patch() -> String {
    let open = |depth| {
        let declared = (0..250).map(|n| format!(" xmlns:p{:03x}=\"u\"", depth * 16 + n));
        format!("<a{}>", declared.collect::<String>())
    };
    let open: String = (0..120).map(open).collect();
    let attributes: String = (0..250).map(|n| format!(" qqqq:a{n}=\"\"")).collect();
    let inner = format!("<b{attributes}/>").repeat(2000);
    let close = "</a>".repeat(120);
    format!("<diff><add sel=\"r\"><a xmlns:qqqq=\"q\">{open}{inner}{close}</a></add></diff>")
}

#[tokio::test(flavor = "multi_thread")]
async fn costly_patch_does_not_occupy_the_daemon() {
    let options = || SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options()).await.unwrap();
    let other = SampleSource::start(options()).await.unwrap();
    source.update(SET, RESOURCE, "<r/>");
    source.refresh_resource_list(SET);
    let more = format!(
        "[[source]]\nname = \"other\"\nurl = \"{}\"\nmirror = \"other\"\n",
        other.url()
    );
    let home = Home::new(&source.url(), &more);
    let running = home.run();
    let is_in_sync = |status: &resyncd::status::Status| {
        status.sources.iter().all(|source| {
            let mut sets = source.sets.iter();
            source.sets.len() == 1 && sets.all(|set| set.state == "in-sync" && set.pending == 0)
        })
    };
    let status = home.until_status("both are in sync", is_in_sync).await;
    let synced_until = status.sources[0].sets[0].synced_until.clone().unwrap();
    let before = processor_seconds(running.id());

    let (patch, whole) = (costly_patch(), "<r>whole</r>");
    source.put_document(PATCH, "application/xml-patch+xml", patch.clone());
    let at = source.update(SET, RESOURCE, whole);
    let mut entry = change(&source.resource_uri(SET, RESOURCE), at);
    let content = |media_type: &str, bytes: &str| ContentInfo {
        length: Some(bytes.len() as u64),
        media_type: Some(media_type.to_owned()),
        hashes: vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())],
    };
    entry.md.content = content("text/plain", whole);
    let mut link = Link::new(
        "http://www.openarchives.org/rs/terms/patch",
        source.base().join(PATCH).unwrap(),
    );
    link.content = content("application/xml-patch+xml", &patch);
    entry.links.push(link);
    let list = change_list(time(synced_until), None, None, &[entry]);
    source.put_document("/set1/changelist.xml", "application/xml", list);
    other.update(SET, RESOURCE, "beside it");
    for name in [NAME, "other"] {
        home.operator.poll(name).await;
    }

    let mirrored = |mirror: &str, source: &SampleSource| {
        let authority = source.base().authority().to_owned();
        let path = format!("{mirror}/{authority}/{SET}/res/{RESOURCE}");
        std::fs::read_to_string(home.folder().join(path)).unwrap_or_default()
    };
    eventually("both are mirrored", None, async || {
        let found = [mirrored("other", &other), mirrored("mirror", &source)];
        if found == ["beside it", whole] {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    let set = home
        .until("the patch is counted", |set| {
            set.patch_missed == 1 && set.state == "in-sync"
        })
        .await;
    assert_eq!((set.patched, source.hits(PATCH)), (0, 1));
    let taken = processor_seconds(running.id()) - before;
    assert!(taken < MOST_SECONDS, "{taken} seconds of processor time");
}
