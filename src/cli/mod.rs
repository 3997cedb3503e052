//! The command line: one file a command. Results go to standard output, logs to standard error.
//!
//! Exit statuses: 0 all is well, 1 it is not, 2 a fault in the command line or the configuration, 3 the daemon can't be
//! reached.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is where the program talks to people"
)]

mod approve;
mod ask;
mod audit;
mod check;
mod daemon;
mod demo;
mod discover;
mod logging;
mod run;
mod status;
mod stop_signals;
mod sync;
mod unsubscribe;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{Config, Faults, Source};

pub use daemon::{Daemon, StartError};

/// Where the configuration is unless it is told.
const CONFIG: &str = "/etc/resyncd/config.toml";

/// All is well.
const OK: u8 = 0;
/// It is not.
const FAILED: u8 = 1;
/// A fault in the command line or the configuration.
const FAULTS: u8 = 2;
/// The daemon can't be reached.
const UNREACHABLE: u8 = 3;

/// Keeps local copies in step with ResourceSync Sources.
#[derive(Debug, Parser)]
#[command(name = "resyncd", version, about, max_term_width = 100)]
struct Arguments {
    /// The configuration file [default: /etc/resyncd/config.toml]
    #[arg(long, value_name = "FILE", env = "RESYNCD_CONFIG", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow the Sources, in the foreground, until SIGTERM or SIGINT
    Run,
    /// Read the configuration and print every fault, or `ok`
    Check,
    /// Print what a Source offers, from any entry point: its sets, their documents, channels and hubs
    Discover(discover::Arguments),
    /// Bring the Sources in step once, without subscribing, and exit
    Sync(sync::Arguments),
    /// Compare the mirrors, file by file, with what their Sources say now
    Audit(audit::Arguments),
    /// Ask the running daemon how everything stands
    Status(status::Arguments),
    /// Let deletions of a Source go on that were held back
    Approve(approve::Arguments),
    /// End the subscriptions at their hubs, for a Destination that is being retired
    Unsubscribe(unsubscribe::Arguments),
    /// On loopback: a sample Source that keeps changing, its hub, and this daemon following it
    Demo(demo::Arguments),
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("resyncd: the runtime can't be set up: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let status = runtime.block_on(command(&arguments));
    // What still runs by now, as a look-up of a name, has nothing to finish.
    runtime.shutdown_background();
    ExitCode::from(status)
}

async fn command(arguments: &Arguments) -> u8 {
    if let Command::Demo(demo) = &arguments.command {
        logging::start(logging::Quiet::Yes);
        return demo::demo(demo).await;
    }
    let path = arguments.config.as_deref().unwrap_or(Path::new(CONFIG));
    if matches!(arguments.command, Command::Check) {
        return check::check(path);
    }
    if let Command::Discover(discover) = &arguments.command {
        logging::start(logging::Quiet::Yes);
        // A Source may be looked at before there is anything to configure.
        let may_be_absent = arguments.config.is_none() && !path.try_exists().unwrap_or(true);
        let config = match may_be_absent.then(|| Config::new("", Vec::new())) {
            Some(defaults) => Ok(defaults),
            None => Config::load_without_sources(path),
        };
        return match config {
            Ok(config) => discover::discover(&config, discover).await,
            Err(faults) => told(&faults),
        };
    }
    let config = match load(path) {
        Ok(config) => config,
        Err(status) => return status,
    };
    match &arguments.command {
        Command::Run => {
            logging::start(logging::Quiet::No);
            run::run(config).await
        }
        Command::Sync(sync) => sync::sync(config, sync).await,
        Command::Audit(audit) => audit::audit(config, audit).await,
        Command::Status(status) => status::status(&config, status).await,
        Command::Approve(approve) => approve::approve(&config, approve).await,
        Command::Unsubscribe(unsubscribe) => {
            logging::start(logging::Quiet::Yes);
            unsubscribe::unsubscribe(config, unsubscribe).await
        }
        Command::Check | Command::Demo(_) | Command::Discover(_) => OK,
    }
}

/// Loads the configuration, or prints its faults.
fn load(path: &Path) -> Result<Config, u8> {
    Config::load(path).map_err(|faults| told(&faults))
}

/// Prints what is wrong with the configuration.
fn told(faults: &Faults) -> u8 {
    eprintln!("{faults}");
    FAULTS
}

/// The Sources of those names, or all; prints which names are unknown.
fn chosen(config: &Config, names: &[String]) -> Result<Vec<Source>, u8> {
    let known = |name: &&String| config.sources.iter().any(|source| source.name == **name);
    let unknown: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    for name in &unknown {
        eprintln!("resyncd: the configuration names no source {name:?} [unknown-source]");
    }
    if !unknown.is_empty() {
        return Err(FAULTS);
    }
    let is_chosen = |source: &&Source| names.is_empty() || names.contains(&source.name);
    Ok(config.sources.iter().filter(is_chosen).cloned().collect())
}
