//! JSON Patch (RFC 6902) and merge patch (RFC 7396), on `json-patch` and `serde_json`.

use json_patch::jsonptr::Pointer;
use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::{Map, Value};

use super::error::{Budget, MAX_DEPTH, MAX_NODES, PatchError};

/// The memory of a value, beyond its text, in bytes.
const VALUE_BYTES: usize = 64;

/// Reads a document. `serde_json` limits its depth.
pub(super) fn parse(text: &str, what: &'static str) -> Result<Value, PatchError> {
    // One of these is before each value but the first.
    let before_values = text.bytes().filter(|it| matches!(it, b',' | b'[' | b'{'));
    if before_values.count() >= MAX_NODES {
        return Err(PatchError::Limit("too many values"));
    }
    serde_json::from_str(text).map_err(|_| PatchError::Syntax(what, "no JSON"))
}

/// Applies the operations of a patch to a document, one after the other.
pub(super) fn patch(
    mut document: Value,
    patch: Value,
    budget: &mut Budget,
) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Syntax("patch", "no list of operations"));
    };
    for (number, operation) in operations.into_iter().enumerate() {
        let operation = serde_json::from_value(operation)
            .map_err(|_| PatchError::Operation(number, "it is none of RFC 6902"))?;
        prepare(&mut document, &operation, budget)?;
        let applied = json_patch::patch_unsafe(&mut document, std::slice::from_ref(&operation));
        applied.map_err(|error| match error.kind {
            PatchErrorKind::CannotMoveInsideItself => {
                PatchError::Operation(number, "it moves a value into itself")
            }
            PatchErrorKind::TestFailed => PatchError::Unfit(number, "the value differs"),
            _ => PatchError::Unfit(number, "there is no such value"),
        })?;
    }
    Ok(document)
}

/// Counts the work of an operation and what it adds, and makes the document ready for it.
fn prepare(
    document: &mut Value,
    operation: &PatchOperation,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let depth = operation.path().count();
    // Measured before it is copied: a copy of copies grows exponentially.
    let placed = match operation {
        PatchOperation::Add(add) => Some(&add.value),
        PatchOperation::Replace(replace) => Some(&replace.value),
        PatchOperation::Copy(copy) => document.pointer(copy.from.as_str()),
        PatchOperation::Move(moved) => document.pointer(moved.from.as_str()),
        // A test compares no more than the patch states.
        PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
    };
    let bytes = placed.map_or(Ok(0), |value| measure(value, depth))?;
    match operation {
        PatchOperation::Move(moved) => {
            budget.spend(bytes / VALUE_BYTES)?;
            prepare_removal(document, &moved.from, budget)?;
        }
        PatchOperation::Remove(remove) => prepare_removal(document, &remove.path, budget)?,
        _ => budget.add(bytes)?,
    }
    match parent(document, operation.path()) {
        Some(Value::Array(values)) => budget.spend(values.len()),
        _ => Ok(()),
    }
}

/// Moves the member of an object to its end: `json-patch` puts the last member in the place of the one that it removes.
fn prepare_removal(
    document: &mut Value,
    path: &Pointer,
    budget: &mut Budget,
) -> Result<(), PatchError> {
    let parent = parent(document, path);
    budget.spend(match &parent {
        Some(Value::Array(values)) => values.len(),
        Some(Value::Object(members)) => members.len(),
        _ => 0,
    })?;
    if let (Some(Value::Object(members)), Some(key)) = (parent, path.last())
        && let Some((key, value)) = members.shift_remove_entry(key.decoded().as_ref())
    {
        members.insert(key, value);
    }
    Ok(())
}

fn parent<'a>(document: &'a mut Value, path: &Pointer) -> Option<&'a mut Value> {
    document.pointer_mut(path.parent()?.as_str())
}

/// The memory of a value that is to be below so many others, in bytes.
fn measure(value: &Value, depth: usize) -> Result<usize, PatchError> {
    if depth > MAX_DEPTH {
        return Err(PatchError::Limit("too deep"));
    }
    let mut bytes = VALUE_BYTES;
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => bytes += number.as_str().len(),
        Value::String(text) => bytes += text.len(),
        Value::Array(values) => {
            for value in values {
                bytes += measure(value, depth + 1)?;
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                bytes += key.len() + measure(value, depth + 1)?;
            }
        }
    }
    Ok(bytes)
}

