//! Resources that only links of others name.

use resourcesync::{Algorithm, ContentInfo, Digest, Link};

use super::*;

const KEYS: &str = "metadata = \"follow\"\nrepresentations = [\"application/pdf\"]\n";

/// Serves a resource that no list names, and returns a link to it.
fn put(source: &SampleSource, rel: &str, name: &str, media_type: &str) -> Link {
    let (uri, bytes) = (source.resource_uri(SET, name), format!("bytes of {name}"));
    source.put_document(uri.path(), media_type, bytes.clone());
    Link {
        content: ContentInfo {
            length: Some(bytes.len() as u64),
            media_type: Some(media_type.to_owned()),
            hashes: vec![Digest::of(Algorithm::Sha256, bytes.as_bytes())],
        },
        ..Link::new(rel, uri)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn linked_files_are_audited_and_repaired_and_follow_their_owner() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let links = vec![
        put(&source, "alternate", "a.pdf", "application/pdf"),
        put(&source, "describedby", "a.xml", "text/xml"),
    ];
    source.set_links(SET, "r0000.txt", links);
    source.refresh_resource_list(SET);
    let home = Home::new(&source.url(), KEYS);
    sync(&home);
    let output = home.run_command(&["audit"]);
    assert!(
        text(&output.stdout).contains("in sync: 5 compared, 5 right"),
        "{output:?}"
    );
    let at = |name: &str| file(&source, &home, SET, name);
    alter(&at("a.pdf"), |bytes| bytes[0] ^= 1);
    fs::remove_file(at("a.xml")).unwrap();
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["altered a.pdf digest", "missing a.xml"]);
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(&output, 0, &["+altered a.pdf digest", "+missing a.xml"]);
    assert_eq!(fs::read(at("a.xml")).unwrap(), b"bytes of a.xml");

    // A lost database: the files are adopted, and still go with their owner.
    fs::remove_dir_all(home.folder().join("state")).unwrap();
    let hits = source.hits("/set1/res/a.pdf");
    sync(&home);
    assert_eq!(source.hits("/set1/res/a.pdf"), hits);
    source.delete(SET, "r0000.txt");
    sync(&home);
    assert!(!at("a.pdf").exists() && !at("a.xml").exists());
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 0, &[]);
}
