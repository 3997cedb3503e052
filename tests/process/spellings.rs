//! One resource whose URI a Source writes in several ways (RFC 3986, section 6.2.2).

use std::collections::BTreeMap;

use resourcesync::{Capability, ChangeKind, Entry, Head, Root, write_document};
use resyncd_testkit::SampleSource;

use crate::support::process::Home;
use crate::support::{capability_list, change, change_list, files, only_pages, time};

const LIST: &str = "/list.xml";
const CHANGES: &str = "/changes.xml";

#[tokio::test(flavor = "multi_thread")]
async fn equivalent_uris_are_one_resource_that_is_requested_as_written_last() {
    let source = SampleSource::start(only_pages()).await.unwrap();
    let at = |path: &str| source.base().join(path).unwrap();
    let put = |path: &str, body: Vec<u8>| source.put_document(path, "application/xml", body);
    let page = |path: &str, text: &str| source.put_document(path, "text/plain", text.to_owned());
    let (begin, later) = (time("2026-01-01T00:00:00Z"), time("2026-01-01T01:00:00Z"));
    let offers = [
        (&at(LIST), Capability::ResourceList),
        (&at(CHANGES), Capability::ChangeList),
    ];
    put("/set.xml", capability_list(&offers));
    let list = |of, paths: &[&str]| {
        let mut head = Head::new(Root::Urlset, Capability::ResourceList);
        head.md.at = Some(of);
        let entries: Vec<Entry> = paths.iter().map(|path| Entry::new(at(path))).collect();
        put(LIST, write_document(&head, &entries));
    };
    list(begin, &["/%7Ea", "/b%2fc", "/d"]);
    put(CHANGES, change_list(begin, None, None, &[]));
    for path in ["/%7Ea", "/b%2fc", "/d"] {
        page(path, "old");
    }
    let home = Home::new(&format!("{}set.xml", source.url()), "");
    let run = |arguments: &[&str]| {
        let output = home.run_command(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    };
    let host = format!("127.0.0.1:{}", source.base().port().unwrap());
    let mirrored = |expected: &[(&str, &str)]| {
        let expected = expected.iter().map(|(path, text)| {
            let path = format!("{host}/{path}");
            (path, text.as_bytes().to_vec())
        });
        let found: BTreeMap<String, Vec<u8>> = files(&home.mirror).into_iter().collect();
        assert_eq!(found, expected.collect());
    };
    run(&["sync"]);
    mirrored(&[("b%2Fc", "old"), ("d", "old"), ("~a", "old")]);

    let deletion = |path: &str| {
        let mut entry = change(&at(path), later);
        entry.md.change = Some(ChangeKind::Deleted);
        entry
    };
    page("/~a", "new");
    let changes = [change(&at("/~a"), later), deletion("/b%2Fc")];
    put(CHANGES, change_list(begin, None, None, &changes));
    let former = source.hits("/%7Ea");
    run(&["sync"]);
    mirrored(&[("d", "old"), ("~a", "new")]);
    assert_eq!((source.hits("/%7Ea"), source.hits("/~a")), (former, 1));
    run(&["audit"]);

    // A newer list, and a restart in between.
    let newest = time("2026-01-01T02:00:00Z");
    page("/%7ea", "new");
    list(newest, &["/%7ea", "/d"]);
    put(CHANGES, change_list(newest, None, None, &[]));
    run(&["sync"]);
    mirrored(&[("d", "old"), ("~a", "new")]);
    run(&["audit"]);

    let _running = home.run();
    home.until("in sync", |set| set.state == "in-sync").await;
    for path in ["/%7Ea", "/~a", "/%7ea"] {
        let known = home.operator.resource(at(path).as_str()).await.unwrap();
        assert_eq!(known["uri"], at("/%7ea").as_str(), "{path}");
        assert_eq!(known["path"], format!("{host}/~a"), "{path}");
    }
    assert_eq!(home.operator.resource(at("/a").as_str()).await, None);
}
