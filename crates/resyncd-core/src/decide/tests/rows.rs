//! Each row of the decision.

use resourcesync::ContentInfo;

use super::super::*;
use crate::statement::tests::{apply_text, content, time};

/// A number after a mark, as `fetched=3`.
fn number(facts: &str, mark: &str) -> Option<i64> {
    let words = facts.split(' ');
    let value = words.filter_map(|word| word.strip_prefix(mark)).next()?;
    Some(value.strip_prefix('=')?.parse().unwrap())
}

/// The decision as `row what behind`. `entries` are of sets 1 and 2 as `1:updated@20#x`; `facts` are words:
///
/// | word | |
/// |---|---|
/// | `file`, `file#x`, `doubted`, `may-have-file` | what the mirror has |
/// | `fetched=2`, `served=2`, `absent=2` | the statements that were known then |
/// | `ended=1`, `list=30`, `read=40`, `unbroken=50` | of the sets |
/// | `unselected`, `held`, `undecided`, `awaits`, `check` | the policy |
/// | `rejected` | a person has rejected the deletions |
fn decided(entries: &str, facts: &str) -> String {
    let has = |word: &str| facts.split(' ').any(|other| other == word);
    let (mut statements, mut revision) = (Vec::new(), Revision::default());
    for text in entries.split_whitespace() {
        let (set, text) = text.split_once(':').unwrap();
        apply_text(&mut statements, set.parse().unwrap(), text, &mut revision);
    }
    for statement in &mut statements {
        statement.is_rejected = has("rejected") && !statement.exists();
    }
    let set = |set: SetKey| SetFacts {
        is_followed: number(facts, "ended") != Some(set.0),
        list_at: number(facts, "list").and_then(time),
        read_until: number(facts, "read").and_then(time),
        unbroken: number(facts, "unbroken").and_then(time),
    };
    let words = || facts.split(' ');
    let bytes = words().find_map(|word| word.strip_prefix("file#"));
    let file: Option<ContentInfo> =
        (bytes.is_some() || has("file")).then(|| content(bytes.unwrap_or_default()));
    let of = |answer, mark| {
        let revision = number(facts, mark)?;
        Some((answer, Revision(revision.try_into().unwrap())))
    };
    let record = Record {
        file: file.as_ref().map(|file| RecordedFile {
            length: file.length,
            hashes: &file.hashes,
            is_doubted: has("doubted"),
        }),
        may_have_file: has("may-have-file"),
        answer: of(Answer::Served, "served").or_else(|| of(Answer::Absent, "absent")),
        fetched: Revision(
            number(facts, "fetched")
                .unwrap_or_default()
                .try_into()
                .unwrap(),
        ),
    };
    let policy = Policy {
        is_selected: !has("unselected"),
        guard: match (has("held"), has("undecided")) {
            (true, _) => Guard::Held,
            (_, true) => Guard::Undecided,
            _ => Guard::Released,
        },
        awaits_set: has("awaits"),
        may_check: has("check"),
    };
    let Decision {
        desired,
        row,
        behind,
    } = decide(&statements, set, &record, &policy);
    let what = match desired {
        Desired::Settled => "settled".to_owned(),
        Desired::Fetch {
            stated,
            verifies,
            absence,
        } => {
            let what = if verifies { "fetch-exactly" } else { "fetch" };
            let answers = if absence == Absence::Answers {
                "-if-served"
            } else {
                ""
            };
            format!("{what}{answers} of {}", stated.entry.set.0)
        }
        Desired::Ask => "ask".to_owned(),
        Desired::Remove => "remove".to_owned(),
        Desired::Hold(guard) => format!("hold {guard:?}"),
    };
    let behind = match behind {
        None => String::new(),
        Some(None) => " behind".to_owned(),
        Some(Some(since)) => format!(" behind {}", since.micros() / 1_000_000),
    };
    format!("{row} {what}{behind}")
}