/// Merges a patch into a document. Both are no deeper than the limit, and so is the result. That of `json-patch` changes the order of
/// keys.
pub(super) fn merge(target: Value, patch: Value, budget: &mut Budget) -> Result<Value, PatchError> {
    let Value::Object(changes) = patch else {
        return Ok(patch);
    };
    let mut members = match target {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (key, change) in changes {
        if change.is_null() {
            budget.spend(members.len())?;
            members.shift_remove(&key);
        } else {
            let before = members.get_mut(&key).map(Value::take);
            let merged = merge(before.unwrap_or_default(), change, budget)?;
            members.insert(key, merged);
        }
    }
    Ok(Value::Object(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MAX_WORK;

    fn patched(document: &str, changes: &str) -> Result<String, PatchError> {
        let (document, changes) = (parse(document, "file")?, parse(changes, "patch")?);
        Ok(patch(document, changes, &mut Budget::new(MAX_WORK))?.to_string())
    }

    /// RFC 6902, appendix A; and what the other sections say.
    #[test]
    fn operations_are_those_of_the_specification() {
        for (document, patch, expected) in [
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
                r#"{"foo":"bar","baz":"qux"}"#,
            ),
            (
                r#"{"foo":["bar","baz"]}"#,
                r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
                r#"{"foo":["bar","qux","baz"]}"#,
            ),
            (
                r#"{"baz":"qux","foo":"bar"}"#,
                r#"[{"op":"remove","path":"/baz"}]"#,
                r#"{"foo":"bar"}"#,
            ),
            (
                r#"{"foo":["bar","qux","baz"]}"#,
                r#"[{"op":"remove","path":"/foo/1"}]"#,
                r#"{"foo":["bar","baz"]}"#,
            ),
            (
                r#"{"baz":"qux","foo":"bar"}"#,
                r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
                r#"{"baz":"boo","foo":"bar"}"#,
            ),
            (
                r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
                r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
                r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
            ),
            (
                r#"{"foo":["all","grass","cows","eat"]}"#,
                r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
                r#"{"foo":["all","cows","eat","grass"]}"#,
            ),
            (
                r#"{"baz":"qux","foo":["a",2,"c"]}"#,
                r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
                r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            ),
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
                r#"{"foo":"bar","child":{"grandchild":{}}}"#,
            ),
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#,
                r#"{"foo":"bar","baz":"qux"}"#,
            ),
            (
                r#"{"/":9,"~1":10}"#,
                r#"[{"op":"test","path":"/~01","value":10}]"#,
                r#"{"/":9,"~1":10}"#,
            ),
            (
                r#"{"foo":["bar"]}"#,
                r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
                r#"{"foo":["bar",["abc","def"]]}"#,
            ),
            ("1", r#"[{"op":"replace","path":"","value":[2]}]"#, "[2]"),
            (
                r#"{"":{"":1}}"#,
                r#"[{"op":"replace","path":"//","value":2}]"#,
                r#"{"":{"":2}}"#,
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"add","path":"/a","value":2}]"#,
                r#"{"a":2}"#,
            ),
            (
                r#"{"a":[1]}"#,
                r#"[{"op":"copy","from":"/a","path":"/b"},{"op":"add","path":"/b/0","value":0}]"#,
                r#"{"a":[1],"b":[0,1]}"#,
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"move","from":"/a","path":"/a"}]"#,
                r#"{"a":1}"#,
            ),
            (
                r#"{"a":null}"#,
                r#"[{"op":"test","path":"/a","value":null}]"#,
                r#"{"a":null}"#,
            ),
        ] {
            assert_eq!(patched(document, patch).as_deref(), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn patch_that_does_not_fit_or_is_invalid_is_an_error() {
        for (document, patch, code) in [
            (
                r#"{"baz":"qux"}"#,
                r#"[{"op":"test","path":"/baz","value":"bar"}]"#,
                "patch-unfit",
            ),
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#,
                "patch-unfit",
            ),
            (
                r#"{"/":9,"~1":10}"#,
                r#"[{"op":"test","path":"/~01","value":"10"}]"#,
                "patch-unfit",
            ),
            (
                "[1]",
                r#"[{"op":"add","path":"/2","value":1}]"#,
                "patch-unfit",
            ),
            (
                "[1]",
                r#"[{"op":"add","path":"/01","value":1}]"#,
                "patch-unfit",
            ),
            (
                "[1]",
                r#"[{"op":"replace","path":"/-","value":1}]"#,
                "patch-unfit",
            ),
            ("[1]", r#"[{"op":"remove","path":"/1"}]"#, "patch-unfit"),
            (
                "[1]",
                r#"[{"op":"remove","path":"/18446744073709551616"}]"#,
                "patch-unfit",
            ),
            (
                "{}",
                r#"[{"op":"replace","path":"/a","value":1}]"#,
                "patch-unfit",
            ),
            ("{}", r#"[{"op":"remove","path":"/a"}]"#, "patch-unfit"),
            (
                r#"{"a":{}}"#,
                r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
                "patch-invalid",
            ),
            (
                "1",
                r#"[{"op":"add","path":"/a","value":1}]"#,
                "patch-unfit",
            ),
            ("{}", r#"[{"op":"add","path":"/a"}]"#, "patch-invalid"),
            ("{}", r#"[{"op":"add","value":1}]"#, "patch-invalid"),
            ("{}", r#"[{"op":"spam","path":""}]"#, "patch-invalid"),
            ("{}", r#"[{"path":""}]"#, "patch-invalid"),
            (
                "{}",
                r#"[{"op":"add","path":"a","value":1}]"#,
                "patch-invalid",
            ),
            (
                "{}",
                r#"[{"op":"add","path":"/~2","value":1}]"#,
                "patch-invalid",
            ),
            ("{}", r#"[{"op":"copy","path":"/a"}]"#, "patch-invalid"),
            ("{}", "[1]", "patch-invalid"),
            ("{}", "{}", "patch-unreadable"),
        ] {
            let error = patched(document, patch).unwrap_err();
            assert_eq!(error.code(), code, "{patch}: {error}");
        }
    }

    #[test]
    fn copies_of_copies_are_stopped() {
        let copies = r#"{"op":"copy","from":"","path":"/-"},"#.repeat(100);
        let patch = format!("[{}]", copies.trim_end_matches(','));
        assert_eq!(patched("[0]", &patch).unwrap_err().code(), "patch-limit");
        // Their depth grows, too.
        let nested = r#"{"op":"copy","from":"","path":"/a"},"#.repeat(2 * MAX_DEPTH);
        let patch = format!("[{}]", nested.trim_end_matches(','));
        let error = patched("{}", &patch).unwrap_err();
        assert_eq!(error, PatchError::Limit("too deep"));
    }

    #[test]
    fn order_of_keys_and_spelling_of_numbers_are_retained() {
        let document = r#"{"d":1.50,"c":[-0,1e-07],"b":12345678901234567890123,"a":0.10}"#;
        for (changes, expected) in [
            (
                r#"[{"op":"remove","path":"/c"}]"#,
                r#"{"d":1.50,"b":12345678901234567890123,"a":0.10}"#,
            ),
            (
                r#"[{"op":"move","from":"/d","path":"/c/1"}]"#,
                r#"{"c":[-0,1.50,1e-07],"b":12345678901234567890123,"a":0.10}"#,
            ),
            (
                r#"[{"op":"replace","path":"/d","value":2.0}]"#,
                r#"{"d":2.0,"c":[-0,1e-07],"b":12345678901234567890123,"a":0.10}"#,
            ),
        ] {
            let result = patched(document, changes);
            assert_eq!(result.as_deref(), Ok(expected), "{changes}");
        }
    }

    fn list(operation: &str, number: usize) -> Value {
        let operation: Value = serde_json::from_str(operation).unwrap();
        vec![operation; number].into()
    }

    #[test]
    fn work_of_a_patch_is_limited() {
        let array = Value::from(vec![0; 1000]);
        let members = (0..1000).map(|n| (format!("k{n}"), Value::from(n)));
        let object = Value::from(Map::from_iter(members));
        let nested = Value::from(Map::from_iter([("a".to_owned(), array.clone())]));
        for (document, operation) in [
            (&array, r#"{"op":"add","path":"/0","value":0}"#),
            (&array, r#"{"op":"copy","from":"/0","path":"/0"}"#),
            (&array, r#"{"op":"move","from":"/0","path":"/999"}"#),
            (&object, r#"{"op":"move","from":"/k0","path":"/k0"}"#),
            (&nested, r#"{"op":"move","from":"/a","path":"/a"}"#),
        ] {
            for (work, fits) in [(5_000_000, true), (500_000, false)] {
                let mut budget = Budget::new(work);
                let patched = patch(document.clone(), list(operation, 1000), &mut budget);
                assert_eq!(patched.is_ok(), fits, "{operation}");
            }
        }
    }

    #[test]
    fn long_numbers_texts_and_keys_count_by_their_length() {
        let long = "1".repeat(100_000);
        for document in [
            format!(r#"{{"a":{long}}}"#),
            format!(r#"{{"a":"{long}"}}"#),
            format!(r#"{{"a":{{"{long}":0}}}}"#),
        ] {
            let document = parse(&document, "file").unwrap();
            let copies = list(r#"{"op":"copy","from":"/a","path":"/b"}"#, 1000);
            let error = patch(document, copies, &mut Budget::new(MAX_WORK));
            assert_eq!(error, Err(PatchError::Limit("it adds too much")));
        }
    }

    #[test]
    fn many_or_deep_values_are_not_read() {
        let many = format!("[{}0]", "0,".repeat(MAX_NODES));
        let error = parse(&many, "file");
        assert_eq!(error, Err(PatchError::Limit("too many values")));
        let deep = "[".repeat(100_000);
        assert_eq!(parse(&deep, "file").unwrap_err().code(), "patch-unreadable");
    }

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
            let parse = |text| parse(text, "file").unwrap();
            let merged = merge(parse(target), parse(patch), &mut Budget::new(MAX_WORK)).unwrap();
            assert_eq!(merged.to_string(), expected, "{target} {patch}");
        }
    }

    #[test]
    fn work_of_a_merge_is_limited() {
        let object = |prefix: &str, value: Value| {
            let members = (0..1000).map(|n| (format!("{prefix}{n}"), value.clone()));
            Value::from(Map::from_iter(members))
        };
        let mut budget = Budget::new(500_000);
        let error = merge(object("a", 1.into()), object("b", Value::Null), &mut budget);
        assert_eq!(error, Err(PatchError::Limit("too much work")));
    }
}
