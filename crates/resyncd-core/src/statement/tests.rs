use proptest::prelude::*;
use resourcesync::{Algorithm, Digest};

use super::*;

pub(crate) fn time(seconds: i64) -> Option<SourceTime> {
    Some(SourceTime::from_micros(seconds * 1_000_000))
}

/// Content whose digest is that of these bytes; nothing is stated of none.
pub(crate) fn content(bytes: &str) -> ContentInfo {
    let stated = Some(bytes).filter(|bytes| !bytes.is_empty());
    ContentInfo {
        length: None,
        media_type: None,
        hashes: stated
            .map(|bytes| Digest::of(Algorithm::Sha256, bytes.as_bytes()))
            .into_iter()
            .collect(),
    }
}

/// An entry as `updated@20#x~9`: its kind, time, content (the bytes that are hashed) and lastmod; `+`: a length, `!`: a hub states it, `&`:
/// a link, `?`: it is overtaken (see
/// [`apply_text`]). `listed@9^30`, `absent^30`: of a list of that time. What is left out is not stated.
pub(crate) fn entry(set: i64, text: &str) -> Entry {
    const MARKS: [char; 8] = ['@', '#', '~', '+', '!', '&', '?', '^'];
    let end_of = |text: &str| text.find(MARKS).unwrap_or(text.len());
    let part = |mark: char| {
        let rest = &text[text.find(mark)? + 1..];
        Some(&rest[..end_of(rest)])
    };
    let seconds = |mark: char| part(mark).and_then(|seconds| time(seconds.parse().unwrap()));
    let list = seconds('^');
    let stated = match &text[..end_of(text)] {
        "listed" => Stated::Listed(list.unwrap()),
        "absent" => Stated::Absent(list.unwrap()),
        kind => Stated::Change(ChangeKind::parse(kind).unwrap()),
    };
    let is_absent = matches!(stated, Stated::Absent(_));
    Entry {
        set: SetKey(set),
        voice: match text.find(['!', '&']).map(|mark| &text[mark..=mark]) {
            Some("!") => Voice::Hub,
            Some(_) => Voice::Link,
            None => Voice::Source,
        },
        stated,
        at: seconds('@').or(list.filter(|_| is_absent)),
        lastmod: seconds('~'),
        content: ContentInfo {
            length: part('+').map(|length| length.parse().unwrap()),
            ..content(part('#').unwrap_or_default())
        },
    }
}

/// Applies an entry as of [`entry`].
pub(crate) fn apply_text(
    statements: &mut Vec<Statement>,
    set: i64,
    text: &str,
    revision: &mut Revision,
) -> Applied {
    apply(statements, &entry(set, text), text.contains('?'), revision)
}

/// The statements of a resource after entries as `1:updated@20#x`, where `1` is the set; what became of the last one; and whether that
/// states other content than before.
fn after(entries: &str) -> (Vec<Statement>, Applied, bool) {
    let (mut statements, mut revision) = (Vec::new(), Revision::default());
    let mut last = (Applied::Known, false);
    for text in entries.split(' ') {
        let (set, text) = text.split_once(':').unwrap();
        let before = revision;
        let applied = apply_text(&mut statements, set.parse().unwrap(), text, &mut revision);
        let states_content = statements.iter().any(|s| s.content_revision > before);
        last = (applied, states_content);
    }
    (statements, last.0, last.1)
}