#[test]
fn first_row_that_fits_decides() {
    #[rustfmt::skip]
    let cases = [
        // 1: no followed set states anything.
        ("", "file", "1 settled"), ("1:updated@20", "file ended=1", "1 settled"),
        ("1:updated@20", "may-have-file ended=1", "1 remove behind"), ("1:deleted@20", "file ended=1", "1 settled"),
        // 2: it is not selected.
        ("1:updated@20", "unselected", "2 settled"), ("1:updated@20 1:updated@30!", "unselected file", "2 settled"),
        ("1:deleted@20", "unselected file", "7 remove behind 20"),
        // 3: a hub states something, and the Source was not asked since.
        ("1:updated@20!", "", "3 fetch-if-served of 1 behind 20"), ("1:updated@20#a!", "file#a", "3 fetch-if-served of 1 behind 20"),
        ("1:updated@20!", "read=20", "3 fetch-if-served of 1 behind 20"), ("1:updated@20!", "read=21", "1 settled"), ("1:updated@20!", "list=21", "1 settled"),
        ("1:updated@20!", "served=0", "3 fetch-if-served of 1 behind 20"), ("1:deleted@20!", "file", "3 fetch-if-served of 1 behind 20"),
        ("1:deleted@20!", "", "6 settled"), ("1:deleted@20!", "may-have-file", "3 fetch-if-served of 1 behind 20"),
        ("1:updated@20! 2:updated@30!", "ended=2", "3 fetch-if-served of 1 behind 20"),
        ("1:updated@20! 2:updated@30!", "", "3 fetch-if-served of 2 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=2", "3 fetch-if-served of 1 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=3 fetched=3", "8 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "served=2", "7 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=2 read=31", "7 remove behind 20"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file absent=3", "7 remove behind 20"),
        ("1:updated@25 1:updated@30! 2:deleted@20", "file served=2 fetched=2", "8 settled"),
        ("2:listed@5^10 1:updated@20! 2:deleted@25", "file served=2 fetched=2", "7 remove behind 25"),
        // 4: another set, or other than a link, states its deletion.
        ("1:created@20& 1:deleted@20", "file", "4 fetch-if-served of 1 behind 20"),
        ("1:created@20& 1:deleted@20", "file absent=2", "7 remove behind 20"), ("1:created@20& 1:deleted@19", "file fetched=1", "8 settled"),
        ("1:updated@20 2:deleted@21", "file", "4 fetch-if-served of 1 behind 21"),
        ("1:updated@20#a 2:deleted@21", "", "4 fetch-exactly-if-served of 1 behind 21"),
        ("1:updated@20#a 2:deleted@21", "file#b", "4 fetch-if-served of 1 behind 21"),
        ("1:updated@20 2:deleted@21", "file unbroken=50", "4 fetch-if-served of 1 behind 50"),
        ("1:updated@20 2:deleted@21", "file served=1", "4 fetch-if-served of 1 behind 21"),
        ("1:updated@20 2:deleted@21", "file fetched=2 served=2", "8 settled"),
        ("1:updated@20 2:deleted@21", "file absent=2", "7 remove behind 21"),
        ("1:updated@20 2:deleted@19", "file fetched=2", "8 settled"), ("1:updated@20 2:deleted@21", "file fetched=2 ended=2", "8 settled"),
        ("1:listed@5^10 2:listed@5^10 2:absent^30", "file fetched=2", "8 settled"),
        ("1:listed@5^30 2:deleted@20", "file fetched=2", "8 settled"),
        // 4: a newer list of its own set lacks what a change states.
        ("1:updated@20", "list=30", "4 fetch-if-served of 1 behind 20"), ("1:updated@20", "list=30 fetched=1 absent=1", "6 settled"),
        ("1:updated@20", "list=30 may-have-file absent=1", "6 remove behind"), ("1:updated@20", "list=20", "8 fetch of 1 behind 20"),
        ("1:updated@20", "list=30 may-have-file unbroken=40 absent=1", "6 remove behind 40"),
        ("1:updated", "list=30", "8 fetch of 1 behind"), ("1:listed@5^20", "list=30", "8 fetch of 1 behind"),
        ("1:updated@20", "list=30 file served=1 fetched=1", "8 settled"),
        // 5: a hub has stated its deletion, and the Source does not serve it.
        ("1:listed@5^10 1:deleted@20!", "file absent=2", "5 remove behind 20"), ("1:deleted@20!", "file absent=1", "5 remove behind 20"),
        ("1:listed@5^10 1:deleted@20!", "file absent=2 held", "5 hold Held behind 20"),
        ("1:listed@5^10 1:deleted@20!", "file absent=2 awaits", "5 remove behind 20"),
        ("1:listed@5^10 1:deleted@20! 2:updated@15", "file absent=2", "8 fetch of 2 behind 15"),
        ("1:listed@5^10 1:deleted@20!", "file served=2 fetched=1", "8 settled"),
        ("1:listed@5^10 1:updated@20!", "file absent=2 fetched=1", "8 settled"),
        // 6: only what the Source has denied is stated.
        ("1:updated@20!", "absent=1", "6 settled"), ("1:updated@20!", "may-have-file absent=1", "6 remove behind"),
        // 7: it is gone.
        ("1:deleted@20", "file", "7 remove behind 20"), ("1:deleted@20", "", "7 settled"), ("1:deleted@20", "may-have-file", "7 remove behind 20"),
        ("1:deleted@20", "file rejected", "7 settled"), ("1:deleted@20", "file held", "7 hold Held behind 20"),
        ("1:deleted@20", "file undecided awaits", "7 hold Undecided behind 20"), ("1:deleted@20", "file awaits", "7 ask behind 20"),
        ("1:deleted@20", "file awaits absent=1", "7 remove behind 20"), ("1:deleted@20", "file awaits served=1", "7 ask behind 20"),
        ("1:deleted 2:absent^30", "file", "7 remove behind 30"), ("1:deleted", "file", "7 remove behind"),
        // 8: it exists.
        ("1:created@20&", "", "8 fetch of 1 behind 20"), ("1:created@30& 2:updated@20", "", "8 fetch of 2 behind 20"),
        ("1:updated@20", "", "8 fetch of 1 behind 20"), ("1:updated@20#a", "", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20+5", "", "8 fetch-exactly of 1 behind 20"), ("1:listed@5^30", "", "8 fetch of 1 behind"),
        ("1:listed@5^30", "unbroken=40", "8 fetch of 1 behind 5"), ("1:listed^30", "unbroken=40", "8 fetch of 1 behind 40"),
        ("1:listed@50^60", "unbroken=40", "8 fetch of 1 behind 40"),
        ("1:updated@20#a", "file#a", "8 settled"), ("1:updated@20#a", "file#b", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20#a", "file#b fetched=1", "8 settled"), ("1:updated@20", "file", "8 fetch of 1 behind 20"),
        ("1:updated@20#a", "file#a doubted fetched=1", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20 2:updated@30#b", "", "8 fetch-exactly of 2 behind 30"), ("1:updated@20 2:updated", "", "8 fetch of 1 behind 20"),
        ("1:updated@20#a 1:updated@30!", "served=2", "8 fetch of 1 behind 20"),
        ("1:updated@20#a 1:updated@30!", "unbroken=50 served=2", "8 fetch of 1 behind 50"),
        ("1:updated@30! 1:updated@20#a", "absent=1", "8 fetch of 1 behind 20"),
        // 9: it states nothing of its content, and may be asked for.
        ("1:listed^30", "file fetched=1 check", "9 fetch of 1 behind"), ("1:listed^30", "file check", "8 fetch of 1 behind"),
    ];
    for (entries, facts, expected) in cases {
        assert_eq!(decided(entries, facts), expected, "{entries} | {facts}");
    }
}
