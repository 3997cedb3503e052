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
    let older = |seconds| Applied::Older(time(seconds).unwrap());
    #[rustfmt::skip]
    let cases = [
        // Nothing is stated.
        ("1:created@20#a", News), ("1:deleted", News), ("1:listed^30", News), ("1:absent^30", News),
        // Dated changes: the later one counts.
        ("1:created@20#a 1:updated@19#b", older(19)), ("1:created@20#a 1:deleted@19", older(19)),
        ("1:deleted@20 1:created@19#b", older(19)), ("1:created@20#a 1:updated@21#b", News),
        ("1:created@20#a 1:deleted@21", News), ("1:deleted@20 1:created@21#a", News),
        ("1:deleted@20 1:deleted@21", News), ("1:deleted@20 1:deleted@18", older(18)),
        // Of the same time: the later entry, unless it states the same or is overtaken.
        ("1:updated@20#a 1:updated@20#b", News), ("1:updated@20#a 1:updated@20#b?", Known),
        ("1:updated@20#a 1:updated@20#a", Known), ("1:created@20#a 1:updated@20#a", Known),
        ("1:updated@20+5 1:updated@20+6", News), ("1:updated@20 1:updated@20", Known),
        ("1:created@20 1:updated@20", News), ("1:listed@20^15 1:updated@20", Known),
        ("1:updated@20#a 1:deleted@20", News), ("1:updated@20#a 1:deleted@20?", Known),
        ("1:deleted@20 1:created@20#a", News), ("1:deleted@20 1:deleted@20", Known),
        // Undated changes: what can't be distinguished from what is stated is known.
        ("1:updated@20#a 1:updated", News), ("1:updated@20#a 1:updated#a", Known),
        ("1:updated@20#a 1:updated#b", News), ("1:updated@20#a 1:deleted", News),
        ("1:deleted@20 1:deleted", Known), ("1:deleted@20 1:created#a", News),
        ("1:updated 1:updated", News), ("1:updated#a 1:updated@20#b", News), ("1:updated#a 1:updated@20#a", News),
        ("1:listed#a^30 1:updated#b?", Known), ("1:listed#a^30 1:updated#b", News),
        ("1:updated@20#a 1:updated#b?", News), ("1:listed#a^30 1:deleted?", News),
        // A change before a list that names its resource.
        ("1:listed@5^30 1:deleted@20", Known), ("1:listed@5^30 1:deleted@30", News),
        ("1:listed@5#a^30 1:updated@20#a", Known), ("1:listed@5#a^30 1:updated@20#b", News),
        ("1:listed#a^30 1:updated@20#b", Known), ("1:listed@25#a^30 1:updated@20#b", older(20)),
        ("1:listed@5#a~5^30 1:updated@20#b~4", Known), ("1:listed@5#a~5^30 1:updated@20#b~6", News),
        ("1:listed@5^30 1:updated@20", Known), ("1:listed@5~5^30 1:updated@20~6", News),
        ("1:listed@5^30 1:updated@40", News), ("1:listed@5#a~5^30 1:listed@9#a~9^40 1:updated@20#b~7", Known),
        // A list, and what was stated for its time or later.
        ("1:updated@40#a 1:listed@5#b^30", Known), ("1:updated@40#a 1:listed@50#b^30", News),
        ("1:deleted@40 1:listed@5#a^30", Known), ("1:deleted@20 1:listed@5#a^30", News),
        ("1:deleted 1:listed@5#a^30", News), ("1:absent^40 1:listed@5#a^30", Known),
        ("1:absent^20 1:listed@5#a^30", News), ("1:listed@5#a^40 1:listed@5#b^30", Known),
        ("1:listed@5#a^40 1:listed@6#b^30", News),
        // Two entries of one list: the one that was modified later.
        ("1:listed@5#a^30 1:listed@4#b^30", Known), ("1:listed@5#a^30 1:listed@6#b^30", News),
        ("1:listed@5#a^30 1:listed@5#b^30", News),
        // A newer list: content that is another one, or may be.
        ("1:listed@5#a^30 1:listed@9#a^40", Known), ("1:listed@5#a^30 1:listed@5#b^40", News),
        ("1:listed@5+5^30 1:listed@5+6^40", News), ("1:listed@5~5^30 1:listed^40", Known),
        ("1:listed@5^30 1:listed@5^40", Known), ("1:listed@5^30 1:listed@6^40", News),
        ("1:listed@5^30 1:listed@4^40", News), ("1:updated@20~9 1:listed@9~9^40", Known),
        ("1:updated@20 1:listed@20^40", Known), ("1:updated@20 1:listed@19^40", News),
        // Absence from a list.
        ("1:listed@5^30 1:absent^40", News), ("1:listed@5^30 1:absent^30", Known),
        ("1:updated@20 1:absent^40", News), ("1:updated@40 1:absent^40", Known), ("1:updated@45 1:absent^40", Known),
        ("1:updated 1:absent^40", Known), ("1:deleted@20 1:absent^40", Known),
        ("1:updated@20 1:listed@20^30 1:absent^25", Known),
        // What a hub states counts until the Source states something of that time or later.
        ("1:created@20#a!", News), ("1:updated@10 1:created@20#a!", News), ("1:updated@20 1:created@20#a!", Known),
        ("1:listed@5^30 1:updated@20!", Known), ("1:listed@5^30 1:deleted@40!", News), ("1:created@20! 1:created@20", News),
        ("1:created@20! 1:created@15#a", News), ("1:created@20! 1:updated@19!", older(19)), ("1:deleted@20! 1:deleted@20!", Known),
        // Each set states for itself.
        ("1:updated@20#a 2:updated@19#b", News), ("1:deleted@20 2:created@15", News), ("1:listed@5^30 2:deleted@20", News),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).1, expected, "{entries}");
    }
}

