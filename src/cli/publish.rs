//! `publish`: a folder as a Source, without a configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use url::Url;

use super::daemon::{Daemon, StartError};
use super::exit_status::{FAILED, FAULTS, OK};
use super::failure::Failure;
use super::logging;
use super::stop_signals::StopSignals;
use crate::config::{Config, LogFormat, PublishedFolder, folders_overlap, parse_public_url};
use tracing::level_filters::LevelFilter;

/// Arguments of `publish`.
#[derive(Debug, clap::Args)]
pub(super) struct PublishArguments {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8463")]
    listen: SocketAddr,
    /// The listener's URL as Destinations see it, with which each URI begins [default: http://ADDR/]
    #[arg(long, value_name = "URL", value_parser = parse_public_url)]
    public_url: Option<Url>,
    /// Where the state is stored [default: ~/.local/state/resyncd/NAME-OF-DIR]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

pub(super) async fn publish(arguments: &PublishArguments) -> Result<u8, Failure> {
    let mut signals = StopSignals::listen()?;
    let shown = arguments.folder.display();
    let folder = fs::canonicalize(&arguments.folder);
    let folder =
        folder.map_err(|error| Failure::new(FAULTS, format!("{shown}: {error} [unreadable]")))?;
    if !folder.is_dir() {
        return Err(Failure::new(
            FAULTS,
            format!("{shown} is not a folder [not-a-folder]"),
        ));
    }
    let name = name_of(&folder);
    let state = match &arguments.state {
        Some(state) => state.clone(),
        None => default_state(&name)?,
    };
    if folders_overlap(&state, &folder) {
        let text = format!(
            "the state, {}, and {shown} contain each other: use --state [mirror-in-state]",
            state.display()
        );
        return Err(Failure::new(FAULTS, text));
    }
    let mut config = Config::new(state, Vec::new());
    config.status.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.publish.listen = arguments.listen;
    // Where only this machine reaches it, so are its subscribers.
    config.http.allow_private_addresses =
        arguments.public_url.is_none() && arguments.listen.ip().is_loopback();
    config.publish.public_url.clone_from(&arguments.public_url);
    config.folders = vec![PublishedFolder {
        name: name.clone(),
        path: folder,
    }];
    let _summaries = logging::start(LevelFilter::WARN, LogFormat::Auto);
    let daemon = Daemon::start(config)
        .await
        .map_err(|error: StartError| Failure::coded(error.code(), &error))?;
    let address = daemon.publish.unwrap_or(arguments.listen);
    let base = match &arguments.public_url {
        Some(url) => url.to_string(),
        None => format!("http://{address}/"),
    };
    println!("Source:  {base}");
    println!("         {base}{name}/.rs/description.xml");
    println!("status:  http://{}/", daemon.status);
    println!("Ctrl-C stops it.");
    let status = tokio::select! {
        () = signals.wait() => OK,
        () = daemon.store.damaged() => FAILED,
    };
    daemon.stop().await;
    Ok(status)
}

/// A name for a folder: what of its own name may be a part of one.
fn name_of(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    match name.trim_matches('-') {
        "" => "files".to_owned(),
        name => name.to_owned(),
    }
}

fn default_state(name: &str) -> Result<PathBuf, Failure> {
    let of_variable = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let of_home = || of_variable("HOME").map(|home| home.join(".local/state"));
    let states = of_variable("XDG_STATE_HOME").or_else(of_home);
    let states = states.ok_or_else(|| {
        Failure::new(FAULTS, "there is no home folder: use --state [missing-key]")
    })?;
    Ok(states.join("resyncd").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_made_of_the_folder() {
        for (folder, expected) in [
            ("/srv/theses", "theses"),
            ("/srv/My Theses", "my-theses"),
            ("/srv/\u{e4}", "files"),
            ("/", "files"),
        ] {
            assert_eq!(name_of(Path::new(folder)), expected);
        }
    }
}
