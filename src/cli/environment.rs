//! What the configuration needs of the machine: folders with their owner and space, ports, and a public URL that leads here. Nothing
//! is changed.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::HumanBytes;
use resyncd_core::hide_userinfo;
use resyncd_mirror::{Mirror, MirrorId, MirrorPlace, MirrorReader};
use rustix::fs::{Access, access, statvfs};

use super::daemon_client::DaemonClient;
use super::public_url::{is_callback_listener, leads_here};
use super::users::{current, name_of};
use crate::config::{Config, HookAction, Source};
use crate::store::{KnownMirror, Store};

/// Less free space than this is not enough to begin with, in bytes.
const LEAST_SPACE: u64 = 64 << 20;

/// What was found of one thing that the daemon needs.
#[derive(Debug)]
pub(super) struct Probe {
    /// The key of the configuration, and its value.
    what: String,
    /// What is right, or what is wrong and what to do about it.
    found: Result<String, String>,
}

impl Probe {
    /// Whether nothing is wrong.
    pub(super) fn is_right(&self) -> bool {
        self.found.is_ok()
    }

    /// The line of the probe.
    pub(super) fn line(&self) -> String {
        match &self.found {
            Ok(found) => format!("ok    {}: {found}", self.what),
            Err(wrong) => format!("FAIL  {}: {wrong}", self.what),
        }
    }
}

/// Tries everything that the daemon needs.
pub(super) async fn probes(config: &Config) -> Vec<Probe> {
    let mut probes = vec![folder("state_dir", &config.state_dir, true)];
    let known = Store::known_mirrors(&config.state());
    if known.is_err() || config.store.url.is_some() {
        let what = match &config.store.url {
            Some(url) => format!("store.url {url}"),
            None => format!("state_dir {}", config.state_dir.display()),
        };
        let wrong = known.as_ref().err();
        let wrong = wrong.map(|error| format!("{error} [{}]", error.code()));
        let found = wrong.map_or_else(|| Ok("can be used".to_owned()), Err);
        probes.push(Probe { what, found });
    }
    let known = known.unwrap_or_default();
    for source in &config.sources {
        let (tried, known) = (source.clone(), known.get(&source.name).cloned());
        let probing = tokio::task::spawn_blocking(move || places(&tried, known.as_ref()));
        probes.extend(probing.await.unwrap_or_default());
        for hook in &source.hooks {
            if let HookAction::Command { program, .. } = &hook.action {
                let key = format!("source[{}].hook[{}].command", source.name, hook.name);
                probes.push(Probe {
                    what: format!("{key} {}", program.display()),
                    found: try_program(program),
                });
            }
        }
    }
    probes.push(folder("temporary files", &std::env::temp_dir(), false));
    let daemon = running_daemon(config).await;
    let listen = config.status.listen;
    probes.push(port("status.listen", listen, daemon.is_some()));
    if config.has_callback() {
        let listen = config.callback.listen;
        let is_of_daemon = match &daemon {
            Some(daemon) => is_callback_listener(listen, config, daemon).await.is_ok(),
            None => false,
        };
        probes.push(port("callback.listen", listen, is_of_daemon));
        if let Some(url) = &config.callback.public_url {
            probes.push(Probe {
                what: format!("callback.public_url {}", hide_userinfo(url.as_str())),
                found: (leads_here(url, config, daemon.as_ref()).await).map(str::to_owned),
            });
        }
    }
    probes
}

/// Tries the places of a Source's files.
fn places(source: &Source, known: Option<&KnownMirror>) -> Vec<Probe> {
    let name = &source.name;
    let is_there = known.and_then(|known| known_mirror(source, known));
    let found = is_there.unwrap_or(Ok(()));
    let probe = |key: &str, place: &MirrorPlace, before: Result<(), String>| Probe {
        what: format!("source[{name}].{key} {}", place.display()),
        found: before.and_then(|()| try_place(place)),
    };
    let mirror = probe("mirror", &source.mirror, found);
    let versions = source.versions.as_ref();
    let versions = versions.map(|versions| probe("versions", versions, Ok(())));
    std::iter::once(mirror).chain(versions).collect()
}

/// A client of the daemon, if it is the one that works on this state.
async fn running_daemon(config: &Config) -> Option<DaemonClient> {
    let client = DaemonClient::new(config, Duration::from_secs(10)).ok()?;
    client.check_daemon().await.ok()?;
    (!config.state().is_free()).then_some(client)
}

