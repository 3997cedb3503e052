//! JSON merge patch (RFC 7396).

use super::error::{Budget, PatchError};
use super::json_value::{Json, find};

/// Merges a patch into a document. Both are no deeper than the limit, and so is the result.
pub(super) fn merge(target: Json, patch: Json, budget: &mut Budget) -> Result<Json, PatchError> {
    let Json::Object(changes) = patch else {
        return Ok(patch);
    };
    let mut members = match target {
        Json::Object(members) => members,
        _ => Vec::new(),
    };
    for (key, change) in changes {
        let known = find(&members, &key, budget)?;
        match (known, change) {
            (Some(at), Json::Null) => {
                budget.spend(members.len() - at)?;
                members.remove(at);
            }
            (None, Json::Null) => {}
            (Some(at), change) => {
                let before = std::mem::replace(&mut members[at].1, Json::Null);
                members[at].1 = merge(before, change, budget)?;
            }
            (None, change) => members.push((key, merge(Json::Null, change, budget)?)),
        }
    }
    Ok(Json::Object(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serialization::{Style, write};

    /// RFC 7396, section 3 and appendix A.
    #[test]
    fn documents_are_merged_as_the_specification_says() {
        for (target, patch, expected) in [
            (
                r#"{"a":"b","c":{"d":"e","f":"g"}}"#,
                r#"{"a":"z","c":{"f":null}}"#,
                r#"{"a":"z","c":{"d":"e"}}"#,
            ),
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let parse = |text| Json::parse(text, "file").unwrap();
            let merged = merge(parse(target), parse(patch), &mut Budget::new()).unwrap();
            let written = write(&merged, &Style::compact(), usize::MAX).unwrap();
            assert_eq!(written, expected.as_bytes(), "{target} {patch}");
        }
    }

    #[test]
    fn work_of_a_merge_is_limited() {
        let object = |prefix: &str| {
            let members = (0..1000).map(|n| (format!("{prefix}{n}").into(), Json::Bool(true)));
            Json::Object(members.collect())
        };
        let mut budget = Budget::of_work(500_000);
        let error = merge(object("a"), object("b"), &mut budget);
        assert_eq!(error, Err(PatchError::Limit("too much work")));
    }
}
