//! A Source that makes the daemon send requests to hosts of others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resourcesync::Link;
use resyncd::config::Filter;
use resyncd::status::SetStatus;
use resyncd_core::{HubUri, LinkRules};
use resyncd_testkit::{ChannelHub, HubOptions, SampleOptions, SampleSource, Submission};
use tokio::net::TcpListener;
use url::Url;

use crate::hostile::hubs::site_of_somebody_else;
use crate::support::process::{Home, preloadable};
use crate::support::site::entry;
use crate::support::{NAME, Rig, SET, client, eventually, resources, was_polled_since};

/// What an entry for a Capability List states.
const CAPABILITY_LIST: &str = r#"<rs:md capability="capabilitylist"/>"#;

/// A Source whose hub has another port, and so counts as somebody else's.
async fn source() -> SampleSource {
    let options = SampleOptions {
        hub: ChannelHub::Own(HubOptions::default()),
        ..resources(3)
    };
    SampleSource::start(options).await.unwrap()
}

/// The text of a document.
async fn text_of(uri: &Url) -> String {
    let answer = client().get(uri.clone()).send().await.unwrap();
    assert!(answer.status().is_success(), "{uri}: {}", answer.status());
    answer.text().await.unwrap()
}

/// Adds entries to a document of the Source.
async fn add_entries(source: &SampleSource, uri: &Url, added: &str) {
    let text = text_of(uri).await;
    let text = text.replace("</urlset>", &format!("{added}</urlset>"));
    source.put_document(uri.path(), "application/xml", text);
}

fn description_of(source: &SampleSource) -> Url {
    source.base().join("/.well-known/resourcesync").unwrap()
}

