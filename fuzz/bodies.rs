//! Invariants of everything that parses untrusted input. Each body takes any bytes and panics when an invariant is broken.
//!
//! cargo-fuzz runs them without a limit; `tests/fuzzing.rs` runs them on the corpus and on variations of it.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use resourcesync::uri::{MAX_URI_BYTES, parse_uri, resolve_reference};
use resourcesync::{
    Capability, Digest, DocumentReader, Oddities, SourceTime, read_document, write_document,
};
use resyncd::clock;
use resyncd::config::{Config, StatusConfig};
use resyncd::engine::Engine;
use resyncd::http::{RejectionCounters, operator_router, operator_routes};
use resyncd::store::Store;
use resyncd_core::{HubUri, MAX_HUBS, MAX_OFFERS, Offer, ResourceUri};
use resyncd_fetch::{offers, parse_link_header};
use resyncd_mirror::{MirrorPath, made_path, plain_path};
use resyncd_packages::Package;
use tokio_util::sync::CancellationToken;
use url::Url;
use websub::{Signature, SubscriptionRequest, Verification};

fn base() -> Url {
    Url::parse("http://example.com/set/list.xml").expect("a constant URL can be parsed")
}

/// A document is rejected, or read completely: writing and reading it again changes nothing, except for characters that XML
/// can't represent.
pub(crate) fn document(data: &[u8]) {
    if let Ok(mut sitemap) = DocumentReader::open_sitemap(data, &base()) {
        while let Ok(Some(_)) = sitemap.next_entry() {}
    }
    let Ok(read) = read_document(data, &base()) else {
        return;
    };
    let written = write_document(&read.head, &read.entries);
    let read =
        read_document(&written, &base()).expect("the reader reads what the writer has written");
    let written = write_document(&read.head, &read.entries);
    let again =
        read_document(&written, &base()).expect("the reader reads what the writer has written");
    assert_eq!(read.head, again.head);
    assert_eq!(read.entries, again.entries);
}

/// A text becomes no URI, or one that is stored and read back as it is, wherever the database has it.
pub(crate) fn stored_uri(data: &[u8]) {
    /// One for all runs: to create a database takes longer than a run.
    static STORE: LazyLock<(tempfile::TempDir, Arc<Store>)> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let store = Store::open(folder.path()).expect("a database can be created");
        (folder, store)
    });
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let accepted = [parse_uri(text).ok(), resolve_reference(&base(), text).ok()];
    let header = parse_link_header(&format!("<{text}>; rel=\"hub\""), &base());
    let header = header.into_iter().map(|link| link.href);
    let uris: Vec<Url> = accepted.into_iter().flatten().chain(header).collect();
    let offers: Vec<Offer> = uris
        .iter()
        .map(|uri| Offer {
            capability: Capability::ChangeNotification,
            uri: uri.clone(),
            hubs: HubUri::try_from(uri.clone()).into_iter().collect(),
            protocol: None,
        })
        .collect();
    let (_, store) = &*STORE;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async {
        for uri in &uris {
            let begun = store.begin_set("fuzz", uri).await;
            let set = begun.expect("the set can be read").id;
            let saved = store.save_offers(set, &offers, None).await;
            saved.expect("the offers can be stored");
            let sets = store.sets("fuzz").await.expect("the sets can be read");
            let read = sets.iter().find(|read| read.id == set);
            let read = read.expect("the set is followed");
            assert_eq!((&read.capability_list, &read.offers), (uri, &offers));
            let ended = store.end_set("fuzz", set, clock::now().wall).await;
            ended.expect("the set can be ended");
        }
    });
}

/// A datetime is rejected, or written in a form that parses to the same time.
pub(crate) fn datetime(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(time) = SourceTime::parse_w3c(text, &mut Oddities::default()) {
        let written = time.to_string();
        let mut oddities = Oddities::default();
        let again = SourceTime::parse_w3c(&written, &mut oddities);
        assert_eq!(again, Some(time), "{written}");
        // W3C Datetime has no year of more than four digits; a time zone can make one of 9999.
        assert!(
            oddities.is_empty() || written.starts_with(['+', '-']),
            "{written}"
        );
    }
    let hashes = Digest::parse_hashes(text, &mut Oddities::default());
    let written: Vec<String> = hashes.iter().map(ToString::to_string).collect();
    let again = Digest::parse_hashes(&written.join(" "), &mut Oddities::default());
    assert_eq!(again, hashes);
}

