//! JSON Patch (RFC 6902), with JSON Pointer (RFC 6901).

use super::error::{Budget, MAX_DEPTH, PatchError};
use super::json_value::{Json, find};

/// Applies the operations of a patch to a document, one after the other.
pub(super) fn apply(
    mut document: Json,
    patch: Json,
    budget: &mut Budget,
) -> Result<Json, PatchError> {
    let Json::Array(operations) = patch else {
        return Err(PatchError::Syntax {
            what: "patch",
            reason: "no list of operations",
            position: 0,
        });
    };
    for (number, operation) in operations.into_iter().enumerate() {
        let budget = &mut *budget;
        JsonApplication { number, budget }.apply(&mut document, operation)?;
    }
    Ok(document)
}

/// The application of one operation.
struct JsonApplication<'a> {
    number: usize,
    budget: &'a mut Budget,
}

impl JsonApplication<'_> {
    fn invalid(&self, reason: &'static str) -> PatchError {
        PatchError::invalid(self.number, reason)
    }

    fn unfit(&self, reason: &'static str) -> PatchError {
        PatchError::unfit(self.number, reason)
    }

    fn apply(&mut self, document: &mut Json, operation: Json) -> Result<(), PatchError> {
        let Json::Object(members) = operation else {
            return Err(self.invalid("it is no object"));
        };
        let (mut op, mut path, mut from, mut value) = (None, None, None, None);
        for (key, member) in members {
            match (&*key, member) {
                ("op", Json::String(text)) => op = Some(text),
                ("path", Json::String(text)) => path = Some(self.pointer(&text)?),
                ("from", Json::String(text)) => from = Some(self.pointer(&text)?),
                ("value", member) => value = Some(member),
                // Others are ignored (section 4).
                _ => {}
            }
        }
        let path = path.ok_or_else(|| self.invalid("`path` is missing"))?;
        match op.as_deref() {
            Some("add") => {
                let value = value.ok_or_else(|| self.invalid("`value` is missing"))?;
                self.add(document, &path, value)
            }
            Some("remove") => self.remove(document, &path).map(drop),
            Some("replace") => {
                let value = value.ok_or_else(|| self.invalid("`value` is missing"))?;
                self.measure(&value, path.len())?;
                *self.find_mut(document, &path)? = value;
                Ok(())
            }
            Some("move") => {
                let from = from.ok_or_else(|| self.invalid("`from` is missing"))?;
                if path.len() > from.len() && path.starts_with(&from) {
                    return Err(self.invalid("it moves a value into itself"));
                }
                let value = self.remove(document, &from)?;
                self.add(document, &path, value)
            }
            Some("copy") => {
                let from = from.ok_or_else(|| self.invalid("`from` is missing"))?;
                let found = self.find_mut(document, &from)?;
                // Measured before it is copied: a copy of copies grows exponentially.
                self.measure(found, path.len())?;
                let value = found.clone();
                self.insert(document, &path, value)
            }
            Some("test") => {
                let value = value.ok_or_else(|| self.invalid("`value` is missing"))?;
                let found = self.find_mut(document, &path)?;
                match found.is_same(&value, self.budget)? {
                    true => Ok(()),
                    false => Err(self.unfit("`test` failed: the value differs")),
                }
            }
            _ => Err(self.invalid("it has no known op")),
        }
    }

    /// Counts a value that is to be added below so many others.
    fn measure(&mut self, value: &Json, above: usize) -> Result<(), PatchError> {
        let size = value.size();
        if above + size.depth > MAX_DEPTH {
            return Err(PatchError::Limit("too deep"));
        }
        self.budget.add(size.nodes, size.bytes)
    }

    /// The tokens of a pointer.
    fn pointer(&self, text: &str) -> Result<Vec<String>, PatchError> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let Some(text) = text.strip_prefix('/') else {
            return Err(self.invalid("a pointer does not begin with a slash"));
        };
        let mut tokens = Vec::new();
        for token in text.split('/') {
            let mut escapes = token.split('~').skip(1);
            if !escapes.all(|after| after.starts_with(['0', '1'])) {
                return Err(self.invalid("a pointer has an unknown escape"));
            }
            if tokens.len() == MAX_DEPTH {
                return Err(PatchError::Limit("too deep"));
            }
            tokens.push(token.replace("~1", "/").replace("~0", "~"));
        }
        Ok(tokens)
    }

    fn index(&self, token: &str) -> Result<usize, PatchError> {
        let is_number = token.bytes().all(|byte| byte.is_ascii_digit());
        let is_spelled =
            is_number && !token.is_empty() && (token == "0" || !token.starts_with('0'));
        let index = token.parse().ok().filter(|_| is_spelled);
        index.ok_or_else(|| self.unfit("not an array index"))
    }

    fn find_mut<'d>(
        &mut self,
        mut value: &'d mut Json,
        path: &[String],
    ) -> Result<&'d mut Json, PatchError> {
        for token in path {
            let found = match value {
                Json::Array(values) => {
                    self.budget.spend(1)?;
                    values.get_mut(self.index(token)?)
                }
                Json::Object(members) => match find(members, token, self.budget)? {
                    Some(at) => members.get_mut(at).map(|(_, value)| value),
                    None => None,
                },
                _ => None,
            };
            value = found.ok_or_else(|| self.unfit("there is no such value"))?;
        }
        Ok(value)
    }

    fn add(&mut self, document: &mut Json, path: &[String], value: Json) -> Result<(), PatchError> {
        self.measure(&value, path.len())?;
        self.insert(document, path, value)
    }

    /// Adds a value that was measured.
    fn insert(
        &mut self,
        document: &mut Json,
        path: &[String],
        value: Json,
    ) -> Result<(), PatchError> {
        let Some((last, parents)) = path.split_last() else {
            *document = value;
            return Ok(());
        };
        match self.find_mut(document, parents)? {
            Json::Array(values) => {
                let at = match last.as_str() {
                    "-" => values.len(),
                    last => self.index(last)?,
                };
                if at > values.len() {
                    return Err(self.unfit("array index out of range"));
                }
                self.budget.spend(values.len() - at)?;
                values.insert(at, value);
            }
            Json::Object(members) => match find(members, last, self.budget)? {
                Some(at) => members[at].1 = value,
                None => members.push((last.as_str().into(), value)),
            },
            _ => return Err(self.unfit("there is no such value")),
        }
        Ok(())
    }

    fn remove(&mut self, document: &mut Json, path: &[String]) -> Result<Json, PatchError> {
        let Some((last, parents)) = path.split_last() else {
            return Ok(std::mem::replace(document, Json::Null));
        };
        match self.find_mut(document, parents)? {
            Json::Array(values) => {
                let at = self.index(last)?;
                if at >= values.len() {
                    return Err(self.unfit("array index out of range"));
                }
                self.budget.spend(values.len() - at)?;
                Ok(values.remove(at))
            }
            Json::Object(members) => match find(members, last, self.budget)? {
                Some(at) => {
                    self.budget.spend(members.len() - at)?;
                    Ok(members.remove(at).1)
                }
                None => Err(self.unfit("there is no such value")),
            },
            _ => Err(self.unfit("there is no such value")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::MAX_NODES;
    use crate::serialization::{Style, write};

    fn patched(document: &str, patch: &str) -> Result<String, PatchError> {
        let document = Json::parse(document, "file")?;
        let patch = Json::parse(patch, "patch")?;
        let patched = apply(document, patch, &mut Budget::new())?;
        Ok(String::from_utf8(write(&patched, &Style::compact(), usize::MAX).unwrap()).unwrap())
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
                r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]"#,
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
    fn work_of_a_patch_is_limited() {
        let many: Vec<String> = (0..1000).map(|n| format!("\"k{n}\":0")).collect();
        let document = format!("{{{}}}", many.join(","));
        let tests = r#"{"op":"test","path":"/k999","value":0},"#.repeat(1000);
        let patch = format!("[{}]", tests.trim_end_matches(','));
        let parse = |text: &str| Json::parse(text, "file").unwrap();
        for (work, fits) in [(3_000_000, true), (500_000, false)] {
            let mut budget = Budget::of_work(work);
            let patched = apply(parse(&document), parse(&patch), &mut budget);
            assert_eq!(patched.is_ok(), fits);
        }
    }

    #[test]
    fn long_numbers_and_keys_count_by_their_length() {
        let zeros = "0".repeat(100_000);
        let tests = r#"{"op":"test","path":"/a","value":1},"#.repeat(100);
        let patch = format!("[{}]", tests.trim_end_matches(','));
        let key = "k".repeat(10_000);
        let members: Vec<String> = (0..100).map(|n| format!("\"{key}{n:03}\":0")).collect();
        let last = format!(r#"{{"op":"test","path":"/{key}099","value":0}},"#).repeat(100);
        let of_key = format!("[{}]", last.trim_end_matches(','));
        for (document, patch) in [
            (format!("{{\"a\":1.{zeros}}}"), patch),
            (format!("{{{}}}", members.join(",")), of_key),
        ] {
            let parse = |text: &str| Json::parse(text, "file").unwrap();
            let patched = apply(
                parse(&document),
                parse(&patch),
                &mut Budget::of_work(1_000_000),
            );
            assert_eq!(patched.unwrap_err(), PatchError::Limit("too much work"));
            assert!(apply(parse(&document), parse(&patch), &mut Budget::new()).is_ok());
        }
    }

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            any::<i32>().prop_map(|it| Json::Number(it.to_string().into())),
            "[a-c/~é\"\\\\]{0,3}".prop_map(|it| Json::String(it.into())),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::Array),
                proptest::collection::btree_map("[a-c]{1,2}", inner, 0..4).prop_map(|members| {
                    let members = members.into_iter().rev();
                    Json::Object(members.map(|(key, it)| (key.into(), it)).collect())
                }),
            ]
        })
    }

    fn any_operation() -> impl Strategy<Value = Json> {
        let op = proptest::sample::select(vec!["add", "remove", "replace", "move", "copy", "test"]);
        let pointer = "(/(a|b|c|0|1|2|-)){0,4}";
        (op, pointer, pointer, any_json()).prop_map(|(op, path, from, value)| {
            let text = |text: &str| Json::String(text.into());
            Json::Object(vec![
                ("op".into(), text(op)),
                ("path".into(), text(&path)),
                ("from".into(), text(&from)),
                ("value".into(), value),
            ])
        })
    }

    proptest! {
        #[test]
        fn application_is_total_and_bounded(document in any_json(), operations in proptest::collection::vec(any_operation(), 0..12)) {
            let before = document.size();
            let added: usize = operations.len() * MAX_NODES;
            if let Ok(patched) = apply(document, Json::Array(operations), &mut Budget::new()) {
                prop_assert!(patched.size().depth <= MAX_DEPTH);
                prop_assert!(patched.size().nodes <= before.nodes + added);
                let written = write(&patched, &Style::compact(), usize::MAX).unwrap();
                let read = Json::parse(std::str::from_utf8(&written).unwrap(), "file");
                prop_assert_eq!(read, Ok(patched));
            }
        }

        #[test]
        fn any_text_is_a_document_or_an_error(text in any::<String>(), nearly in "[\\[\\]{}\",:0-9a-e\\\\u -]{0,40}") {
            let _ = Json::parse(&text, "file");
            let _ = Json::parse(&nearly, "file");
        }
    }
}
