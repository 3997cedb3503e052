//! Reads `[publish]`: what is published, and where.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use resyncd_core::hide_userinfo;
use url::Url;

use super::{Secret, Source};
use crate::config::fault::Parsed;
use crate::config::table_reader::{Class, Located, TableReader, text};
use crate::config::value::{parse_public_url, parse_url};

table! {
    /// `[publish]`: resyncd as a Source.
    PublishConfig = "publish" {
        /// The address to listen on.
        listen: SocketAddr = address("listen"),
        /// The listener's URL as Destinations see it, ending in `/`; `None`: it is that of the listener.
        public_url: Option<Url> = optional("public_url", Class::PublicUrl, text("a URL", parse_public_url)),
        /// Whether the mirrored files are served, too.
        content: bool = flag("content"),
        /// Who pushes changes.
        hub: PublishHub = value("hub", Class::Url, text("\"built-in\", a URL or \"\"", parse_hub)),
        /// How far back the Change Lists reach at most; `None`: as far as the feed does.
        keep_changes: Option<Duration> = duration_or_never("keep_changes"),
        /// Whether dumps are made when somebody asks for them.
        dumps: bool = choice("dumps", &[("on-demand", true), ("off", false)]),
        /// The token that requests must present; `None`: everybody may read.
        token: Option<Secret> = content("token_file", Class::SecretFile, |path| Secret::read(path).map(Some)),
    }
}

/// Who pushes the changes of what is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishHub {
    /// The hub of this daemon.
    BuiltIn,
    /// Another hub, which is told what has changed.
    At(Url),
    /// Nobody: there are no channels.
    None,
}

/// `[[publish.folder]]`: a folder that is published as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedFolder {
    /// Its label among those and the Sources: `[a-z0-9-]`.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
}

/// The `[[publish.folder]]` of a file.
#[derive(Debug, Default)]
pub(super) struct FoundFolders {
    pub(super) folders: Vec<PublishedFolder>,
    /// The valid names.
    pub(super) names: Vec<Located<String>>,
    /// The valid paths.
    pub(super) paths: Vec<Located<PathBuf>>,
}

/// Reads all `[[publish.folder]]`. They are valid only if no fault was found.
pub(super) fn read_folders(section: &mut TableReader<'_, '_>) -> FoundFolders {
    let mut found = FoundFolders::default();
    section.tables("folder", "publish.folder", |_, mut section| {
        for key in ["name", "path"] {
            if !section.is_present(key) {
                reject!(section, key, "missing-key": "required key is missing");
            }
        }
        let folder = PublishedFolder {
            name: section.label("name").unwrap_or_default(),
            path: section.folder("path"),
        };
        found.names.extend(section.valid("name", &folder.name));
        found.paths.extend(section.valid("path", &folder.path));
        found.folders.push(folder);
    });
    found
}

/// What a Source gives only to who has its credentials is not given to everybody.
pub(super) fn check_private(
    section: &mut TableReader<'_, '_>,
    source: &Source,
    publish: &PublishConfig,
) {
    if source.publish && !source.credentials.is_empty() && publish.token.is_none() {
        reject!(section, "publish", "private-source":
            "the Source has credentials, and everybody could read what it gives: set `[publish] token_file`");
    }
}

fn parse_hub(text: &str) -> Parsed<PublishHub> {
    match text {
        "" => Ok(PublishHub::None),
        "built-in" => Ok(PublishHub::BuiltIn),
        url if url.contains("://") => parse_url(url).map(PublishHub::At),
        other => {
            let shown = hide_userinfo(other);
            Err(
                reason!("bad-choice": "{shown:?} is neither \"built-in\" nor a URL; \"\" is for no hub"),
            )
        }
    }
}
