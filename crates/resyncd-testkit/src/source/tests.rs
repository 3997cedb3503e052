//! Reads back what the sample Source publishes.

use reqwest::header::{ETAG, HeaderMap, IF_NONE_MATCH};
use resourcesync::{Document, Root, read_document};

use super::*;

mod dumps;

const START: i64 = 1_700_000_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);
/// Ends a test that would hang.
const LIMIT: Duration = Duration::from_secs(180);

async fn source(options: SampleOptions) -> SampleSource {
    let options = SampleOptions {
        start: Some(SourceTime::from_micros(START)),
        ..options
    };
    SampleSource::start(options).await.unwrap()
}

async fn get(uri: Url) -> (u16, HeaderMap, Bytes) {
    let client = serving::client(LIMIT).unwrap();
    let answer = client.get(uri).send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, answer.bytes().await.unwrap())
}

async fn read(uri: Url) -> Document {
    read_with_oddities(uri, "").await
}

/// Reads a document that must have these oddities, as the log writes them.
async fn read_with_oddities(uri: Url, oddities: &str) -> Document {
    let (status, headers, body) = get(uri.clone()).await;
    assert_eq!(status, 200, "{uri}");
    assert_eq!(headers["Content-Type"], "application/xml");
    let document = read_document(&body, &uri).unwrap();
    assert_eq!(document.oddities.to_string(), oddities);
    document
}

fn capability_of(entry: &Entry) -> &str {
    entry.md.capability.as_ref().unwrap().as_str()
}

#[tokio::test]
async fn source_description_leads_to_all_resources() {
    let source = source(SampleOptions::default()).await;
    let description = source.base().join(".well-known/resourcesync").unwrap();
    let described = read(description.clone()).await;
    assert_eq!(described.head.md.capability, Some(Capability::Description));
    let list = read(described.entries[0].loc.clone()).await;
    assert_eq!(list.head.link("up"), Some(&description));
    let offered: Vec<&str> = list.entries.iter().map(capability_of).collect();
    assert_eq!(
        offered,
        [
            "resourcelist",
            "changelist",
            "change-notification",
            "framework-notification"
        ]
    );
    let hub = source.hub().unwrap().uri().url();
    assert_eq!(&list.entries[2].links("hub").next().unwrap().href, hub);

    let resources = read(list.entries[0].loc.clone()).await;
    assert_eq!(resources.entries.len(), 3);
    let state = source.state("set1");
    for entry in &resources.entries {
        let (_, _, bytes) = get(entry.loc.clone()).await;
        assert_eq!(state[entry.loc.as_str()], bytes);
        assert_eq!(entry.md.content.length, Some(bytes.len() as u64));
        let digest = resourcesync::Digest::of(resourcesync::Algorithm::Sha256, &bytes);
        assert_eq!(entry.md.content.hashes, [digest]);
    }
}

#[tokio::test]
async fn consecutive_notifications_adjoin_and_have_their_changes() {
    for whole_seconds in [false, true] {
        let source = source(SampleOptions {
            whole_seconds,
            ..SampleOptions::default()
        })
        .await;
        let mut last_until = None;
        for round in 0..3 {
            source.advance(MINUTE / 7);
            source.create("set1", &format!("new{round}"), "1");
            source.update("set1", "r0000.txt", "2");
            source.delete("set1", &format!("new{round}"));
            let made = source.notify("set1");
            let document = read_document(&made.body, &source.base()).unwrap();
            assert!(document.oddities.is_empty());
            let (from, until) = (
                document.head.md.from.unwrap(),
                document.head.md.until.unwrap(),
            );
            assert_eq!(Interval::new(from, until), made.interval);
            assert!(
                last_until.is_none_or(|last| last == from),
                "no gap, no overlap"
            );
            assert_eq!(document.entries.len(), 3);
            for entry in &document.entries {
                let at = entry.changed_at().unwrap();
                assert!(from <= at && at < until);
                assert!(!whole_seconds || at.micros() % 1_000_000 == 0);
            }
            last_until = Some(until);
        }
    }
}

