//! `[store]`: where the state is, if not in a database in `state_dir`.

use std::fmt;
use std::path::Path;

use resyncd_fetch::Authorities;

use super::fault::Parsed;
use super::secret::read_secret;
use super::table_reader::{Class, TableReader, text};
use crate::store::{StatePlace, StoreError};

/// The length of the longest password, in bytes.
const LONGEST: u64 = 1024;

/// `[store]`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoreSettings {
    /// The URL of a database on a PostgreSQL server, without a password; `None`: SQLite's in `state_dir`.
    pub(crate) url: Option<String>,
    /// Another way to the same server, on which it tells what other nodes commit; empty: there is none. `None`: the same way.
    pub(crate) listen_url: Option<String>,
    /// The password for it.
    pub(crate) password: Option<String>,
    /// What this machine is called where several work on one database; empty: as the system calls it.
    pub(crate) node: String,
}

impl StoreSettings {
    pub(super) fn read(section: &mut TableReader<'_, '_>) -> Self {
        let url = section.value("url", Class::Any, text("a URL", parse_url));
        let listen_url = section.value("listen_url", Class::Any, text("a URL", parse_listen_url));
        let password = read_secret(section, "password", LONGEST, |text| {
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        });
        let node = section.value("node", Class::Any, text("a string", parse_node));
        Self {
            url,
            listen_url,
            password: password.map(|password| password.value),
            node,
        }
    }

    /// The place of a state with these settings.
    pub(super) fn place(&self, state_dir: &Path, authorities: &Authorities) -> StatePlace {
        let place = StatePlace::from(state_dir);
        match &self.url {
            Some(url) => self.on_server(place, url, authorities),
            None => place,
        }
    }

    fn on_server(&self, place: StatePlace, url: &str, authorities: &Authorities) -> StatePlace {
        let (listen_url, password) = (self.listen_url.as_deref(), self.password.as_deref());
        let place = place.on_server(url, listen_url, password, authorities);
        place.of_node(self.node())
    }

    /// See [`Config::state_at`](super::Config::state_at).
    pub(super) fn at(
        &self,
        place: &str,
        state_dir: &Path,
        authorities: &Authorities,
    ) -> Result<StatePlace, StoreError> {
        if !is_url(place) {
            return Ok(Path::new(place).into());
        }
        StatePlace::check_url(place)?;
        Ok(self.on_server(state_dir.into(), place, authorities))
    }

    /// What this machine is called.
    fn node(&self) -> String {
        if self.node.is_empty() {
            let system = rustix::system::uname();
            return system.nodename().to_string_lossy().into_owned();
        }
        self.node.clone()
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSettings(…)")
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The URL of a database; `None`: an empty text.
fn parse_url(text: &str) -> Parsed<Option<String>> {
    if text.is_empty() {
        return Ok(None);
    }
    if !is_url(text) || text.contains("${") {
        return Err(
            reason!("bad-store": "not the URL of a database on a PostgreSQL server, such as postgres://resyncd@db.example.net/resyncd"),
        );
    }
    StatePlace::check_url(text).map_err(|error| reason!("bad-store": "{error}"))?;
    Ok(Some(text.to_owned()))
}

/// The URL of a database; `None`: an empty text; an empty URL: `none`.
fn parse_listen_url(text: &str) -> Parsed<Option<String>> {
    if text == "none" {
        return Ok(Some(String::new()));
    }
    parse_url(text)
}

fn parse_node(text: &str) -> Parsed<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.len() > 64 || !text.chars().all(is_part) {
        return Err(
            reason!("out-of-range": "{text:?} is no name of up to 64 letters, digits and `-_.`"),
        );
    }
    Ok(text.to_owned())
}