#[test]
fn entry_is_news_unless_something_at_least_as_new_is_stated() {
    use Applied::{Known, News};
    const OLDER: Applied = Applied::Older(None);
    let older = |seconds| Applied::Older(time(seconds));
    #[rustfmt::skip]
    let cases = [
        // Nothing is stated.
        ("1:created@20#a", News), ("1:deleted", News), ("1:listed^30", News), ("1:absent^30", News),
        // Dated changes: the later one counts.
        ("1:created@20#a 1:updated@19#b", older(19)), ("1:created@20#a 1:deleted@19", older(19)),
        ("1:deleted@20 1:created@19#b", older(19)), ("1:created@20#a 1:updated@21#b", News),
        ("1:created@20#a 1:deleted@21", News), ("1:deleted@20 1:created@21#a", News),
        ("1:deleted@20 1:deleted@21", News), ("1:deleted@20 1:deleted@18", older(18)),
        ("1:updated@20#a 1:updated@21#a", News), ("1:deleted 1:deleted@21", News), ("1:deleted 1:created@21#a", News),
        // Of the same time: the later entry, unless it states the same or is overtaken.
        ("1:updated@20#a 1:updated@20#b", News), ("1:updated@20#a 1:updated@20#b?", older(20)),
        ("1:updated@20#a 1:updated@20#a", Known), ("1:created@20#a 1:updated@20#a", Known),
        ("1:updated@20+5 1:updated@20+6", News), ("1:updated@20 1:updated@20", Known),
        ("1:created@20 1:updated@20", News), ("1:listed@20^15 1:updated@20", Known),
        ("1:updated@20#a 1:deleted@20", News), ("1:updated@20#a 1:deleted@20?", older(20)),
        ("1:deleted@20 1:created@20#a", News), ("1:deleted@20 1:deleted@20", Known),
        ("1:updated@20#a 1:updated@20#a?", Known), ("1:deleted@20 1:deleted@20?", Known), ("1:deleted@20 1:created@20#a?", older(20)),
        // Undated changes: what can't be distinguished from what is stated is known.
        ("1:updated@20#a 1:updated", News), ("1:updated@20#a 1:updated#a", Known),
        ("1:updated@20#a 1:updated#b", News), ("1:updated@20#a 1:deleted", News),
        ("1:deleted@20 1:deleted", Known), ("1:deleted@20 1:created#a", News),
        ("1:updated 1:updated", News), ("1:updated#a 1:updated@20#b", News), ("1:updated#a 1:updated@20#a", News),
        ("1:listed#a^30 1:updated#b?", OLDER), ("1:listed#a^30 1:updated#b", News),
        ("1:updated@20#a 1:updated#b?", News), ("1:listed#a^30 1:deleted?", News),
        ("1:created& 1:created&", Known), ("1:created#a& 1:created#a&", Known), ("1:created#a& 1:created#b&", News),
        ("1:created& 1:deleted&", News), ("1:created@20& 1:deleted&", News), ("1:deleted& 1:deleted&", Known), ("1:deleted& 1:created&", News),
        // A change before a list that names its resource.
        ("1:listed@5^30 1:deleted@20", older(20)), ("1:listed@5^30 1:deleted@30", News), ("1:listed@5~5^30 1:deleted@20~9", older(20)),
        // A deletion of the very time that the list states ends what it states.
        ("1:listed@20^30 1:deleted@20", News), ("1:listed@5~20^30 1:deleted@20", News), ("1:listed@20^30 1:deleted@20?", older(20)),
        ("1:updated@20 1:listed@20^30 1:deleted@20", older(20)), ("1:listed@20^30 1:updated@20#a", older(20)), ("1:listed@20^30 1:deleted@19", older(19)),
        ("1:listed@5#a^30 1:updated@20#a", older(20)), ("1:listed@5#a^30 1:updated@20#b", News),
        ("1:listed#a^30 1:updated@20#b", older(20)), ("1:listed@25#a^30 1:updated@20#b", older(20)),
        ("1:listed@5#a~5^30 1:updated@20#b~4", older(20)), ("1:listed@5#a~5^30 1:updated@20#b~6", News),
        ("1:listed@5^30 1:updated@20", older(20)), ("1:listed@5~5^30 1:updated@20~6", News),
        ("1:listed@5^30 1:updated@40", News), ("1:listed@5#a~5^30 1:listed@9#a~9^40 1:updated@20#b~7", older(20)),
        // A list, and what was stated for its time or later.
        ("1:updated@40#a 1:listed@5#b^30", OLDER), ("1:updated@40#a 1:listed@50#b^30", News),
        ("1:deleted@40 1:listed@5#a^30", OLDER), ("1:deleted@20 1:listed@5#a^30", News),
        ("1:deleted 1:listed@5#a^30", News), ("1:absent^40 1:listed@5#a^30", OLDER),
        ("1:absent^20 1:listed@5#a^30", News), ("1:listed@5#a^40 1:listed@5#b^30", OLDER),
        ("1:listed@5#a^40 1:listed@6#b^30", News), ("1:deleted@40 1:listed@45^30", News), ("1:deleted@40 1:listed@35^30", OLDER),
        // Two entries of one list: the one that was modified later.
        ("1:listed@5#a^30 1:listed@4#b^30", OLDER), ("1:listed@5#a^30 1:listed@6#b^30", News),
        ("1:listed@5#a^30 1:listed@5#b^30", News), ("1:listed@5#a^30 1:listed@5#a^30", Known),
        // A newer list: content that is another one, or may be.
        ("1:listed@5#a^30 1:listed@9#a^40", Known), ("1:listed@5#a^30 1:listed@5#b^40", News),
        ("1:listed@5+5^30 1:listed@5+6^40", News), ("1:listed@5~5^30 1:listed^40", Known), ("1:listed@5~5^30 1:listed~99^40", News), ("1:listed~99^30 1:listed~99^40", Known),
        ("1:listed@5^30 1:listed@5^40", Known), ("1:listed@5^30 1:listed@6^40", News),
        ("1:listed@5^30 1:listed@4^40", News), ("1:updated@20~9 1:listed@9~9^40", Known),
        ("1:updated@20 1:listed@20^40", Known), ("1:updated@20 1:listed@19^40", News),
        // Absence from a list.
        ("1:listed@5^30 1:absent^40", News), ("1:listed@5^30 1:absent^30", OLDER),
        ("1:updated@20 1:absent^40", News), ("1:updated@40 1:absent^40", OLDER), ("1:updated@45 1:absent^40", OLDER),
        ("1:updated 1:absent^40", OLDER),
        ("1:updated@20 1:listed@20^30 1:absent^25", OLDER),
        // What a hub states counts until the Source states something of that time or later.
        ("1:created@20#a!", News), ("1:updated@10 1:created@20#a!", News), ("1:updated@20 1:created@20#a!", older(20)),
        ("1:listed@5^30 1:updated@20!", older(20)), ("1:listed@5^30 1:deleted@40!", News), ("1:created@20! 1:created@20", News),
        ("1:created@20! 1:created@15#a", News), ("1:created@20! 1:updated@19!", older(19)), ("1:deleted@20! 1:deleted@20!", Known),
        // Each set states for itself.
        ("1:updated@20#a 2:updated@19#b", News), ("1:deleted@20 2:created@15", News), ("1:listed@5^30 2:deleted@20", News),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).1, expected, "{entries}");
    }
}