/// Adds so many channels for change notifications, each with a topic and the hub of its own, to the Capability List.
async fn advertise_more_channels(source: &SampleSource, more: usize) {
    let list = source.capability_list(SET);
    let text = text_of(&list).await;
    let entries = text.split_inclusive("</url>");
    let channel = entries
        .filter(|entry| entry.contains("<loc>") && entry.contains("rel=\"hub\""))
        .map(|entry| &entry[entry.rfind("<url>").unwrap()..])
        .find(|entry| entry.contains("\"change-notification\""))
        .unwrap();
    let added: String = (0..more)
        .map(|number| channel.replace("</loc>", &format!("/{number}</loc>")))
        .collect();
    add_entries(source, &list, &added).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_channel_of_each_kind_is_subscribed_to() {
    const MORE: usize = 200;
    let source = source().await;
    advertise_more_channels(&source, MORE).await;
    let rig = Rig::follow(source, |_| {}).await;
    let set = rig
        .until("subscribed, with a notice", |set| {
            let is_active = set.channels.iter().all(|channel| channel.state == "active");
            // The second one is stored after the first, which may be active by then.
            is_active && set.channels.len() == 2 && !set.notices.is_empty()
        })
        .await;
    let notice = set.notices.iter().find(|it| it.code == "surplus-channels");
    assert_eq!(notice.map(|it| it.count), Some(MORE as u64));
    // A poll changes nothing.
    rig.idle().await;
    let before = rig.set().await;
    rig.operator.poll(NAME).await;
    rig.until("polled", |set| {
        was_polled_since(&before, set, &rig.config.sources[0])
    })
    .await;
    rig.settled().await;
    assert_eq!(rig.hub().counts().requested, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_the_host_of_somebody_else_are_limited() {
    let rig = Rig::follow(source().await, |config| {
        // One at once, and one more in an hour.
        config.limits.third_party_requests = 2;
    })
    .await;
    let set = rig
        .until("one request for two channels", |set| {
            let limited = |code: &str| code == "third-party-limit";
            let mut errors = set
                .channels
                .iter()
                .filter_map(|channel| channel.error.as_ref());
            let is_limited = errors.any(|error| limited(&error.code));
            let is_active = set.channels.iter().any(|channel| channel.state == "active");
            is_limited && is_active && set.state == "in-sync"
        })
        .await;
    assert_eq!(set.channels.len(), 2);
    assert_eq!(rig.hub().counts().requested, 1);
    // The documents and resources are on the Source's own host.
    rig.source.update(SET, "r0001.txt", "polled");
    rig.operator.poll(NAME).await;
    rig.until_mirrored().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_that_the_configuration_names_is_not_limited() {
    let source = source().await;
    let hub = source.hub().unwrap().uri().clone();
    let rig = Rig::follow(source, |config| {
        config.limits.third_party_requests = 2;
        config.sources[0].hub = Some(hub);
    })
    .await;
    rig.settled().await;
    assert!(rig.hub().counts().requested >= 2);
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test reports what it can't check")]
async fn names_that_resolve_to_one_address_share_one_limit() {
    const NAMES: usize = 40;
    const MOST: usize = 10;
    let (elsewhere, requests) = site_of_somebody_else().await;
    let port = elsewhere.url("/").port().unwrap();
    let options = SampleOptions {
        hub: ChannelHub::None,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let of_name = |number| format!("http://h{number}.example:{port}/capabilities.xml");
    let sets: String = (0..NAMES)
        .map(|number| entry(&of_name(number), CAPABILITY_LIST))
        .collect();
    add_entries(&source, &description_of(&source), &sets).await;
    let limits = format!("[limits]\nthird_party_requests = {MOST}");
    let home = Home::new(&source.url(), &limits);
    let library = match preloadable("tests/hostile/one_address.c", home.folder()) {
        Ok(library) => library,
        Err(why) => return println!("SKIPPED, no name was resolved: {why}"),
    };
    let _running = home.run_with([("LD_PRELOAD", &library)]);
    let status = home
        .until_status("the sets at every name were tried", |status| {
            let sets = status.sources.iter().flat_map(|source| &source.sets);
            let tried = sets.filter(|set| set.error.is_some());
            tried.count() == NAMES
        })
        .await;
    let received = requests.load(Ordering::SeqCst);
    assert!((1..=MOST).contains(&received), "{received} requests");
    let errors = status.sources[0]
        .sets
        .iter()
        .filter_map(|set| set.error.as_ref());
    let limited = errors.filter(|error| error.code == "third-party-limit");
    assert!(limited.count() >= NAMES - received);
    home.until_mirrored(&source).await;
}

/// A server at a port of another protocol, and the number of its connections.
async fn server_of_another_protocol() -> (SocketAddr, Arc<AtomicUsize>) {
    // Other programs may use some of them.
    for port in [10080, 6697, 6679, 6669, 6668, 6667, 6666, 6665, 6566, 4190] {
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await else {
            continue;
        };
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        return (address, connections);
    }
    panic!("no port is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_other_protocols_get_no_connection() {
    let (elsewhere, connections) = server_of_another_protocol().await;
    let url = |path: &str| Url::parse(&format!("http://{elsewhere}{path}")).unwrap();
    let options = SampleOptions {
        hub: ChannelHub::External {
            hub: HubUri::try_from(url("/hub")).unwrap(),
            submission: Submission::Payload,
        },
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let record = Link::new("describedby", url("/record.xml"));
    source.set_links(SET, "r0001.txt", vec![record]);
    source.refresh_resource_list(SET);
    let list = source.document_uri(SET, "resourcelist.xml");
    add_entries(&source, &list, &entry(url("/resource").as_str(), "")).await;
    let set = entry(url("/capabilities.xml").as_str(), CAPABILITY_LIST);
    add_entries(&source, &description_of(&source), &set).await;
    let rig = Rig::follow(source, |config| {
        let links = LinkRules::new(true, Vec::new());
        config.sources[0].filter = Filter::everything().following(links);
    })
    .await;
    let sets = eventually("every place was tried", Some(rig.wakes()), async || {
        let sets = rig.operator.status().await.sources.remove(0).sets;
        assert_eq!(connections.load(Ordering::SeqCst), 0, "connections");
        let is_tried = |set: &SetStatus| {
            let mut hubs = set.channels.iter();
            set.error.is_some() && hubs.all(|channel| channel.error.is_some())
        };
        let failed: u64 = sets.iter().map(|set| set.failed).sum();
        if sets.len() == 2 && sets.iter().all(is_tried) && failed == 2 {
            Ok(sets)
        } else {
            Err(format!("{sets:#?}"))
        }
    })
    .await;
    let of_hubs = sets.iter().flat_map(|set| &set.channels);
    let of_hubs = of_hubs.filter_map(|channel| channel.error.as_ref());
    let of_sets = sets.iter().filter_map(|set| set.error.as_ref());
    let codes: Vec<&str> = of_sets
        .chain(of_hubs)
        .map(|error| error.code.as_str())
        .collect();
    assert_eq!(codes, ["forbidden-port"; 4]);
    rig.until_mirrored().await;
}
