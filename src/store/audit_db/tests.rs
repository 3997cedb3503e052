use resourcesync::{Algorithm, Capability, ChangeKind, ContentInfo, Digest, SourceTime};
use resyncd_core::ResourceUri;
use resyncd_mirror::made_path;
use url::Url;

use super::*;
use crate::store::Change;

fn at(seconds: i64) -> SourceTime {
    SourceTime::from_micros(seconds * 1_000_000)
}

fn change(name: &str, kind: ChangeKind, time: Option<i64>, content: &str) -> Change {
    let uri = ResourceUri::parse(&format!("https://example.org/{name}")).unwrap();
    Change {
        authority: uri.authority(),
        uri,
        kind,
        changed_at: time.map(at),
        lastmod: time.map(at),
        content: ContentInfo {
            length: Some(content.len() as u64),
            media_type: None,
            hashes: vec![Digest::of(Algorithm::Sha256, content.as_bytes())],
        },
        links: Vec::new(),
        overtaken: false,
        frequency: None,
        encoding: None,
        unconfirmed: false,
        standing: None,
        has_cut_links: false,
        linked: Vec::new(),
        version: crate::store::VersionRule::Ignored,
    }
}

fn updated(name: &str, time: i64, content: &str) -> Change {
    change(name, ChangeKind::Updated, Some(time), content)
}

fn deleted(name: &str, time: i64) -> Change {
    change(name, ChangeKind::Deleted, Some(time), "")
}

fn listed(seconds: i64) -> StatementKind {
    StatementKind::ResourceList { at: at(seconds) }
}

const CHANGES: StatementKind = StatementKind::ChangeList {
    newest_first: false,
    since: None,
};
const BACKWARDS: StatementKind = StatementKind::ChangeList {
    newest_first: true,
    since: None,
};

/// The expected files: `name:length`.
fn expected(audit_db: &AuditDb) -> Vec<String> {
    let expectations = audit_db.expectations(0, 100).unwrap();
    expectations
        .iter()
        .map(|expectation| {
            let name = expectation.uri.url().path().trim_start_matches('/');
            match expectation.content.length {
                Some(length) => format!("{name}:{length}"),
                None => format!("{name}:?"),
            }
        })
        .collect()
}

#[test]
fn change_of_a_day_is_later_than_the_list_of_that_morning() {
    const DAY: i64 = 86_400;
    let morning = DAY + 36_000;
    let since = StatementKind::ChangeList {
        newest_first: false,
        since: Some(at(morning)),
    };
    check(
        &[
            (
                listed(morning),
                &[updated("a", DAY - 1, "."), updated("b", DAY - 1, ".")],
            ),
            (
                since,
                &[
                    updated("a", DAY, ".."),
                    deleted("b", DAY),
                    updated("c", DAY, "..."),
                ],
            ),
        ],
        &["a:2", "c:3"],
    );
    check(
        &[
            (listed(morning), &[updated("a", DAY - 1, ".")]),
            (
                since,
                &[updated("a", DAY, ".."), updated("a", morning + 1, "...")],
            ),
        ],
        &["a:3"],
    );
}

/// Records documents, one after the other, and compares the expected files.
#[track_caller]
fn check(documents: &[(StatementKind, &[Change])], wanted: &[&str]) {
    let audit_db = AuditDb::begin().unwrap();
    for (number, (telling, entries)) in (1..).zip(documents) {
        audit_db
            .record_entries(1, number, *telling, entries)
            .unwrap();
    }
    assert_eq!(expected(&audit_db), wanted, "{documents:#?}");
}

#[test]
fn later_statement_counts() {
    let list = (
        listed(10),
        &[updated("a", 1, "x"), updated("b", 1, "x")][..],
    );
    check(&[list], &["a:1", "b:1"]);
    check(
        &[list, (CHANGES, &[updated("a", 11, "xx")])],
        &["a:2", "b:1"],
    );
    check(
        &[list, (CHANGES, &[updated("a", 9, "xx")])],
        &["a:1", "b:1"],
    );
    check(
        &[(CHANGES, &[updated("a", 11, "xx")]), list],
        &["a:2", "b:1"],
    );
    check(&[list, (CHANGES, &[deleted("a", 10)])], &["b:1"]);
    let back = [deleted("a", 11), updated("a", 12, "xxx")];
    check(&[list, (CHANGES, &back)], &["a:3", "b:1"]);
    check(
        &[list, (CHANGES, &[back[1].clone(), back[0].clone()])],
        &["a:3", "b:1"],
    );
    // Another set lists it again, or deleted it earlier.
    check(
        &[
            list,
            (CHANGES, &[deleted("a", 11)]),
            (listed(12), &[updated("a", 1, "xxxx")]),
        ],
        &["a:4", "b:1"],
    );
    check(&[list, (CHANGES, &[deleted("a", 9)])], &["a:1", "b:1"]);
}

