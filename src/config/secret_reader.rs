//! Reads secrets from where the configuration says that they are: in a file, in a credential of systemd (`LoadCredential=`), or in
//! environment variables that the file names as `${VARIABLE}`. A secret that is written into the file itself is a fault.
//!
//! Invariant: no fault repeats a secret.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::environment::{CREDENTIALS, Environment};
use super::fault::FaultKind;
use super::table_reader::{Class, TableReader, parse_path};

/// A secret that is valid, and the key that names it.
pub(super) struct NamedSecret<T> {
    pub(super) value: T,
    pub(super) key: String,
}

/// The keys that a secret may be given by.
fn keys_of_secret(name: &str) -> [String; 3] {
    [
        name.to_owned(),
        format!("{name}_file"),
        format!("{name}_credential"),
    ]
}

/// Whether one of the three keys of a secret is there.
pub(super) fn is_secret_given(section: &TableReader<'_, '_>, name: &str) -> bool {
    let keys = keys_of_secret(name);
    keys.iter().any(|key| section.is_given(key))
}

/// Reads a secret from where one of its three keys says. A fault is one of that key.
pub(super) fn read_secret<T>(
    section: &mut TableReader<'_, '_>,
    name: &str,
    longest: u64,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<NamedSecret<T>> {
    const CLASSES: [Class; 3] = [Class::Secret, Class::SecretFile, Class::Credential];
    let keys = keys_of_secret(name);
    let keys = keys.iter().zip(CLASSES);
    keys.clone()
        .for_each(|(key, class)| section.classify(key, class));
    let mut given = keys.filter(|(key, _)| section.is_given(key));
    let (key, class) = given.next()?;
    if let Some((second, _)) = given.next() {
        let text =
            format!("only one of `{name}`, `{name}_file` and `{name}_credential` can be set");
        section.reject(second, &FaultKind::BadAuth(text));
    }
    let (folder, environment) = (section.file.folder, section.file.environment);
    let value = section.optional_text(key, class.clone(), "a string", |text| {
        let secret = match class {
            Class::Secret => expand(text, name, environment)?,
            Class::SecretFile => read_file(&parse_path(text, folder)?, longest)?,
            _ => match read_credential(text, longest, environment)? {
                Some(secret) => secret,
                None => return Ok(None),
            },
        };
        parse(&secret).map(Some).map_err(FaultKind::BadSecret)
    })??;
    let key = key.clone();
    Some(NamedSecret { value, key })
}

/// The text with the values of the environment variables that it names as `${VARIABLE}`, at least one.
fn expand(text: &str, name: &str, environment: &Environment) -> Result<String, FaultKind> {
    let plain = || {
        FaultKind::PlainSecret(format!(
            "a secret does not belong in this file: write \"${{VARIABLE}}\" for an environment variable, or use `{name}_file` or \
             `{name}_credential`"
        ))
    };
    let mut expanded = String::new();
    let mut rest = text;
    let mut has_variable = false;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after.split_once('}').ok_or_else(plain)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if variable.is_empty() || !variable.chars().all(is_name) {
            return Err(plain());
        }
        let value = environment.get(variable).ok_or_else(|| {
            FaultKind::NoSecret(format!("the environment variable {variable} is not set"))
        })?;
        expanded.push_str(before);
        expanded.push_str(&value);
        (rest, has_variable) = (after, true);
    }
    expanded.push_str(rest);
    has_variable.then_some(expanded).ok_or_else(plain)
}

/// The text of a file, without the line breaks at its end.
fn read_file(path: &Path, longest: u64) -> Result<String, FaultKind> {
    let shown = path.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        FaultKind::NoSecret(format!("{shown} can't be read: {error}"))
    };
    let found = path.metadata().map_err(|error| unreadable(&error))?;
    if !found.is_file() {
        return Err(unreadable(&"not a file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(longest + 1).read_to_end(&mut bytes))
        .map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > longest {
        return Err(unreadable(&format!("larger than {longest} bytes")));
    }
    let text = String::from_utf8(bytes).map_err(|_| unreadable(&"not UTF-8"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The text of a credential that systemd has loaded for the unit; `None`: it is not needed here.
fn read_credential(
    name: &str,
    longest: u64,
    environment: &Environment,
) -> Result<Option<String>, FaultKind> {
    if name.contains(['/', '\0']) || matches!(name, "." | "..") {
        let text = format!("{name:?} is not the name of a credential: it has no path");
        return Err(FaultKind::BadAuth(text));
    }
    let Some(folder) = environment.get(CREDENTIALS) else {
        if environment.passes_over_credentials() {
            return Ok(None);
        }
        return Err(FaultKind::NoSecret(format!(
            "there is no credential {name}: {CREDENTIALS} is not set, as systemd does for a unit with LoadCredential={name}:FILE"
        )));
    };
    read_file(&Path::new(&folder).join(name), longest).map(Some)
}