/// Nothing newer is stated.
#[test]
fn absence_of_what_is_gone_already_is_known() {
    for entries in [
        "1:deleted@20 1:absent^40",
        "1:deleted 1:absent^40",
        "1:absent^30 1:absent^40",
    ] {
        assert_eq!(after(entries).1, Applied::Known, "{entries}");
    }
}

/// A change before the list that names its resource, which counts although it is before that.
#[test]
fn change_that_is_read_again_is_known_although_a_newer_list_names_its_resource() {
    for entries in [
        "1:listed@5#a^30 1:updated@20#b 1:updated@20#b",
        "1:listed@5~5^30 1:updated@20~6 1:updated@20~6",
        "1:updated@20#a 1:listed@20^40 1:updated@20#a",
        "1:updated@20 1:listed@20^40 1:updated@20",
    ] {
        assert_eq!(after(entries).1, Applied::Known, "{entries}");
    }
}

/// Such as of a file that was restored with its former time: the list is older than the change that has restored it.
#[test]
fn change_before_a_list_replaces_no_newer_change() {
    for entries in [
        "1:listed@25~25^30 1:updated@40~6 1:updated@25~25",
        "1:listed@25#a~25^30 1:updated@40#b~6 1:updated@25#a~25",
        "1:listed@25+5~25^30 1:updated@40+6~6 1:updated@25~25",
    ] {
        assert_eq!(after(entries).1, Applied::Older(time(25)), "{entries}");
    }
}

/// The list is older than the change, and states nothing of what has become of it since.
#[test]
fn undated_change_after_one_that_is_newer_than_the_list_is_news() {
    for entries in [
        "1:listed#a^30 1:updated#c 1:updated#b?",
        "1:listed#a^30 1:updated@40#c 1:updated#b?",
    ] {
        assert_eq!(after(entries).1, Applied::News, "{entries}");
    }
}

#[test]
fn midnight_stands_for_the_whole_day() {
    const DAY: i64 = 86_400;
    let deleted = format!("1:deleted@{DAY}");
    for (list, expected) in [
        (DAY + 100, Applied::Older(None)),
        (2 * DAY + 100, Applied::News),
    ] {
        assert_eq!(after(&format!("{deleted} 1:listed@5^{list}")).1, expected);
    }
    let updated = format!("1:updated@{DAY}");
    assert_eq!(
        after(&format!("{updated} 1:absent^{}", DAY + 100)).1,
        Applied::Older(None)
    );
    assert_eq!(
        after(&format!("1:listed@5^{} {updated}#b~9", DAY + 100)).1,
        Applied::News
    );
    // What a hub states of that day may be later.
    let claim = format!("1:updated@{}!", DAY + 100);
    assert_eq!(after(&format!("{updated} {claim}")).1, Applied::News);
    assert_eq!(after(&format!("{claim} {updated}")).0.len(), 2);
}

