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

/// What `ask` returns of a resource. `entries` are of sets 1 and 2 as `1:updated@20#x`; `facts` are words:
///
/// | word | |
/// |---|---|
/// | `file`, `file#x`, `at=20`, `verified`, `doubted`, `may-have-file`, `requested` | what the mirror has |
/// | `fetched=2`, `served=2`, `changed=2`, `absent=2` | the statements that were known then |
/// | `ended=1`, `list=30`, `from=35`, `read=40`, `unbroken=50` | of the sets |
/// | `check` | the resource may be asked for |
/// | `rejected`, `rejected=2` | a person has rejected the deletions, or that of set 2 |
fn asked<T>(
    (entries, facts): (&str, &str),
    ask: impl FnOnce(&[Statement], &dyn Fn(SetKey) -> SetFacts, &Record<'_>) -> T,
) -> T {
    let has = |word: &str| facts.split(' ').any(|other| other == word);
    let (mut statements, mut revision) = (Vec::new(), Revision::default());
    for text in entries.split_whitespace() {
        let (set, text) = text.split_once(':').unwrap();
        apply_text(&mut statements, set.parse().unwrap(), text, &mut revision);
    }
    for statement in &mut statements {
        let is_of_set = number(facts, "rejected") == Some(statement.entry.set.0);
        statement.is_rejected = (has("rejected") || is_of_set) && !statement.exists();
    }
    let set = |set: SetKey| SetFacts {
        is_followed: number(facts, "ended") != Some(set.0),
        list_at: number(facts, "list").and_then(time),
        read: number(facts, "read").and_then(time).and_then(|until| {
            let from = number(facts, "from").and_then(time);
            Interval::new(from.unwrap_or(SourceTime::MIN), until)
        }),
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
        is_requested: has("requested"),
        at: number(facts, "at").and_then(time),
        is_verified: has("verified"),
        answer: of(Answer::Served, "served")
            .or_else(|| of(Answer::Changed, "changed"))
            .or_else(|| of(Answer::Absent, "absent")),
        fetched: Revision(
            number(facts, "fetched")
                .unwrap_or_default()
                .try_into()
                .unwrap(),
        ),
    };
    ask(&statements, &set, &record)
}

/// The decision of a resource as [`asked`] reads it, as `row what behind`.
fn decided(entries: &str, facts: &str) -> String {
    let may_check = facts.split(' ').any(|word| word == "check");
    asked((entries, facts), |statements, set, record| {
        described(decide(statements, set, record, may_check))
    })
}

fn described(decision: Decision<'_>) -> String {
    let Decision {
        desired,
        row,
        behind,
    } = decision;
    let what = match desired {
        Desired::Settled => "settled".to_owned(),
        Desired::Fetch {
            stated,
            verifies,
            absence,
        } => {
            let what = if verifies && stated.entry.content.is_verifiable() {
                "fetch-exactly"
            } else {
                "fetch"
            };
            let answers = if absence == Absence::Answers {
                "-if-served"
            } else {
                ""
            };
            format!("{what}{answers} of {}", stated.entry.set.0)
        }
        Desired::Ask { stated } => format!("ask of {}", stated.entry.set.0),
        Desired::Remove { stated: Some(of) } => format!("remove of {}", of.entry.set.0),
        Desired::Remove { stated: None } => "remove".to_owned(),
    };
    let behind = match behind {
        _ if desired == Desired::Settled => String::new(),
        None => " behind".to_owned(),
        Some(since) => format!(" behind {}", since.micros() / 1_000_000),
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
        ("1:updated@20", "file doubted may-have-file ended=1", "1 settled"),
        // 2: a hub states something, and the Source was not asked since.
        ("1:updated@20!", "", "2 fetch-if-served of 1 behind 20"), ("1:updated@20#a!", "file#a", "2 fetch-exactly-if-served of 1 behind 20"),
        ("1:updated@20!", "read=20", "2 fetch-if-served of 1 behind 20"), ("1:updated@20!", "read=21", "1 settled"), ("1:updated@20!", "list=21", "1 settled"),
        ("1:updated@20!", "from=20 read=30", "1 settled"), ("1:updated@20!", "from=21 read=30", "2 fetch-if-served of 1 behind 20"),
        ("1:updated@20!", "served=0", "2 fetch-if-served of 1 behind 20"), ("1:deleted@20!", "file", "2 ask of 1 behind 20"),
        ("1:deleted@20!", "", "6 settled"), ("1:deleted@20!", "may-have-file", "2 ask of 1 behind 20"),
        ("1:updated@20! 2:updated@30!", "ended=2", "2 fetch-if-served of 1 behind 20"),
        ("1:updated@20! 2:updated@30!", "", "2 fetch-if-served of 2 behind 30"), ("1:updated@20! 2:deleted@30!", "file", "2 ask of 2 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=2", "2 fetch-if-served of 1 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file changed=2", "2 fetch-if-served of 1 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=2 unbroken=50", "2 fetch-if-served of 1 behind 50"),
        ("1:updated@20!", "unbroken=50", "2 fetch-if-served of 1 behind 20"),
        ("1:updated@20#a 1:updated@20#b!", "file#a fetched=1", "2 fetch-exactly-if-served of 1 behind 20"),
        ("1:updated@20#a 1:updated@20!", "file#a fetched=1", "8 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=3 fetched=3", "8 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file changed=3", "8 fetch of 1 behind 30"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "served=2", "7 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=2 read=31", "7 remove of 1 behind 20"),
        // The documents have a hole there, and do not refute what the Source has served.
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file served=3 fetched=3 from=40 read=50", "8 settled"),
        ("1:listed@5^10 1:updated@30! 1:deleted@20", "file absent=3", "7 remove of 1 behind 20"),
        ("1:updated@25 1:updated@30! 2:deleted@20", "file served=2 fetched=2", "8 settled"),
        ("2:listed@5^10 1:updated@20! 2:deleted@25", "file served=2 fetched=2", "7 remove of 2 behind 25"),
        ("1:listed@5^10 1:deleted@20!", "file fetched=1", "2 ask of 1 behind 20"), ("1:listed@5^10 1:deleted@20!", "file fetched=1 served=1", "2 ask of 1 behind 20"),
        // What the documents state is to be done as well.
        ("1:listed@5^10 1:deleted@20!", "file", "2 ask of 1 behind"), ("1:listed@5^10 1:updated@20!", "unbroken=10", "2 fetch-if-served of 1 behind 5"),
        ("1:updated@15 1:updated@20!", "unbroken=10 absent=1", "2 fetch-if-served of 1 behind 15"), ("1:deleted@15 1:updated@20!", "file", "2 fetch-if-served of 1 behind 15"),
        // What was fetched because of the hub before may be what the documents state.
        ("1:updated@15 1:updated@20!", "file unbroken=50 absent=1", "2 fetch-if-served of 1 behind 20"), ("1:updated@21 1:updated@20!", "file unbroken=50", "8 fetch of 1 behind 21"),
        ("1:updated@15 1:updated@20!", "file at=1 unbroken=50 absent=1", "2 fetch-if-served of 1 behind 15"), ("1:updated@15 1:updated@20!", "unbroken=50 absent=1", "2 fetch-if-served of 1 behind 15"),
        ("1:updated@15 2:updated@20!", "file unbroken=50", "2 fetch-if-served of 2 behind 15"), ("1:updated@21 1:updated@20! 2:updated@30!", "file unbroken=50", "2 fetch-if-served of 2 behind 21"),
        ("1:listed@5#a^10 1:deleted@20!", "file#a changed=2 fetched=1", "8 fetch of 1 behind 5"),
        // 3: another set states its deletion, as the last one.
        ("2:created@1 1:created@20& 2:deleted@20", "file", "3 ask of 2 behind 20"), ("2:created@1 1:created@20& 2:deleted@20", "file absent=3", "7 remove of 2 behind 20"),
        ("2:created@1 1:updated@20 2:deleted@21", "file", "3 ask of 2 behind 21"), ("2:created@1 1:updated@20#a 2:deleted@21", "", "3 ask of 2 behind 21"),
        ("2:created@1 3:created@1 1:updated@20 2:deleted@21 3:deleted@22", "file", "3 ask of 3 behind 22"),
        ("2:created@1 1:updated@20 2:deleted@21", "file unbroken=50", "3 ask of 2 behind 50"), ("1:updated@20 2:deleted", "file fetched=1", "8 settled"),
        ("2:created@1 1:updated@20 2:deleted@21", "file served=2", "3 ask of 2 behind 21"), ("2:created@1 1:updated@20 2:deleted@21", "file changed=2", "3 ask of 2 behind 21"),
        ("2:created@1 1:updated@20 2:deleted@21", "file fetched=3 served=3", "8 settled"),
        ("2:created@1 1:updated@20 2:deleted@21", "file absent=3", "7 remove of 2 behind 21"), ("2:created@1 1:updated@20 2:deleted@21", "absent=3", "7 settled"),
        ("2:created@1 1:updated@20 2:deleted@19", "file fetched=3", "8 settled"), ("2:created@1 1:updated@20 2:deleted@21", "file fetched=3 ended=2", "8 settled"),
        ("1:listed@5^10 2:listed@5^10 2:absent^30", "file fetched=2", "8 settled"),
        ("2:created@1 1:listed@5^30 2:deleted@20", "file fetched=3", "8 settled"), ("2:created@1 1:listed@5^30 2:deleted@30", "file fetched=3", "3 ask of 2 behind 30"),
        ("2:created@1 1:updated@20 2:deleted@21", "list=30 file", "3 ask of 2 behind 21"),
        // A set that has never named it ends nothing.
        ("1:updated@20 2:deleted@21", "file fetched=2", "8 settled"), ("2:deleted@21 1:updated@20", "file", "8 fetch of 1 behind 20"),
        ("1:updated@20 2:deleted@15 2:deleted@21", "file fetched=2", "8 settled"),
        // 3: it was stated before.
        ("2:created@1 2:deleted@21 1:updated@20", "file", "3 fetch-if-served of 1 behind 21"), ("2:created@1 2:deleted@21 1:updated@20#a", "", "3 fetch-exactly-if-served of 1 behind 21"),
        ("2:created@1 2:deleted@21 1:updated@20#a", "file#b", "3 fetch-if-served of 1 behind 21"), ("2:created@1 2:deleted@21 1:updated@20+5", "", "3 fetch-exactly-if-served of 1 behind 21"),
        ("2:created@1 2:deleted@21 1:updated@20", "file absent=2", "3 fetch-if-served of 1 behind 21"), ("2:created@1 2:deleted@21 1:updated@20", "file served=2", "3 fetch-if-served of 1 behind 21"),
        ("2:created@1 2:deleted@21 1:updated@20", "absent=3", "7 settled"), ("2:created@1 2:deleted@21 1:updated@20", "file served=3 fetched=3", "8 settled"),
        ("2:created@1 2:deleted@20 1:created@20&", "", "3 fetch-if-served of 1 behind 20"), ("2:created@1 2:deleted@21 1:listed@5#a^10", "", "3 fetch-exactly-if-served of 1 behind 21"),
        ("2:created@1 2:deleted@21 1:updated@20", "unbroken=20", "3 fetch-if-served of 1 behind 21"), ("2:created@1 2:deleted@21 1:updated@21", "unbroken=50", "3 fetch-if-served of 1 behind 50"),
        ("2:created@1 1:updated@20 2:deleted@21", "file unbroken=21", "3 ask of 2 behind 21"),
        // A rejected deletion is no contradiction.
        ("2:created@1 1:updated@20 2:deleted@21", "file fetched=2 rejected", "8 settled"), ("2:created@1 1:updated@20#a 2:deleted@21", "rejected", "8 fetch-exactly of 1 behind 20"),
        ("2:created@1 3:created@1 1:updated@20 2:deleted@21 3:deleted@22", "file rejected=3", "3 ask of 2 behind 21"),
        ("2:created@1 3:created@1 1:updated@20 2:deleted@21 3:deleted@22", "file rejected=2", "3 ask of 3 behind 22"),
        // A link is void if its own set states a deletion that is not older.
        ("1:created@20& 1:deleted@20", "file", "7 remove of 1 behind 20"), ("1:created@20& 1:deleted@20", "file served=2 fetched=2", "7 remove of 1 behind 20"),
        ("1:created@20& 1:deleted@19", "file fetched=1", "8 settled"), ("1:created@20& 1:absent^30", "file fetched=1", "8 settled"),
        ("1:created& 1:deleted@20", "file", "7 remove of 1 behind 20"), ("1:created@20& 1:deleted@20", "", "7 settled"),
        ("1:created@1 1:created@20& 1:deleted@20 2:created@10", "file", "3 fetch-if-served of 2 behind 20"), ("1:created@1 1:created@20& 2:created@20& 1:deleted@20", "file", "3 ask of 1 behind 20"),
        // What the Source serves in place of what was deleted is fetched as it is.
        ("2:created@1 1:updated@20#a 2:deleted@21", "file#a changed=3 fetched=2", "8 fetch of 1 behind 20"), ("2:created@1 1:updated@20#a 2:deleted@21", "changed=3", "8 fetch of 1 behind 20"),
        ("2:created@1 1:listed@5#a^10 2:deleted@21", "file#a changed=3 fetched=2 unbroken=40", "8 fetch of 1 behind 5"),
        ("2:created@1 1:updated@20#a 2:deleted@21", "file#b served=3 fetched=3", "8 settled"),
        ("2:created@1 1:updated@20#a 2:deleted@21 1:updated@30#b", "file#a changed=3 fetched=2", "8 fetch-exactly of 1 behind 30"),
        // 4: a newer list of its own set lacks what a change states.
        ("1:updated@20", "list=30", "4 fetch-if-served of 1 behind 20"), ("1:updated@20", "list=30 fetched=1 absent=1", "6 settled"),
        ("1:updated@20#a", "list=30", "4 fetch-exactly-if-served of 1 behind 20"), ("1:updated@20+5", "list=30", "4 fetch-exactly-if-served of 1 behind 20"),
        ("1:updated@20#a", "list=30 file#b", "4 fetch-if-served of 1 behind 20"), ("1:updated@20", "list=30 unbroken=40", "4 fetch-if-served of 1 behind 20"),
        ("1:updated@20", "list=30 may-have-file absent=1", "6 remove behind"), ("1:updated@20", "list=20", "8 fetch of 1 behind 20"),
        ("1:updated@20", "list=30 may-have-file unbroken=40 absent=1", "6 remove behind 40"),
        ("1:updated", "list=30", "8 fetch of 1 behind"), ("1:listed@5^20", "list=30", "8 fetch of 1 behind"),
        ("1:listed@5^10 1:updated@20", "list=10", "8 fetch of 1 behind 20"), ("1:created@20&", "list=30", "8 fetch of 1 behind 20"),
        ("1:updated@20", "list=30 file served=1 fetched=1", "8 settled"), ("1:updated@20#a", "list=30 changed=1", "8 fetch of 1 behind 20"),
        ("2:created@1 1:updated@20 2:deleted@21", "list=30 file absent=3", "7 remove of 2 behind 21"), ("2:created@1 1:updated@20 2:deleted@19", "list=30 file", "4 fetch-if-served of 1 behind 20"),
        // 5: a hub has stated its deletion, and the Source does not serve it.
        ("1:listed@5^10 1:deleted@20!", "file absent=2", "5 remove of 1 behind 20"), ("1:deleted@20!", "file absent=1", "5 remove of 1 behind 20"),
        ("1:listed@5^10 1:deleted@20!", "absent=2", "5 settled"), ("1:listed@5^10 1:deleted@20!", "file absent=2 read=21 fetched=1", "8 settled"),
        ("1:listed@5^10 1:deleted@20! 2:updated@15", "file absent=2", "8 fetch of 2 behind 15"),
        ("1:listed@5^10 1:deleted@20!", "file served=2 fetched=1", "8 settled"),
        ("1:listed@5^10 1:updated@20!", "file absent=2 fetched=1", "2 fetch-if-served of 1 behind 20"),
        // 6: only what the Source has denied is stated.
        ("1:updated@20!", "absent=1", "6 settled"), ("1:updated@20!", "may-have-file absent=1", "6 remove behind"),
        ("1:updated@20!", "file doubted may-have-file absent=1", "2 fetch-if-served of 1 behind 20"),
        // 7: it is gone.
        ("1:deleted@20", "file", "7 remove of 1 behind 20"), ("1:deleted@20", "", "7 settled"), ("1:deleted@20", "may-have-file", "7 remove of 1 behind 20"),
        ("1:deleted@20", "requested", "7 remove of 1 behind 20"), ("1:deleted@20", "requested rejected", "7 settled"),
        ("1:deleted@20", "file rejected", "7 settled"), ("1:deleted@20", "file served=1", "7 remove of 1 behind 20"),
        ("1:deleted 2:absent^30", "file", "7 remove of 2 behind"), ("1:absent^30", "file unbroken=40", "7 remove of 1 behind 30"), ("1:absent^30", "file unbroken=20", "7 remove of 1 behind 20"), ("1:deleted", "file", "7 remove of 1 behind"),
        // The Source has served it since, as it was asked because of a hub.
        ("2:created@1 1:deleted@30! 2:deleted@20", "file served=3 fetched=3", "7 settled"),
        ("2:created@1 1:deleted@30! 2:deleted@20", "file absent=3", "5 remove of 1 behind 30"),
        // What a hub has stated of its time was claimed when the Source had answered, or there was no file.
        ("1:created@1 1:deleted@20! 1:deleted@20", "may-have-file unbroken=50", "7 remove of 1 behind 50"),
        ("1:created@1 1:deleted@20! 1:deleted@20", "file at=1 unbroken=50", "7 remove of 1 behind 20"),
        // The documents confirm what a hub has stated, though the Source has served it since.
        ("1:created@1 1:deleted@20! 1:deleted@20", "file served=3 fetched=3", "7 remove of 1 behind 20"),
        // Its last link has ended, before its deletion or after it.
        ("1:created@1 1:created@20& 1:deleted& 1:deleted@30", "file", "7 remove of 1 behind 30"),
        ("1:created@1 1:created@20& 1:deleted@15 1:deleted&", "file", "7 remove of 1 behind"),
        ("1:created@20& 1:deleted&", "file", "7 remove of 1 behind"), ("1:created@20& 1:deleted&", "file unbroken=40", "7 remove of 1 behind 40"),
        ("1:created@20& 1:deleted&", "", "7 settled"), ("1:created@20& 1:deleted& 1:created@20&", "", "8 fetch of 1 behind 20"),
        ("1:created@20& 1:deleted& 2:updated@15", "file fetched=3", "8 settled"), ("1:created@20& 1:deleted& 2:created@15&", "file fetched=3", "8 settled"),
        // 8: it exists.
        ("1:created@20&", "", "8 fetch of 1 behind 20"), ("1:created@30& 2:updated@20", "", "8 fetch of 2 behind 20"),
        ("1:updated@20", "", "8 fetch of 1 behind 20"), ("1:updated@20#a", "", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20+5", "", "8 fetch-exactly of 1 behind 20"), ("1:listed@5^30", "", "8 fetch of 1 behind"),
        ("1:listed@5^30", "unbroken=40", "8 fetch of 1 behind 5"), ("1:listed^30", "unbroken=40", "8 fetch of 1 behind 40"),
        ("1:listed@50^60", "unbroken=40", "8 fetch of 1 behind 40"),
        ("1:updated@20#a", "file#a", "8 settled"), ("1:updated@20#a", "file#b", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20#a", "file#b fetched=1", "8 settled"), ("1:updated@20#a", "file#b verified fetched=1", "8 fetch-exactly of 1 behind 20"), ("1:updated@20", "file", "8 fetch of 1 behind 20"),
        ("1:updated@20#a", "file#a doubted verified fetched=1", "8 fetch-exactly of 1 behind 20"), ("1:updated@20#a", "file#a doubted fetched=1", "8 fetch of 1 behind 20"),
        ("1:updated@20#a 1:updated@21#b", "file#a doubted fetched=1", "8 fetch-exactly of 1 behind 21"),
        ("1:listed@5^30", "unbroken=40 file doubted at=4", "8 fetch of 1 behind 5"), ("1:listed@5^30", "unbroken=40 file doubted at=5", "8 fetch of 1 behind 40"),
        ("1:updated@20 2:updated@30#b", "", "8 fetch-exactly of 2 behind 30"), ("1:updated@20 2:updated", "", "8 fetch of 1 behind 20"),
        ("1:updated@20#a 1:updated@30!", "served=2", "8 fetch of 1 behind 20"),
        ("1:updated@20#a 1:updated@30!", "unbroken=50 served=2", "8 fetch of 1 behind 50"),
        ("1:updated@30! 1:updated@20#a", "absent=1", "8 fetch of 1 behind 20"),
        // What another set states of an earlier time, or of the same one.
        ("1:updated@20 2:listed@9^40", "file fetched=1", "8 settled"), ("1:updated@20 2:updated@20", "file fetched=1", "8 settled"),
        ("1:updated@20#a 2:updated@20#b", "file fetched=1", "8 fetch-exactly of 2 behind 20"), ("1:updated@20#a 2:updated@20#a", "", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20 2:listed^15", "file fetched=1", "8 settled"),
        // Which of two changes of one time is newer is not known: the claim is not lowered.
        ("1:updated@20#b", "file#a at=20 unbroken=50", "8 fetch-exactly of 1 behind 50"), ("1:updated@20#b", "file#a at=19 unbroken=50", "8 fetch-exactly of 1 behind 20"),
        ("1:updated@20#b", "file#a at=21 unbroken=50", "8 fetch-exactly of 1 behind 50"),
        ("1:updated@20", "at=21 unbroken=50", "8 fetch of 1 behind 20"), ("1:updated", "file at=5 unbroken=50", "8 fetch of 1 behind"),
        ("1:updated 1:updated@20!", "unbroken=50 served=2", "8 fetch of 1 behind"), ("1:updated@20 1:updated!", "unbroken=50 served=2", "8 fetch of 1 behind 20"),
        ("1:deleted@20", "file at=20 unbroken=50", "7 remove of 1 behind 50"), ("1:deleted@20", "file at=19 unbroken=50", "7 remove of 1 behind 20"),
        // 9: it states nothing of its content, and may be asked for.
        ("1:listed^30", "file fetched=1 check", "9 fetch of 1 behind"), ("1:listed^30", "file check", "8 fetch of 1 behind"),
        ("1:listed^30", "file fetched=1 changed=1 check", "8 fetch of 1 behind"), ("1:deleted@20", "file rejected check", "7 settled"),
    ];
    for row in 1..=9 {
        let is_hit = cases
            .iter()
            .any(|(.., expected)| expected.starts_with(&row.to_string()));
        assert!(is_hit, "row {row}");
    }
    for (entries, facts, expected) in cases {
        assert_eq!(decided(entries, facts), expected, "{entries} | {facts}");
    }
}

#[test]
fn deletion_that_the_source_confirms_is_not_asked_for() {
    let found = decided("1:listed@5^10 1:deleted@20! 1:deleted@20", "file fetched=1");
    assert_eq!(found, "7 remove of 1 behind 20");
}

#[test]
fn entry_of_another_set_that_states_nothing_of_the_content_is_no_reason_to_fetch() {
    for entries in [
        "1:updated@20 2:listed^30",
        "1:updated@20#a 2:listed^30",
        "1:listed@5^20 2:listed^30",
    ] {
        assert_eq!(
            decided(entries, "file#a fetched=1"),
            "8 settled",
            "{entries}"
        );
    }
}

/// The last link to it has ended: no document has stated that then, whatever was deleted before.
#[test]
fn end_of_a_link_after_an_older_deletion_does_not_lower_the_claim() {
    for (entries, facts, expected) in [
        (
            "1:deleted@10 1:created@20& 1:deleted&",
            "file unbroken=40",
            "40",
        ),
        (
            "2:deleted@10 1:created@20& 1:deleted&",
            "file unbroken=40",
            "40",
        ),
    ] {
        let found = decided(entries, facts);
        assert!(
            found.ends_with(&format!("behind {expected}")),
            "{entries}: {found}"
        );
    }
}

#[test]
fn change_that_comes_after_a_later_one_holds_the_claim_back() {
    let cases = [
        ("1:updated@20", "", 10, Some(10)),
        ("1:updated@20", "unbroken=50", 10, Some(10)),
        // What the mirror has is as new: the change was claimed before.
        ("1:updated@20", "file at=10 unbroken=50", 10, Some(50)),
        ("1:updated@20", "file at=9 unbroken=50", 10, Some(10)),
        ("1:updated@20", "file at=10", 10, Some(10)),
    ];
    for (entries, facts, at, behind) in cases {
        let held = asked((entries, facts), |statements, set, record| {
            behind_of_older(statements, set, record, (SetKey(1), time(at)))
        });
        assert_eq!(held, behind.and_then(time), "{entries} | {facts} | {at}");
    }
}
