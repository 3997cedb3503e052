//! Applies a patch of any kind.

use super::error::{Budget, MAX_BYTES, MAX_WORK, PatchError};
use super::json_style::Style;
use super::kind::PatchKind;
use super::{json, xml};

/// The limit on the length of a patch, and on that of the file to which it is applied, in bytes.
pub const MAX_PATCH_BYTES: u64 = 16 << 20;

/// Applies a patch to a file. What the file may be then, the most likely first: data of JSON, and empty elements of XML, are written
/// in more than one way. `length`: that of the result in bytes, if it is known; a longer one is not returned.
///
/// # Errors
/// The patch does not fit the file, is invalid or exceeds a limit.
pub fn apply_patch<'a>(
    kind: PatchKind,
    file: &'a [u8],
    patch: &[u8],
    length: Option<u64>,
) -> Result<Box<dyn Iterator<Item = Vec<u8>> + 'a>, PatchError> {
    let limit = length.and_then(|length| usize::try_from(length).ok());
    let limit = limit.map_or(MAX_BYTES, |limit| limit.min(MAX_BYTES));
    let (mark, file) = text(file, "file")?;
    let (_, patch) = text(patch, "patch")?;
    let mut budget = Budget::new(MAX_WORK);
    let results: Box<dyn Iterator<Item = String> + 'a> = match kind {
        PatchKind::Json | PatchKind::Merge => {
            let apply = match kind {
                PatchKind::Merge => json::merge,
                _ => json::patch,
            };
            let styles = Style::of(file, &json::parse(file, "file")?);
            if styles.is_empty() {
                return Err(PatchError::Syntax("file", "its style is unknown"));
            }
            // Read again, so that only one of them is in memory.
            let (before, patch) = (json::parse(file, "file")?, json::parse(patch, "patch")?);
            let after = apply(before, patch, &mut budget)?;
            let write = move |style: Style<'_>| style.write(&after, limit);
            Box::new(styles.into_iter().filter_map(write))
        }
        PatchKind::Xml => Box::new(xml::apply(file, patch, &mut budget)?.into_iter()),
    };
    let results = results.map(move |result| format!("{mark}{result}").into_bytes());
    let results = results.filter(move |result| result.len() <= limit);
    Ok(Box::new(results))
}

/// The byte order mark of a text, and what follows it.
fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<(&'a str, &'a str), PatchError> {
    if bytes.len() as u64 > MAX_PATCH_BYTES {
        return Err(PatchError::Limit("too long"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| PatchError::Syntax(what, "no UTF-8"))?;
    let unmarked = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(text.split_at(text.len() - unmarked.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn results_are_tried_in_the_style_of_the_file() {
        let file = b"{\n  \"a\": 1.0,\n  \"b\": \"\xc3\xa9\"\n}\n";
        let patch = br#"[{"op":"replace","path":"/b","value":"\u00fc"}]"#;
        let mut results = apply_patch(PatchKind::Json, file, patch, None).unwrap();
        let expected = "{\n  \"a\": 1.0,\n  \"b\": \"ü\"\n}\n";
        assert_eq!(results.next().as_deref(), Some(expected.as_bytes()));
        let merging = "{\"b\":\"ü\"}".as_bytes();
        let length = Some(expected.len() as u64);
        let mut results = apply_patch(PatchKind::Merge, file, merging, length).unwrap();
        assert_eq!(results.next().as_deref(), Some(expected.as_bytes()));
        assert!(results.all(|it| it.len() <= expected.len()));
    }

    #[test]
    fn document_of_xml_retains_its_bytes() {
        let file = "\u{feff}<?xml version='1.0'?>\r\n<a  b = 'c' >\r\n<d/>é</a >\n";
        let patch = br#"<diff><replace sel="a/d"><e/></replace></diff>"#;
        let expected = file.replace("<d/>", "<e/>");
        for (length, is_there) in [(None, true), (Some(expected.len() as u64 - 1), false)] {
            let mut results = apply_patch(PatchKind::Xml, file.as_bytes(), patch, length).unwrap();
            let result = results.next();
            assert_eq!(result.is_some(), is_there);
            assert!(result.is_none_or(|result| result == expected.as_bytes()));
            assert_eq!(results.next(), None);
        }
    }

    #[test]
    fn long_patches_and_files_are_not_read() {
        let long = vec![b' '; usize::try_from(MAX_PATCH_BYTES).unwrap() + 1];
        for (file, patch) in [(&long[..], &b"[]"[..]), (b"[]", &long)] {
            let error = apply_patch(PatchKind::Json, file, patch, None).err();
            assert_eq!(error, Some(PatchError::Limit("too long")));
        }
    }

    proptest! {
        #[test]
        fn application_is_total(file in any::<Vec<u8>>(), patch in any::<Vec<u8>>(), length in any::<Option<u64>>()) {
            for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Xml] {
                if let Ok(results) = apply_patch(kind, &file, &patch, length) {
                    prop_assert!(results.count() <= 6);
                }
            }
        }
    }
}
