//! Lengths of time and texts, for people.

use chrono::{DateTime, TimeDelta, Utc};

/// An age or a remaining time in its largest unit: at most seven characters up to a hundred years.
pub(super) fn short_time(time: TimeDelta) -> String {
    let seconds = time.num_seconds().max(0);
    let (number, unit) = match seconds {
        0..60 => (seconds, "s"),
        60..3600 => (seconds / 60, "min"),
        3600..172_800 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{number} {unit}")
}

/// A time, and how long ago it is or how far ahead: `2026-01-03T00:10:00Z (5 min ago)`. A text that is no time stays as it is.
pub(super) fn with_age(time: &str, now: Option<DateTime<Utc>>) -> String {
    let (Ok(parsed), Some(now)) = (time.parse::<DateTime<Utc>>(), now) else {
        return time.to_owned();
    };
    let passed = now - parsed;
    if passed < TimeDelta::zero() {
        format!("{time} (in {})", short_time(-passed))
    } else {
        format!("{time} ({} ago)", short_time(passed))
    }
}

/// How long ago a time is; `None`: it is no time.
pub(super) fn age(time: &str, now: Option<DateTime<Utc>>) -> Option<TimeDelta> {
    Some(now? - time.parse::<DateTime<Utc>>().ok()?)
}

/// A text in lines of at most `width` characters, broken at spaces; a longer word is not broken. The first line begins with `first`
/// and the others with as many spaces.
pub(super) fn wrapped(text: &str, first: &str, width: usize) -> Vec<String> {
    let indent = first.chars().count();
    let mut lines = Vec::new();
    let (mut line, mut has_word) = (first.to_owned(), false);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_full = line.chars().count() + 1 + word.chars().count() > width;
        if has_word && is_full {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            has_word = false;
        }
        if has_word {
            line.push(' ');
        }
        line.push_str(word);
        has_word = true;
    }
    lines.push(line);
    lines
}

/// A text of at most `width` characters, the last of which shows whether more were cut off.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() > width {
        text.chars().take(width - 1).chain(['…']).collect()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_unit() {
        for (seconds, expected) in [
            (-5, "0 s"),
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (172_799, "47 h"),
            (172_800, "2 d"),
            (36_500 * 86_400, "36500 d"),
        ] {
            let text = short_time(TimeDelta::seconds(seconds));
            assert_eq!(text, expected);
            assert!(text.len() <= 7);
        }
    }

    #[test]
    fn times_are_shown_with_their_distance() {
        let now = "2026-01-03T00:10:00Z".parse().ok();
        for (time, expected) in [
            ("2026-01-03T00:05:00Z", "2026-01-03T00:05:00Z (5 min ago)"),
            ("2026-01-03T02:10:00Z", "2026-01-03T02:10:00Z (in 2 h)"),
            ("then", "then"),
        ] {
            assert_eq!(with_age(time, now), expected);
        }
        assert_eq!(
            with_age("2026-01-03T00:05:00Z", None),
            "2026-01-03T00:05:00Z"
        );
        assert_eq!(age("then", now), None);
    }

    #[test]
    fn texts_are_broken_at_spaces_and_words_are_not() {
        for (text, width, expected) in [
            ("", 10, &["! "][..]),
            ("one two", 10, &["! one two"]),
            ("one two three", 10, &["! one two", "  three"]),
            ("1234567890123 one", 10, &["! 1234567890123", "  one"]),
        ] {
            assert_eq!(wrapped(text, "! ", width), expected);
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("länger", 6), "länger");
        assert_eq!(cut("länger", 5), "läng…");
    }
}
