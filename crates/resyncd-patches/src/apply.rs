//! Applies a patch of any kind.

use super::error::{Budget, MAX_BYTES, MAX_WRITTEN, PatchError};
use super::json_value::Json;
use super::kind::PatchKind;
use super::merge::merge;
use super::serialization::{Style, write};
use super::{json, xml};

/// The limit on the length of a patch, and on that of the file to which it is applied, in bytes.
pub const MAX_PATCH_BYTES: u64 = 16 << 20;

/// As so many bytes a value counts that is written: it may be sorted by its key, or spelled anew.
const BYTES_A_VALUE: usize = 64;

/// The byte order mark.
const MARK: &str = "\u{feff}";

/// What a file may be after a patch. Data of JSON is written in one style after the other; what a patch of XML does not touch stays as
/// it is, so that there are one or two results.
#[derive(Debug)]
pub struct PatchedBytes {
    results: Results,
    limit: usize,
    /// How many bytes may still be written.
    left: usize,
    /// What counts at least as written each time: all texts are read, and all values visited or sorted.
    least: usize,
}

#[derive(Debug)]
enum Results {
    /// With the styles that were not tried, the next one last.
    Json(Json, Vec<Style>),
    /// The next one last.
    Xml(Vec<String>),
}

impl Iterator for PatchedBytes {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match &mut self.results {
            Results::Json(value, styles) => {
                while let Some(style) = styles.pop().filter(|_| self.left > 0) {
                    let written = write(value, &style, self.limit);
                    let length = written.as_ref().map_or(self.limit, Vec::len);
                    self.left = self.left.saturating_sub(length.max(self.least));
                    if written.is_some() {
                        return written;
                    }
                }
                None
            }
            Results::Xml(results) => {
                let mut results = std::iter::from_fn(|| results.pop());
                let result = results.find(|result| result.len() <= self.limit);
                result.map(String::into_bytes)
            }
        }
    }
}

/// Applies a patch to a file. `length`: that of the result in bytes, if it is known; a longer one is not returned.
///
/// # Errors
/// The patch does not fit the file, is invalid or exceeds a limit.
pub fn apply_patch(
    kind: PatchKind,
    file: &[u8],
    patch: &[u8],
    length: Option<u64>,
) -> Result<PatchedBytes, PatchError> {
    for bytes in [file, patch] {
        if bytes.len() as u64 > MAX_PATCH_BYTES {
            return Err(PatchError::Limit("too long"));
        }
    }
    let limit = length.and_then(|length| usize::try_from(length).ok());
    let limit = limit.map_or(MAX_BYTES, |limit| limit.min(MAX_BYTES));
    let (file, patch) = (text(file, "file")?, text(patch, "patch")?);
    let mut budget = Budget::new();
    let budget = &mut budget;
    let mut least = 0;
    let results = match kind {
        PatchKind::Json | PatchKind::Merge => {
            let before = Json::parse(without_mark(file).1, "file")?;
            let changes = Json::parse(without_mark(patch).1, "patch")?;
            let was_sorted = before.is_sorted();
            let value = match kind {
                PatchKind::Merge => merge(before, changes, budget)?,
                _ => json::apply(before, changes, budget)?,
            };
            let size = value.size();
            least = size.bytes + size.nodes * BYTES_A_VALUE;
            let mut styles = Style::likely(file, was_sorted, &value);
            styles.reverse();
            Results::Json(value, styles)
        }
        PatchKind::Xml => {
            let (mark, file) = without_mark(file);
            let mut patched = xml::apply(file, without_mark(patch).1, budget)?;
            patched.reverse();
            let marked = patched.into_iter().map(|it| format!("{mark}{it}"));
            Results::Xml(marked.collect())
        }
    };
    Ok(PatchedBytes {
        results,
        limit,
        left: MAX_WRITTEN,
        least,
    })
}

/// A text after its byte order mark, and that.
fn without_mark(text: &str) -> (&str, &str) {
    match text.strip_prefix(MARK) {
        Some(rest) => (MARK, rest),
        None => ("", text),
    }
}

fn text<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, PatchError> {
    std::str::from_utf8(bytes).map_err(|error| PatchError::Syntax {
        what,
        reason: "no UTF-8",
        position: error.valid_up_to(),
    })
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
    fn bytes_that_are_written_are_limited_in_all() {
        let mut results = apply_patch(PatchKind::Json, b"[1,{}]", b"[]", None).unwrap();
        assert_eq!(results.left, MAX_WRITTEN);
        // A text of one byte, and three values.
        assert_eq!(results.least, 1 + 3 * BYTES_A_VALUE);
        results.left = 2 * results.least + 1;
        assert_eq!(results.next().as_deref(), Some(&b"[1,{}]"[..]));
        assert_eq!(results.count(), 2);
        // What is too long to be returned counts, too.
        let mut results = apply_patch(PatchKind::Json, b"[1,{}]", b"[]", Some(4)).unwrap();
        results.left = 5;
        assert_eq!(results.next(), None);
        assert_eq!(results.left, 0);
    }

    #[test]
    fn long_patches_and_files_are_not_read() {
        let long = vec![b' '; usize::try_from(MAX_PATCH_BYTES).unwrap() + 1];
        for (file, patch) in [(&long[..], &b"[]"[..]), (b"[]", &long)] {
            let error = apply_patch(PatchKind::Json, file, patch, None).unwrap_err();
            assert_eq!(error, PatchError::Limit("too long"));
        }
    }

    proptest! {
        #[test]
        fn application_is_total(file in any::<Vec<u8>>(), patch in any::<Vec<u8>>(), length in any::<Option<u64>>()) {
            for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::Xml] {
                if let Ok(results) = apply_patch(kind, &file, &patch, length) {
                    prop_assert!(results.count() <= 96);
                }
            }
        }
    }
}
