//! Text for a terminal or a log: nothing in it controls what displays it, and none of its characters is invisible or alters the order
//! of others.

use std::fmt::Write;

/// Whether a character must not reach a terminal as it is: controls (C0, C1), separators of lines and paragraphs, marks of direction,
/// and what is displayed as nothing (Unicode's Default_Ignorable_Code_Point and the annotation marks): text that has it may be read as
/// another.
pub(super) fn is_deceptive(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Makes remote text safe to display on one line: what is deceptive is escaped as Rust writes it, such as `\n` and
/// `\u{202e}`, and the text is cut after `longest` bytes.
#[must_use]
pub fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::with_capacity(text.len().min(longest));
    for character in text.chars() {
        if line.len() >= longest {
            line.push('…');
            break;
        }
        if is_deceptive(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

/// JSON of the same values, with the deceptive characters of its texts escaped. Line breaks between the tokens stay.
#[must_use]
pub fn visible_json(json: &str) -> String {
    let mut visible = String::with_capacity(json.len());
    for character in json.chars() {
        if character != '\n' && is_deceptive(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String can't fail.
                let _ = write!(visible, "\\u{unit:04x}");
            }
        } else {
            visible.push(character);
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deceptive_characters_are_escaped_and_no_others() {
        for (text, expected) in [
            ("uri=http://a.example/ä?b=\"c\\d\" ☃", None),
            ("a\nERROR forged", Some("a\\nERROR forged")),
            ("\u{1b}[2J\r\u{7}\u{7f}", Some("\\u{1b}[2J\\r\\u{7}\\u{7f}")),
            ("\u{9b}31m\u{0}\u{85}", Some("\\u{9b}31m\\u{0}\\u{85}")),
            ("a\u{202e}txt", Some("a\\u{202e}txt")),
            (
                "\u{2066}\u{61c}\u{200e}",
                Some("\\u{2066}\\u{61c}\\u{200e}"),
            ),
            ("a\u{2028}b\u{2029}", Some("a\\u{2028}b\\u{2029}")),
            (
                "\u{feff}a\u{200b}\u{ad}",
                Some("\\u{feff}a\\u{200b}\\u{ad}"),
            ),
            ("\u{e0041}\u{fff9}", Some("\\u{e0041}\\u{fff9}")),
        ] {
            assert_eq!(one_line(text, usize::MAX), expected.unwrap_or(text));
        }
        let long = "ä".repeat(40);
        assert_eq!(one_line(&long, 64), format!("{}…", "ä".repeat(32)));
    }

    #[test]
    fn json_keeps_its_values() {
        let all: String = (0..=0x10_ffff).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ &all: [&all, 1] });
        for json in [
            value.to_string(),
            serde_json::to_string_pretty(&value).unwrap(),
        ] {
            let visible = visible_json(&json);
            assert!(!visible.chars().any(|it| it != '\n' && is_deceptive(it)));
            let read: serde_json::Value = serde_json::from_str(&visible).unwrap();
            assert!(read == value);
        }
    }
}