#[test]
fn midnight_stands_for_the_whole_day() {
    const DAY: i64 = 86_400;
    let deleted = format!("1:deleted@{DAY}");
    for (list, expected) in [(DAY + 100, Applied::Known), (2 * DAY + 100, Applied::News)] {
        assert_eq!(after(&format!("{deleted} 1:listed@5^{list}")).1, expected);
    }
    let updated = format!("1:updated@{DAY}");
    assert_eq!(
        after(&format!("{updated} 1:absent^{}", DAY + 100)).1,
        Applied::Known
    );
    assert_eq!(
        after(&format!("1:listed@5^{} {updated}#b~9", DAY + 100)).1,
        Applied::News
    );
}

#[test]
fn only_what_states_content_is_a_reason_to_fetch() {
    #[rustfmt::skip]
    let cases = [
        ("1:updated@20#a", true), ("1:updated@20#a 1:updated@21#b", true), ("1:updated@20#a 1:updated@21", true),
        ("1:updated@20#a 1:deleted@21", false), ("1:updated@20#a 1:absent^30", false),
        ("1:updated@20#a 1:absent^30 1:listed^40", false), ("1:updated@20#a 1:deleted@21 1:listed@9^40", true),
        ("1:updated@20#a 1:deleted@21 1:listed+5^40", true),
        // Another set has stated it.
        ("1:updated@20#a 2:updated@20#a", false), ("1:updated@20#a 2:updated@20#b", true),
        ("1:updated@20#a 2:created@20#a", true), ("1:updated#a 2:updated#a", true),
        ("1:updated@20#a 2:listed@20#a^40", true), ("1:updated@20#a 2:listed@20^40", false),
        ("1:updated@20#a 2:listed@9^40", false), ("1:updated@20#a 2:listed@21^40", true),
        ("1:updated@20#a 2:listed@9#b^40", true), ("1:deleted@20 2:listed@9^40", true),
        ("1:deleted@20 2:deleted@20", false), ("1:updated@20#a& 1:updated@20#a", true), ("1:updated@20#a! 2:updated@20#a", true),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).2, expected, "{entries}");
    }
}

#[test]
fn statement_of_the_source_ends_what_a_hub_has_stated_until_then() {
    #[rustfmt::skip]
    let cases = [
        ("1:updated@20! 1:updated@19", 2), ("1:updated@20! 1:updated@20", 1), ("1:updated@20! 1:listed@5^30", 1),
        ("1:updated@20! 1:listed@5^15", 2), ("1:updated@20! 2:updated@20", 2),
        // Also where the Source had stated it before.
        ("1:listed@5^10 1:updated@20! 1:listed@5^30", 1), ("1:listed@5^10 1:updated@20! 1:absent^30", 1),
    ];
    for (entries, expected) in cases {
        assert_eq!(after(entries).0.len(), expected, "{entries}");
    }
}

#[test]
fn rejection_counts_while_the_same_deletion_is_stated() {
    for (entries, is_rejected) in [
        ("1:listed@5^10 1:deleted@20|1:deleted@20", true),
        ("1:listed@5^10 1:deleted@20|1:deleted@21", false),
        ("1:listed@5^10 1:deleted@20|1:absent^30", true),
        ("1:listed@5^10 1:absent^20|1:absent^30", true),
        ("1:listed@5^10 1:absent^20|1:listed@5^30 1:absent^40", false),
        (
            "1:listed@5^10 1:deleted@20|1:created@21 1:deleted@22",
            false,
        ),
    ] {
        let (before, then) = entries.split_once('|').unwrap();
        let (mut statements, ..) = after(before);
        let mut revision = statements[0].revision;
        statements[0].is_rejected = true;
        for text in then.split(' ') {
            apply_text(&mut statements, 1, &text[2..], &mut revision);
        }
        assert_eq!(statements[0].is_rejected, is_rejected, "{entries}");
    }
}