/// Each link of a Link header is a valid URL with one relation.
pub(crate) fn link_header(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    for link in parse_link_header(text, &base()) {
        assert!(!link.rel.is_empty());
        assert!(!link.rel.contains([' ', '\t']));
        assert_eq!(Url::parse(link.href.as_str()).as_ref(), Ok(&link.href));
    }
}

/// No path leaves the mirror or leads into `.resyncd/`, and no two URIs (one per line) share a path.
pub(crate) fn path(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let uris: Vec<ResourceUri> = text
        .lines()
        .take(8)
        .filter_map(|line| ResourceUri::parse(line).ok())
        .collect();
    let paths = |uri: &ResourceUri| [plain_path(uri), Some(made_path(uri))];
    for path in uris.iter().flat_map(paths).flatten() {
        let text = path.as_str();
        let again = MirrorPath::parse(text).expect("a path of a URI can be parsed");
        assert_eq!(again.as_str(), text);
        for name in text.split('/') {
            assert!((1..=255).contains(&name.len()), "{text}");
            assert!(
                !matches!(name, "." | "..") && !name.contains('\0'),
                "{text}"
            );
        }
        assert_ne!(text.split('/').next(), Some(".resyncd"), "{text}");
    }
    for (number, one) in uris.iter().enumerate() {
        for other in uris.iter().skip(number + 1).filter(|other| *other != one) {
            assert_ne!(made_path(one), made_path(other), "{one} {other}");
            assert_ne!(plain_path(one), Some(made_path(other)), "{one} {other}");
            // Two URIs that differ only in their scheme share a plain path; the store gives the second one a made path.
            let without_scheme = |uri: &ResourceUri| uri.as_str().replacen("https:", "http:", 1);
            if without_scheme(one) != without_scheme(other) && plain_path(one).is_some() {
                assert_ne!(plain_path(one), plain_path(other), "{one} {other}");
            }
        }
    }
}

/// A callback's query, and a delivery's signature and body (one per line), are rejected, or parse to values that survive a round
/// trip.
pub(crate) fn callback(data: &[u8]) {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let query = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let signature = String::from_utf8_lossy(lines.next().unwrap_or_default());
    let body = lines.next().unwrap_or_default();
    let _ = Verification::topics_of_query(&query);
    if let Some(verification) = Verification::parse_query(&query) {
        let again = Verification::parse_query(&verification.to_query());
        assert_eq!(again, Some(verification));
    }
    if let Some(request) = SubscriptionRequest::parse_form(&query) {
        let again = SubscriptionRequest::parse_form(&request.to_form());
        assert_eq!(again, Some(request));
    }
    let _ = Signature::parse_all([&*signature].into_iter());
    if let Some(signature) = Signature::parse(&signature) {
        let right = Signature::sign(signature.method(), b"secret", body);
        let is_right = right
            .to_string()
            .eq_ignore_ascii_case(&signature.to_string());
        assert_eq!(signature.verifies(b"secret", body), is_right);
    }
    document(body);
}

/// A configuration is valid, or has faults that name the file.
pub(crate) fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Err(faults) = Config::parse(text, Path::new("/nowhere/config.toml")) {
        let message = faults.to_string();
        assert!(message.contains("/nowhere/config.toml"), "{message}");
    }
}