#[tokio::test]
async fn change_lists_freeze_roll_and_are_dropped() {
    let source = source(SampleOptions::default()).await;
    let uri = source.document_uri("set1", "changelist.xml");
    source.update("set1", "r0000.txt", "1");
    source.freeze_change_list("set1", true);
    source.update("set1", "r0000.txt", "2");
    assert_eq!(read(uri.clone()).await.entries.len(), 1);
    source.freeze_change_list("set1", false);
    let open = read(uri.clone()).await;
    assert_eq!((open.head.root, open.entries.len()), (Root::Urlset, 2));
    assert_eq!(open.head.md.until, None);

    let closed_at = source.roll_change_list("set1");
    source.delete("set1", "r0000.txt");
    let index = read(uri.clone()).await;
    assert_eq!(
        (index.head.root, index.entries.len()),
        (Root::Sitemapindex, 2)
    );
    let closed = read(index.entries[0].loc.clone()).await;
    assert_eq!(closed.head.md.until, Some(closed_at));
    assert_eq!(closed.head.link("index"), Some(&uri));
    assert_eq!(closed.entries.len(), 2);
    let open = read(index.entries[1].loc.clone()).await;
    assert_eq!(open.head.md.from, Some(closed_at));

    assert_eq!(source.drop_old_change_lists("set1", 0), 1);
    let index = read(uri).await;
    assert_eq!(index.entries.len(), 1);
    assert_eq!(index.head.md.from, Some(closed_at));
    assert_eq!(get(closed.head.link("index").unwrap().clone()).await.0, 200);
}

#[tokio::test]
async fn change_list_can_omit_attributes() {
    let source = source(SampleOptions::default()).await;
    source.update("set1", "r0000.txt", "1");
    source.update("set1", "r0001.txt", "1");
    source.set_change_list_form(
        "set1",
        ChangeListForm {
            from: false,
            datetime: false,
            newest_first: true,
            ..ChangeListForm::default()
        },
    );
    let uri = source.document_uri("set1", "changelist.xml");
    let list = read_with_oddities(uri, "no-from=1 newest-first=1").await;
    assert_eq!(list.head.md.from, None);
    assert!(list.entries.iter().all(|entry| entry.md.datetime.is_none()));
    assert!(list.entries[0].lastmod > list.entries[1].lastmod);
}

#[tokio::test]
async fn resource_list_is_a_snapshot_and_becomes_an_index() {
    let source = source(SampleOptions {
        entries_per_list: 2,
        ..SampleOptions::default()
    })
    .await;
    let uri = source.document_uri("set1", "resourcelist.xml");
    source.create("set1", "new.txt", "new");
    let before = read(uri.clone()).await;
    assert_eq!(before.head.root, Root::Sitemapindex);
    let at = source.refresh_resource_list("set1");
    let index = read(uri).await;
    assert_eq!(index.head.md.at, Some(at));
    let mut found = 0;
    for list in &index.entries {
        found += read(list.loc.clone()).await.entries.len();
    }
    assert_eq!(found, 4);
}

#[tokio::test]
async fn topic_links_to_itself_and_its_hub_and_serves_the_latest_notification() {
    let source = source(SampleOptions::default()).await;
    let topic = source.topic("set1", &Capability::ChangeNotification);
    let (status, headers, body) = get(topic.url().clone()).await;
    assert_eq!((status, body.len()), (200, 0));
    assert_eq!(headers["Content-Length"], "0");
    assert_eq!(headers["Content-Type"], "application/xml");
    let hub = source.hub().unwrap().uri();
    let links = format!("<{topic}>; rel=\"self\", <{hub}>; rel=\"hub\"");
    assert_eq!(headers["Link"], links.as_str());
    source.update("set1", "r0000.txt", "1");
    let lost = source.notify("set1");
    assert_eq!(get(topic.url().clone()).await.2.len(), 0);
    source.publish(&lost).await.unwrap();
    assert_eq!(get(topic.url().clone()).await.2, lost.body);
    source.remove_channel("set1", &Capability::ChangeNotification);
    assert_eq!(get(topic.url().clone()).await.0, 404);
}