#[test]
fn only_what_states_content_is_a_reason_to_fetch() {
    #[rustfmt::skip]
    let cases = [
        ("1:updated@20#a", true), ("1:updated@20#a 1:updated@21#b", true), ("1:updated@20#a 1:updated@21", true),
        ("1:updated@20#a 1:deleted@21", false), ("1:updated@20#a 1:absent^30", false),
        ("1:updated@20#a 1:updated", true), ("1:updated 1:updated", true),
        ("1:updated@20#a 1:absent^30 1:listed^40", false), ("1:updated@20#a 1:deleted@21 1:listed@9^40", true),
        ("1:updated@20#a 1:deleted@21 1:listed+5^40", true),
        // Another set has stated it.
        ("1:updated@20#a 2:updated@20#a", false), ("1:updated@20#a 2:updated@20#b", true),
        ("1:updated@20#a 2:created@20#a", true), ("1:updated#a 2:updated#a", true),
        ("1:updated@20#a 2:listed@20#a^40", true), ("1:updated@20#a 2:listed@20^40", false),
        ("1:updated@20#a 2:listed@9^40", true), ("1:updated@20#a 2:listed@21^40", true),
        ("1:updated@20#a 2:listed@9#b^40", true), ("1:deleted@20 2:listed@9^40", true),
        ("1:deleted@20 2:deleted@20", false), ("1:updated@20#a& 1:updated@20#a", true), ("1:updated@20#a! 2:updated@20#a", true),
        // A link states nothing of the content.
        ("1:created& 1:deleted& 1:created&", false), ("1:created& 1:deleted& 1:created@20&", true),
        // The Source confirms what a hub has stated.
        ("1:updated@20! 1:updated@20#a", true),
        ("1:updated@20! 1:updated@21", true), ("1:updated@20! 1:updated@19", true), ("1:deleted@20! 1:updated@20", true),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).2, expected, "{entries}");
    }
}

#[test]
fn statement_of_the_source_ends_what_a_hub_has_stated_until_then() {
    #[rustfmt::skip]
    let cases = [
        ("1:updated@20! 1:updated@19", 2), ("1:updated@20! 1:updated@21", 1), ("1:updated@20! 1:listed@5^30", 1),
        ("1:updated@20! 1:listed@5^15", 2), ("1:updated@20! 2:updated@20", 2),
        // Of the same time: the Source may state more.
        ("1:updated@20! 1:updated@20", 2), ("1:updated@20! 1:deleted@20", 2), ("1:deleted@20! 1:deleted@20", 2),
        ("1:updated@20! 1:listed@5^20", 2), ("1:updated@20! 1:updated@20 1:updated@21", 1),
        // Also where the Source had stated it before.
        ("1:listed@5^10 1:updated@20! 1:listed@5^30", 1), ("1:listed@5^10 1:updated@20! 1:absent^30", 1),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).0.len(), expected, "{entries}");
    }
}

#[test]
fn rejection_counts_while_the_same_deletion_is_stated() {
    #[rustfmt::skip]
    let cases = [
        ("1:listed@5^10 1:deleted@20|1:deleted@20", true), ("1:listed@5^10 1:deleted@20|1:deleted@21", false),
        ("1:listed@5^10 1:deleted@20|1:absent^30", true), ("1:listed@5^10 1:absent^20|1:absent^30", true),
        ("1:listed@5^10 1:absent^20|1:listed@5^30 1:absent^40", false), ("1:listed@5^10 1:deleted@20|1:created@21 1:deleted@22", false),
        // What a hub had stated.
        ("1:listed@5^10 1:deleted@20!|1:deleted@20", true), ("1:listed@5^10 1:deleted@20!|1:absent^30", true),
        ("1:deleted@20!|1:deleted@20", true), ("1:deleted@20!|1:created@22", false), ("1:listed@5^10 1:deleted@20!|1:deleted@15", false),
        ("1:listed@5^10 1:deleted@20!|1:created@21 1:deleted@22", false), ("1:listed@5^10 1:deleted@20!|1:listed@5^30 1:absent^40", false),
    ];
    for (entries, is_rejected) in cases {
        let (before, then) = entries.split_once('|').unwrap();
        let (mut statements, ..) = after(before);
        let mut revision = statements.iter().map(|s| s.revision).max().unwrap();
        let deletion = statements.iter_mut().find(|s| !s.exists());
        deletion.unwrap().is_rejected = true;
        for text in then.split(' ') {
            apply_text(&mut statements, 1, &text[2..], &mut revision);
        }
        let own = statements.iter().find(|s| s.entry.voice == Voice::Source);
        assert_eq!(own.unwrap().is_rejected, is_rejected, "{entries}");
    }
}

