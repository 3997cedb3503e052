//! What every type that is converted to and from a column can hold is read as it was stored, through SQLite. Those of versions and media
//! types are with them.

use chrono::DateTime;
use proptest::prelude::*;
use resourcesync::uri::{parse_uri, resolve_reference, without_userinfo};
use resourcesync::{
    Algorithm, Capability, ChangeKind, ContentInfo, Digest, Link, Oddities, SourceTime,
};
use resyncd_core::{
    ChannelState, DeliveryFaultKind, GapReason, HubUri, Offer, ResourceUri, ServedVersion,
    TopicUri, Transport, Validators,
};
use rusqlite::types::{FromSql, ToSql};
use url::Url;
use websub::Intent;

use super::served_version::{served_by, served_version};
use super::source_set::{BaselineState, OfferList, UriList};
use super::task::TaskState;
use super::values::{
    Column, ColumnValue, Count, DigestList, HashAttribute, HubList, LinkList, Micros,
    PackedDigests, RequestedIntent, json,
};
use crate::store::FindingKind;
use crate::store::change::Origin;
use crate::store::ids::{ChannelId, PartId, ResourceId, SetId};
use crate::store::sql::{Connection, Row};

/// Stores values in one row, and has it read.
fn through<T>(values: &[&dyn ToSql], read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>) -> T {
    let marks = vec!["?"; values.len()].join(", ");
    let database = Connection::from(rusqlite::Connection::open_in_memory().unwrap());
    let query = format!("SELECT {marks}");
    database.query_row(&query, values, read).unwrap()
}

fn read<T: FromSql>(value: impl ToSql) -> T {
    through(&[&value], |row| row.get(0))
}

fn check<T: ToSql + FromSql + PartialEq + std::fmt::Debug>(value: T) {
    let found: T = read(&value);
    assert_eq!(found, value);
}

fn check_all<T: ColumnValue + PartialEq + std::fmt::Debug>(values: impl IntoIterator<Item = T>) {
    for value in values {
        let Column(found) = read::<Column<T>>(Column(&value));
        assert_eq!(found, value);
    }
}

#[test]
fn every_word_is_read_as_it_was_stored() {
    use BaselineState::{Done, Listed, Missing};
    use ChangeKind::{Created, Deleted, Updated};
    use ChannelState::{Active, Denied, Expired, Pending, Unsubscribed};
    use DeliveryFaultKind::{Contradicted, Misdirected, Silent, Unsigned, WrongSignature};
    use GapReason::{ChangeListStartsLate, MissingNotification, TooManyHeld};
    use Origin::{Audit, ChangeDump, ChangeList, Forget, Notification, ResourceDump, ResourceList};
    use TaskState::{Failed, HeldBack, Interrupted, Ready, Undecided, Unwanted};
    check_all([Created, Updated, Deleted]);
    check_all([Pending, Active, Denied, Expired, Unsubscribed]);
    check_all([Silent, Unsigned, WrongSignature, Misdirected, Contradicted]);
    check_all([MissingNotification, TooManyHeld, ChangeListStartsLate]);
    check_all([
        Notification,
        ChangeList,
        ChangeDump,
        ResourceList,
        ResourceDump,
        Audit,
        Forget,
    ]);
    check_all([Missing, Listed, Done]);
    check_all([Ready, Failed, HeldBack, Undecided, Interrupted, Unwanted]);
    check_all([
        FindingKind::Missing,
        FindingKind::Extra,
        FindingKind::Altered,
        FindingKind::Unreachable,
        FindingKind::Unknown,
        FindingKind::Pending,
    ]);
    check_all(Transport::ALL);
    for intent in [None, Some(Intent::Subscribe), Some(Intent::Unsubscribe)] {
        assert_eq!(read::<RequestedIntent>(RequestedIntent(intent)).0, intent);
    }
}

/// Texts of Sources that may be URIs: hosts of any characters, escapes, dots, long labels.
fn texts() -> impl Strategy<Value = String> {
    let scheme = prop_oneof![
        8 => prop::sample::select(&["http://", "https://"][..]).prop_map(str::to_owned),
        2 => prop::sample::select(&["ws://", "wss://", "xmpp:", "data:,", "urn:", "ftp://", "x://", "file://", ""][..])
            .prop_map(str::to_owned),
    ];
    let label = prop_oneof![
        4 => "[a-zA-Z0-9-]{0,64}",
        2 => "\\PC{0,5}",
        // Long enough for IDNA to encode it, and not to decode it again.
        1 => (1_usize..900, any::<u32>()).prop_map(|(length, seed)| {
            let of = |at: u32| char::from_u32(0x4e00 + seed.wrapping_add(at).wrapping_mul(7919) % 20_000);
            (0..length).filter_map(|at| of(u32::try_from(at).ok()?)).collect()
        }),
        1 => "(%[0-9A-F]{2}){0,4}",
    ];
    let host = prop::collection::vec(label, 1..5).prop_map(|labels| labels.join("."));
    let rest = r"(:[0-9]{1,5})?(/(\.\.|%2e|%zz|[ -~]|\PC){0,8}){0,3}(\?\PC{0,5}|;node=\PC{0,5})?(#\PC{0,3})?";
    let user = prop_oneof![9 => Just(""), 1 => Just("me:pass@")];
    (scheme, user, host, rest)
        .prop_map(|(scheme, user, host, rest)| format!("{scheme}{user}{host}{rest}"))
}