/// Whether a mirror that the database knows is there. `None`: it knows none in that folder.
fn known_mirror(source: &Source, known: &KnownMirror) -> Option<Result<(), String>> {
    let resolved = |folder: &Path| folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let is_another = |folder: &PathBuf| resolved(folder) != resolved(&source.mirror);
    if known.folder.as_ref().is_some_and(is_another) {
        return None;
    }
    let id = MirrorId::parse(&known.id)?;
    let checked = Mirror::check_id(&source.mirror, &id);
    Some(checked.map_err(|error| error.of_opening()))
}

/// Whether a folder, or else the next one above it, can be written. `is_own`: whether it must belong to this user.
fn folder(key: &str, path: &Path, is_own: bool) -> Probe {
    Probe {
        what: format!("{key} {}", path.display()),
        found: try_folder(path, is_own),
    }
}

/// Whether a place can be a mirror: a folder that can be written, or an object store that answers.
fn try_place(place: &MirrorPlace) -> Result<String, String> {
    if place.objects().is_none() {
        return try_folder(place, false);
    }
    match MirrorReader::open(place.clone()).map(|it| it.files().next()) {
        Ok(None | Some(Ok(_))) => Ok("answers".to_owned()),
        Ok(Some(Err(error))) | Err(error) => Err(error.of_opening()),
    }
}

fn try_folder(path: &Path, is_own: bool) -> Result<String, String> {
    let existing = path.ancestors().find(|path| path.exists());
    let existing = existing.ok_or("there is no folder to create it in")?;
    let shown = existing.display();
    let found = fs::metadata(existing).map_err(|error| format!("{shown}: {error}"))?;
    if !found.is_dir() {
        return Err(format!("{shown} is not a folder"));
    }
    let (owner, own) = (name_of(found.uid()), name_of(current()));
    if is_own && existing == path && found.uid() != current() {
        return Err(format!(
            "it belongs to {owner}, and this is {own}: run the check as the user of the daemon, `sudo -u {owner} …`"
        ));
    }
    if let Err(error) = access(existing, Access::WRITE_OK | Access::EXEC_OK) {
        return Err(format!(
            "{own} can't write to {shown} ({error}), which belongs to {owner}: create the folder for the user of the daemon, or \
             run the check as that user"
        ));
    }
    let disk = statvfs(existing).map_err(|error| format!("{shown}: {error}"))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < LEAST_SPACE {
        return Err(format!("only {} are free", HumanBytes(free)));
    }
    let state = if existing == path {
        format!("writable, of {owner}")
    } else {
        format!("will be created in {shown}")
    };
    Ok(format!("{state}; {} free", HumanBytes(free)))
}

/// Whether a program can be run.
fn try_program(path: &Path) -> Result<String, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("not a program".to_owned());
    }
    let own = name_of(current());
    let runs = access(path, Access::EXEC_OK);
    runs.map_err(|error| format!("{own} can't run it ({error}): `chmod +x` makes it a program"))?;
    Ok(format!("can be run by {own}"))
}

/// Whether a port can be listened on. `is_of_daemon`: whether the daemon is running and listens there.
fn port(key: &str, address: SocketAddr, is_of_daemon: bool) -> Probe {
    let found = match TcpListener::bind(address) {
        Ok(_) => Ok("free".to_owned()),
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_of_daemon => {
            Ok("in use, and the daemon is running".to_owned())
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(
            "another program listens there (`ss -ltnp` shows it): stop it, or choose another port"
                .to_owned(),
        ),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(format!(
            "{error}: ports below 1024 need CAP_NET_BIND_SERVICE; see the unit"
        )),
        Err(error) => Err(error.to_string()),
    };
    Probe {
        what: format!("{key} {address}"),
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_tried_where_it_is_or_will_be() {
        let home = tempfile::tempdir().unwrap();
        let found = try_folder(home.path(), true).unwrap();
        assert!(found.starts_with("writable, of "), "{found}");
        let found = try_folder(&home.path().join("a/b"), true).unwrap();
        assert!(found.starts_with("will be created in "), "{found}");
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let wrong = try_folder(&path, false).unwrap_err();
            assert!(wrong.contains("is not a folder"), "{wrong}");
        }
    }

    #[test]
    fn program_of_a_hook_is_tried() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(try_program(Path::new("/bin/sh")).is_ok());
        // Root may do much, but run no file that nobody may run.
        for path in [file.as_path(), home.path(), Path::new("/nowhere")] {
            assert!(try_program(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn port_in_use_is_right_only_where_the_daemon_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(port("status.listen", address, true).is_right());
        let probe = port("status.listen", address, false);
        assert!(!probe.is_right() && probe.line().starts_with("FAIL  status.listen 127"));
        drop(listener);
        assert!(port("status.listen", address, false).is_right());
    }
}