#[test]
fn newest_list_that_names_the_resource_is_remembered_while_it_exists() {
    let listed = |list: i64| Stated::Listed(time(list).unwrap());
    let change = Stated::Change;
    use ChangeKind::{Created, Deleted, Updated};
    #[rustfmt::skip]
    let cases = [
        ("1:updated@20", change(Updated), None), ("1:listed@5^30", listed(30), time(30)),
        ("1:listed@5^30 1:updated@40", change(Updated), time(30)), ("1:listed@5~5^30 1:updated@20~6", change(Updated), time(30)),
        ("1:listed@5^30 1:updated", change(Updated), time(30)), ("1:listed@5^30 1:updated@40 1:updated@50", change(Updated), time(30)),
        // It is gone meanwhile.
        ("1:listed@5^30 1:deleted@40", change(Deleted), None), ("1:listed@5^30 1:deleted@40 1:created@41", change(Created), None),
        ("1:listed@5^30 1:absent^40 1:created@41", change(Created), None), ("1:listed@5^30 1:absent^40 1:listed@5^50", listed(50), time(50)),
        // A newer list that states nothing else.
        ("1:listed@5#a^30 1:listed@9#a^40", listed(40), time(40)), ("1:listed@5^30 1:listed^40", listed(40), time(40)),
        ("1:updated@20~9 1:listed@9~9^40", change(Updated), time(40)), ("1:listed@5^30 1:updated@40#a 1:listed@9#a^50", change(Updated), time(50)),
        // An older one.
        ("1:listed@5#a^40 1:listed@6#a^30", listed(40), time(40)), ("1:listed@5#a^40 1:listed@6#b^30", listed(30), time(40)),
        // Of another set.
        ("2:listed@5^30 1:updated@40", change(Updated), None),
    ];
    for (entries, stated, list) in cases {
        let (statements, ..) = after(entries);
        let own = statements.iter().find(|s| s.entry.set == SetKey(1));
        let own = own.unwrap();
        assert_eq!((own.entry.stated, own.listed), (stated, list), "{entries}");
    }
}

proptest! {
    /// In whatever order the changes of a resource arrive, and however often: in the end the latest one is stated.
    #[test]
    fn latest_change_wins(
        changes in proptest::collection::vec((0_usize..3, "[abc]?"), 1..6),
        arrivals in proptest::collection::vec(0_usize..6, 0..24),
        rest in Just((0_usize..6).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let changes: Vec<Entry> = changes.iter().zip(10..).map(|((kind, bytes), at)| {
            entry(1, &match (["created", "updated", "deleted"][*kind], bytes.as_str()) {
                (kind, "") => format!("{kind}@{at}"),
                ("deleted", _) => format!("deleted@{at}"),
                (kind, bytes) => format!("{kind}@{at}#{bytes}"),
            })
        }).collect();
        let (mut statements, mut revision) = (Vec::new(), Revision::default());
        // Each change arrives at least once.
        for n in arrivals.into_iter().chain(rest) {
            let Some(change) = changes.get(n) else {
                continue;
            };
            let newest = statements.iter().map(|s: &Statement| s.entry.at).max();
            let expected = match newest {
                Some(newest) if change.at < newest => Applied::Older(change.at),
                Some(newest) if change.at == newest => Applied::Known,
                _ => Applied::News,
            };
            let before = revision;
            prop_assert_eq!(apply(&mut statements, change, false, &mut revision), expected);
            prop_assert_eq!(before < revision, expected == Applied::News);
        }
        prop_assert_eq!(statements.len(), 1);
        prop_assert_eq!(&statements[0].entry, changes.last().unwrap());
    }
}