#[test]
fn order_of_the_document_counts_for_equal_times() {
    let (first, second) = (deleted("a", 11), updated("a", 11, "xx"));
    let forwards = [first.clone(), second.clone()];
    let backwards = [second, first];
    check(&[(CHANGES, &forwards)], &["a:2"]);
    check(&[(CHANGES, &backwards)], &[]);
    check(&[(BACKWARDS, &backwards)], &["a:2"]);
    check(&[(BACKWARDS, &forwards)], &[]);
    // Another document is read later, whatever its own order is.
    check(
        &[(BACKWARDS, &backwards), (BACKWARDS, &[deleted("a", 11)])],
        &[],
    );
}

#[test]
fn statement_without_a_time_makes_the_expectation_uncertain() {
    let list = (listed(10), &[updated("a", 1, "x")][..]);
    let undated = |name, kind| change(name, kind, None, "xx");
    check(
        &[list, (CHANGES, &[undated("a", ChangeKind::Updated)])],
        &["a:?"],
    );
    check(
        &[list, (CHANGES, &[undated("b", ChangeKind::Updated)])],
        &["a:1", "b:?"],
    );
    check(
        &[list, (CHANGES, &[undated("a", ChangeKind::Deleted)])],
        &[],
    );
    let audit_db = AuditDb::begin().unwrap();
    audit_db.record_entries(1, 1, listed(10), list.1).unwrap();
    audit_db
        .record_entries(1, 2, CHANGES, &[undated("a", ChangeKind::Deleted)])
        .unwrap();
    // It may exist or not: its file is not extra.
    assert!(audit_db.path_state("example.org/a").unwrap().expected);
}

#[test]
fn no_two_resources_share_a_path() {
    let audit_db = AuditDb::begin().unwrap();
    let [one, other] = ["https", "http"].map(|scheme| Change {
        uri: ResourceUri::parse(&format!("{scheme}://example.org:8080/a")).unwrap(),
        ..updated("a", 1, "x")
    });
    let made = made_path(&other.uri).to_string();
    audit_db
        .record_entries(1, 1, listed(10), &[one, other])
        .unwrap();
    let paths: Vec<String> = audit_db
        .expectations(0, 9)
        .unwrap()
        .into_iter()
        .map(|expectation| expectation.path)
        .collect();
    assert_eq!(paths, ["example.org:8080/a", made.as_str()]);
}

#[test]
fn lists_of_a_set_are_read_once() {
    let audit_db = AuditDb::begin().unwrap();
    let (listed, changed) = (Capability::ResourceList, Capability::ChangeList);
    let begin = |set, capability, name: &str| {
        let uri = Url::parse(&format!("https://example.org/{name}")).unwrap();
        audit_db.begin_list(set, capability, &uri).unwrap()
    };
    let first = begin(1, &listed, "a");
    assert!(first.is_some());
    assert!(begin(1, &listed, "b") > first);
    assert_eq!(begin(1, &listed, "a"), None);
    assert!(begin(1, &changed, "a").is_some());
    assert!(begin(2, &listed, "a").is_some());
}

#[test]
fn findings_are_read_as_they_were_stored() {
    let audit_db = AuditDb::begin().unwrap();
    let altered = Finding {
        set: Some(1),
        uri: Some("https://example.org/a".into()),
        path: Some("example.org/a".into()),
        expected: Some(7),
        differs: vec!["digest".into(), "lastmod".into()],
        length: Some(3),
        hashes: vec![Digest::of(Algorithm::Md5, b"abc")],
        ..Finding::new(FindingKind::Altered)
    };
    let extra = Finding::new(FindingKind::Extra);
    audit_db.add_findings(&[altered.clone(), extra]).unwrap();
    let found = audit_db.findings(0, 9).unwrap();
    let whole = |finding: &Finding| {
        format!(
            "{:?}",
            Finding {
                id: 0,
                ..finding.clone()
            }
        )
    };
    assert_eq!(whole(&found[0]), whole(&altered));
    audit_db.drop_findings(&[found[1].id]).unwrap();
    let repaired = Finding {
        outcome: FindingOutcome::Repaired,
        ..found[0].clone()
    };
    audit_db.change_findings(&[repaired]).unwrap();
    let found = audit_db.findings(0, 9).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].outcome, FindingOutcome::Repaired);
}