#[tokio::test]
async fn framework_notification_lists_documents() {
    let source = source(SampleOptions::default()).await;
    let list = source.document_uri("set1", "resourcelist.xml");
    let entry = source.framework_entry(list.clone(), Capability::ResourceList, ChangeKind::Updated);
    let made = source.framework("set1", &[entry]);
    let document = read_document(&made.body, made.topic.url()).unwrap();
    assert_eq!(document.head.md.from, None);
    assert_eq!(document.entries[0].loc, list);
    assert_eq!(capability_of(&document.entries[0]), "resourcelist");
    assert_eq!(document.entries[0].md.change, Some(ChangeKind::Updated));
}

#[tokio::test]
async fn unchanged_documents_are_answered_304_and_counted() {
    let source = source(SampleOptions::default()).await;
    let uri = source.document_uri("set1", "changelist.xml");
    let (_, headers, _) = get(uri.clone()).await;
    let client = serving::client(LIMIT).unwrap();
    let again = || {
        let request = client
            .get(uri.clone())
            .header(IF_NONE_MATCH, &headers[ETAG]);
        async { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(again().await, 304);
    source.update("set1", "r0000.txt", "1");
    assert_eq!(again().await, 200);
    source.wait_for_hits(uri.path(), 3).await;
    assert_eq!(source.hits(uri.path()), 3);
    assert_eq!(source.hits_not_modified(uri.path()), 1);
}

#[tokio::test]
async fn faults_apply_as_planned() {
    let source = source(SampleOptions::default()).await;
    let uri = source.resource_uri("set1", "r0000.txt");
    let whole = source.state("set1")[uri.as_str()].clone();

    source.fail(uri.path(), Fault::Unavailable { retry_after: 7 }, 1);
    let (status, headers, _) = get(uri.clone()).await;
    assert_eq!(
        (status, &headers["Retry-After"]),
        (503, &"7".parse().unwrap())
    );

    source.fail(uri.path(), Fault::WrongBytes, 1);
    let (_, _, wrong) = get(uri.clone()).await;
    assert_eq!(wrong.len(), whole.len());
    assert_ne!(wrong, whole);

    source.fail(uri.path(), Fault::Truncated, 1);
    let client = serving::client(LIMIT).unwrap();
    let cut = client.get(uri.clone()).send().await.unwrap();
    assert_eq!(cut.content_length(), Some(whole.len() as u64));
    assert!(cut.bytes().await.is_err());

    assert_eq!(get(uri).await.2, whole, "without a fault it is complete");
}

#[tokio::test]
async fn sets_can_be_added_and_removed() {
    let source = source(SampleOptions::default()).await;
    source.add_set("set2");
    let description = source.base().join(".well-known/resourcesync").unwrap();
    assert_eq!(read(description.clone()).await.entries.len(), 2);
    let gone = source.capability_list("set2");
    source.remove_set("set2");
    assert_eq!(read(description).await.entries.len(), 1);
    assert_eq!(get(gone).await.0, 404);
}

#[tokio::test]
async fn notification_is_submitted_to_an_external_hub() {
    let hub = Hub::start(crate::HubOptions::default()).await.unwrap();
    for (submission, code) in [
        (Submission::Payload, None),
        // This hub relays what it is given; it fetches nothing.
        (Submission::Ping, Some("hub-refused")),
    ] {
        let source = source(SampleOptions {
            hub: ChannelHub::External {
                hub: hub.uri().clone(),
                submission,
            },
            ..SampleOptions::default()
        })
        .await;
        source.update("set1", "r0000.txt", "1");
        let published = source.notify_and_publish("set1").await;
        assert_eq!(published.err().map(|error| error.code()), code);
    }
}