/// Every URI that a text may become.
fn uris(text: &str) -> Vec<Url> {
    let base = Url::parse("http://example.org/a/b").unwrap();
    let parsed = [parse_uri(text).ok(), resolve_reference(&base, text).ok()];
    let without_fragment = |mut uri: Url| {
        uri.set_fragment(None);
        uri
    };
    let parsed = parsed.into_iter().flatten();
    parsed
        .flat_map(|uri| {
            [
                uri.clone(),
                without_userinfo(uri.clone()),
                without_fragment(uri),
            ]
        })
        .collect()
}

fn digests() -> impl Strategy<Value = Vec<Digest>> {
    use Algorithm::{Md5, Sha1, Sha256, Sha384, Sha512};
    let chosen = prop::sample::subsequence(&[Md5, Sha1, Sha256, Sha384, Sha512][..], 0..=5);
    (chosen, any::<u8>()).prop_map(|(algorithms, byte)| {
        let digest = |algorithm: Algorithm| {
            Digest::new(algorithm, &vec![byte; algorithm.digest_length()]).unwrap()
        };
        algorithms.into_iter().map(digest).collect()
    })
}

fn links(href: &Url) -> impl Strategy<Value = Link> + use<> {
    let content = (any::<Option<u64>>(), any::<Option<String>>(), digests());
    let content = content.prop_map(|(length, media_type, hashes)| ContentInfo {
        length,
        media_type,
        hashes,
    });
    let texts = (
        any::<String>(),
        any::<Option<String>>(),
        any::<Option<String>>(),
    );
    let numbers = (any::<Option<u32>>(), any::<Option<i64>>());
    let href = href.clone();
    (texts, numbers, content).prop_map(move |((rel, encoding, path), (pri, modified), content)| {
        Link {
            rel,
            href: href.clone(),
            pri,
            modified: modified.map(SourceTime::from_micros),
            content,
            encoding,
            path,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_uri_that_is_accepted_is_read_as_it_was_stored(text in texts()) {
        for uri in uris(&text) {
            check(uri.clone());
            prop_assert_eq!(read::<UriList>(json(&[uri.as_str()]).unwrap()).0, std::slice::from_ref(&uri));
            let link = Link::new("alternate", uri.clone());
            prop_assert_eq!(read::<LinkList<Vec<Link>>>(LinkList([link.clone()])).0, [link]);
            let hubs: Vec<HubUri> = HubUri::try_from(uri.clone()).into_iter().collect();
            prop_assert_eq!(&read::<HubList<Vec<HubUri>>>(HubList(&hubs)).0, &hubs);
            let offer = Offer {
                capability: Capability::ChangeNotification,
                uri: uri.clone(),
                hubs: hubs.clone(),
                protocol: Some(text.clone()),
            };
            let offers = [offer];
            prop_assert_eq!(read::<OfferList<Vec<Offer>>>(OfferList(&offers[..])).0, offers);
            check_all(hubs);
            check_all(TopicUri::of_channel(uri.clone()));
            let Ok(resource) = ResourceUri::try_from(uri.clone()) else { continue };
            check_all([resource.clone()]);
            let version = ServedVersion { url: uri, validators: Validators::default() };
            let (stored, none) = (served_by(&version, &resource), None::<&str>);
            let served = through(&[&stored, &none, &none], |row| served_version(row, [0, 1, 2], &resource));
            prop_assert_eq!(served, Some(version));
        }
        check_all(ResourceUri::parse(&text));
        check_all(TopicUri::parse(&text));
    }

    #[test]
    fn every_capability_is_read_as_it_was_stored(text in "(capability-?list|change-?(list|dump)|description|\\PC{0,9})(s|-index|\\PC)?") {
        check_all(Capability::parse(&text, &mut Oddities::default()));
    }

    #[test]
    fn every_number_and_time_is_read_as_it_was_stored(number in any::<i64>(), count in any::<u64>(), seconds in -9_000_000_000_i64..9_000_000_000_000, nanos in 0..1_000_000_000_u32) {
        check(SetId(number));
        check(ChannelId(number));
        check(PartId(number));
        check(ResourceId(number));
        check_all([None, Some(SourceTime::from_micros(number))]);
        // SQLite has no greater ones.
        prop_assert_eq!(read::<Count>(Count(count)).0, count.min(i64::MAX.cast_unsigned()));
        if let Some(time) = DateTime::from_timestamp(seconds, nanos) {
            let found = read::<Micros>(Micros(time)).0;
            prop_assert_eq!(found.timestamp_micros(), time.timestamp_micros());
        }
    }

    #[test]
    fn all_digests_are_read_as_they_were_stored(digests in digests()) {
        prop_assert_eq!(&read::<DigestList<Vec<Digest>>>(DigestList(&digests)).0, &digests);
        prop_assert_eq!(&read::<DigestList<Vec<Digest>>>(PackedDigests(&digests)).0, &digests);
        let attribute: HashAttribute = read(PackedDigests(&digests));
        let attribute_of_list: HashAttribute = read(DigestList(&digests));
        prop_assert_eq!(attribute.0, attribute_of_list.0);
    }

    #[test]
    fn every_link_is_read_as_it_was_stored(links in prop::collection::vec(links(&Url::parse("http://example.org/\u{e9}?x#y").unwrap()), 0..3)) {
        prop_assert_eq!(&read::<LinkList<Vec<Link>>>(LinkList(&links)).0, &links);
    }
}
