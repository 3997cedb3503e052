//! Where mirrors are: in folders, or in object stores; and `[objects]`, by what these are reached.

use std::fmt;
use std::path::{Path, PathBuf};

use resourcesync::uri::parse_uri;
use resyncd_mirror::{MirrorPlace, ObjectPlace};
use url::Url;

use crate::config::fault::Parsed;
use crate::config::secret::read_secret;
use crate::config::table_reader::{Class, TableReader, parse_path, text};

/// The schemes of object stores.
const STORES: [&str; 3] = ["s3", "gs", "az"];
/// The keys of `[objects]` that are no secrets: the scheme that each is for, and the variable that stands for it.
const PLAIN: [(&str, &str, &str); 4] = [
    ("endpoint_url", "s3", "AWS_ENDPOINT_URL"),
    ("region", "s3", "AWS_REGION"),
    ("access_key_id", "s3", "AWS_ACCESS_KEY_ID"),
    ("account", "az", "AZURE_STORAGE_ACCOUNT_NAME"),
];
const SECRET: [(&str, &str, &str); 2] = [
    ("secret_access_key", "s3", "AWS_SECRET_ACCESS_KEY"),
    ("account_key", "az", "AZURE_STORAGE_ACCOUNT_KEY"),
];
/// The length of the longest key of an account, in bytes.
const LONGEST: u64 = 1024;

/// `[objects]`: by what object stores are reached. What is not set there, the variables of the environment set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ObjectSettings {
    /// The folder of this machine for what is being downloaded.
    folder: PathBuf,
    /// The scheme that each is for, the name of the variable, and its value.
    options: Vec<(&'static str, &'static str, String)>,
}

impl ObjectSettings {
    pub(super) fn read(section: &mut TableReader<'_, '_>, state_dir: &Path) -> Self {
        let mut options = Vec::new();
        for (key, scheme, variable) in PLAIN {
            let read = text("a string", |text| Ok(text.to_owned()));
            let value = section.value(key, Class::Any, read);
            options.push((scheme, variable, value));
        }
        for (key, scheme, variable) in SECRET {
            let value = read_secret(section, key, LONGEST, |text| Ok(text.trim().to_owned()));
            options.extend(value.map(|value| (scheme, variable, value.value)));
        }
        let account = section.content("service_account_file", Class::SecretFile, |path| {
            Ok(path.to_str().unwrap_or_default().to_owned())
        });
        options.push(("gs", "GOOGLE_SERVICE_ACCOUNT", account));
        // The operator has named it, and needs no encryption on this machine.
        let is_plain = |(_, variable, value): &(&str, &str, String)| {
            *variable == "AWS_ENDPOINT_URL" && value.starts_with("http://")
        };
        if options.iter().any(is_plain) {
            options.push(("s3", "AWS_ALLOW_HTTP", "true".to_owned()));
        }
        options.retain(|(.., value)| !value.is_empty());
        let folder = state_dir.join("objects");
        Self { folder, options }
    }

    /// The place of a URL. `name`: by which nothing else is stored.
    fn place(&self, url: Url, name: &str) -> MirrorPlace {
        let scheme = url.scheme();
        let options = self.options.iter().filter(|(of, ..)| *of == scheme);
        let options = options.map(|(_, name, value)| ((*name).to_owned(), value.clone()));
        MirrorPlace::from(ObjectPlace {
            options: options.collect(),
            work: self.folder.join(name),
            url,
        })
    }

    /// The place that was stored as a path.
    pub(crate) fn place_of(&self, path: &Path, name: &str) -> MirrorPlace {
        let text = path.to_str().filter(|text| text.contains("://"));
        match text.and_then(|text| parse_uri(text).ok()) {
            Some(url) => self.place(url, name),
            None => path.into(),
        }
    }

    /// Completes a place that was parsed.
    pub(super) fn complete(&self, place: &mut MirrorPlace, name: &str) {
        if let Some(objects) = place.objects() {
            *place = self.place(objects.url.clone(), name);
        }
    }
}

impl fmt::Debug for ObjectSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectSettings(…)")
    }
}

/// The place of a path, or of the URL of a prefix in an object store: that one is to be [completed](ObjectSettings::complete).
pub(super) fn parse_place(text: &str, folder: &Path) -> Parsed<MirrorPlace> {
    let Some((scheme, _)) = text.split_once("://") else {
        return parse_path(text, folder).map(MirrorPlace::from);
    };
    let url = parse_uri(text.trim_end_matches('/'));
    let url = url.map_err(|_| reason!("bad-path": "{text:?} is neither a path nor a URL"))?;
    if scheme == "file" {
        let path = url.to_file_path();
        let path = path.map_err(|()| reason!("bad-path": "{text:?} has no path"))?;
        return Ok(path.into());
    }
    let has_more = url.query().is_some() || url.fragment().is_some() || !url.username().is_empty();
    if !STORES.contains(&scheme) || !url.has_host() || has_more {
        return Err(reason!("bad-path":
            "{text:?} is no place for files: an object store has s3://, gs:// or az://, a bucket or container, and a prefix"));
    }
    if !cfg!(feature = "objects") {
        return Err(reason!("no-object-stores":
            "{text:?} is in an object store, and this program was built without them"));
    }
    Ok(ObjectSettings::default().place(url, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_paths_and_urls_of_object_stores() {
        let found = |text: &str| match parse_place(text, Path::new("/etc")) {
            Ok(place) => Ok((place.display().to_string(), place.objects().is_some())),
            Err(reason) => Err(reason.code),
        };
        for (text, path) in [
            ("/srv/a", "/srv/a"),
            ("a", "/etc/a"),
            ("file:///srv/a%20b", "/srv/a b"),
        ] {
            assert_eq!(found(text), Ok((path.to_owned(), false)), "{text}");
        }
        for text in [
            "ftp://a/b",
            "s3://",
            "s3://a/b?c",
            "s3://u@a/b",
            "https://a/b",
            "file://h/a",
        ] {
            assert_eq!(found(text), Err("bad-path"), "{text}");
        }
        for text in [
            "s3://bucket",
            "s3://bucket/a/b/",
            "gs://bucket/a",
            "az://container/a",
        ] {
            let expected = if cfg!(feature = "objects") {
                Ok((text.trim_end_matches('/').to_owned(), true))
            } else {
                Err("no-object-stores")
            };
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