/// A package of any format is rejected, or each member has exactly the length that the package states, or ends in an error.
pub(crate) fn package(data: &[u8]) {
    let mut file = tempfile::tempfile().expect("a small temporary file can be written");
    file.write_all(data)
        .expect("a small temporary file can be written");
    let Ok(package) = Package::open(file, &std::env::temp_dir(), Some(1 << 20)) else {
        return;
    };
    // A member takes at least 46 bytes in the directory of a ZIP file; a compressed package has at most 1 MiB.
    assert!(
        package.members() <= data.len().max(1 << 20) / 46,
        "{package:?}"
    );
    let mut paths = vec![
        "a".to_owned(),
        "res/a".to_owned(),
        "manifest.xml".to_owned(),
    ];
    if let Ok(mut manifest) = package.manifest(&base(), 1 << 20) {
        while let Ok(Some(entry)) = manifest.next_entry() {
            paths.extend(entry.md.path.filter(|_| paths.len() < 20));
        }
    }
    for path in paths {
        let Ok(member) = package.member(&path) else {
            continue;
        };
        let length = member.length();
        // Deflate expands by a factor of about a thousand at most, so this is fast.
        let most = length.map_or(u64::MAX, |length| length.saturating_add(1));
        match io::copy(&mut member.take(most), &mut io::sink()) {
            Ok(read) => assert!(length.is_none_or(|length| length == read), "{path}"),
            Err(error) => assert!(!error.to_string().is_empty(), "{path}"),
        }
    }
}

/// A Capability List of any length offers a bounded number of capabilities and hubs, of a bounded length.
pub(crate) fn capability_list(data: &[u8]) {
    let Ok(read) = read_document(data, &base()) else {
        return;
    };
    let offers = offers(&read.head, &read.entries, &mut Oddities::default());
    assert!(offers.len() <= MAX_OFFERS);
    for offer in offers {
        assert!(offer.hubs.len() <= MAX_HUBS, "{offer:?}");
        assert!(offer.uri.as_str().len() <= MAX_URI_BYTES, "{offer:?}");
    }
}

/// A notification on a topic with a URI as long as accepted takes no more memory for URIs than 16 MiB and four times its length.
pub(crate) fn notification(data: &[u8]) {
    let topic = format!("http://example.com/{}/", "t".repeat(MAX_URI_BYTES - 100));
    let topic = Url::parse(&topic).expect("a constant URL can be parsed");
    let Ok(read) = read_document(data, &topic) else {
        return;
    };
    let uris = read.entries.iter().flat_map(|entry| {
        let links = entry.links.iter().map(|link| &link.href);
        links.chain([&entry.loc])
    });
    let lengths = uris.map(|uri| uri.as_str().len());
    assert!(lengths.sum::<usize>() <= (16 << 20) + 8 * data.len() + 2 * MAX_URI_BYTES);
}

/// A request to the status listener (method, path with query, then a header a line) is answered, for no page of another origin, and
/// never by an internal error.
pub(crate) fn status(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut request = Request::builder()
        .method(lines.next().unwrap_or_default())
        .uri(lines.next().unwrap_or_default());
    for line in lines {
        if let Some((name, value)) = line.split_once(": ") {
            request = request.header(name, value);
        }
    }
    let Ok(request) = request.body(Body::empty()) else {
        return;
    };
    let path = request.uri().path().to_owned();
    let answer = answer(request);
    assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
    assert_ne!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR, "{path}");
}

fn answer(request: Request<Body>) -> Response {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be built");
        static STATE: (tempfile::TempDir, Arc<Store>, Arc<Engine>) = {
            let folder = tempfile::tempdir().expect("a temporary folder can be created");
            let store = Store::open(folder.path()).expect("a new database can be opened");
            let config = Config::new("/nowhere", Vec::new());
            let client = config.client().expect("a client can be made");
            let starting = Engine::once(&config, Arc::clone(&store), &client);
            let engine = RUNTIME.with(|runtime| runtime.block_on(starting));
            (folder, store, engine.expect("the database can be written"))
        };
    }
    let (store, engine) = STATE.with(|(_, store, engine)| (Arc::clone(store), Arc::clone(engine)));
    let (stop, rejections) = (CancellationToken::new(), RejectionCounters::default());
    let routes = operator_routes(engine, Arc::clone(&store), stop, rejections.clone());
    let router = operator_router(routes, store, &StatusConfig::default(), rejections);
    let service = TowerToHyperService::new(router);
    let answer = RUNTIME.with(|runtime| runtime.block_on(service.call(request)));
    answer.expect("a router always answers")
}
