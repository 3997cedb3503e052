//! The command line: one file per command. Results go to standard output, logs to standard error.
//!
//! Exit statuses: 0 success, 1 failure or not in sync, 2 a fault in the command line or the configuration, 3 daemon not reachable.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "commands print their results and errors"
)]

mod approve;
mod audit;
mod check;
mod daemon;
mod daemon_client;
mod demo;
mod discover;
mod exit_status;
mod log_throttle;
mod logging;
mod progress;
mod run;
mod selection;
mod status;
mod stop_signals;
mod sync;
mod unsubscribe;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{Config, ConfigFaults};
use exit_status::{FAILED, FAULTS, OK};

pub use daemon::{Daemon, StartError};

/// The default path of the configuration file.
const DEFAULT_CONFIG: &str = "/etc/resyncd/config.toml";

/// Synchronize local mirrors with ResourceSync Sources
#[derive(Debug, Parser)]
#[command(name = "resyncd", version, max_term_width = 100)]
struct CliArguments {
    /// Configuration file [default: /etc/resyncd/config.toml]
    #[arg(long, value_name = "FILE", env = "RESYNCD_CONFIG", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the daemon in the foreground until SIGTERM or SIGINT
    Run,
    /// Check the configuration: print every fault, or `ok`
    Check,
    /// Show what a Source offers: sets, documents, channels and hubs
    Discover(discover::DiscoverArguments),
    /// Synchronize once, without subscribing, and exit
    Sync(sync::SyncArguments),
    /// Compare the mirrors with their Sources, file by file
    Audit(audit::AuditArguments),
    /// Show daemon status
    Status(status::StatusArguments),
    /// Approve held-back deletions of a Source
    Approve(approve::ApproveArguments),
    /// End all subscriptions at their hubs, to retire this Destination
    Unsubscribe(unsubscribe::UnsubscribeArguments),
    /// Run a changing sample Source, its hub and a daemon that follows it, on loopback
    Demo(demo::DemoArguments),
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = CliArguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("resyncd: cannot start the async runtime: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let status = runtime.block_on(command(&arguments));
    // Blocking tasks that still run, such as a DNS lookup, are abandoned.
    runtime.shutdown_background();
    ExitCode::from(status)
}

async fn command(arguments: &CliArguments) -> u8 {
    if let CliCommand::Demo(demo) = &arguments.command {
        let _summaries = logging::start(logging::DefaultLevel::Warn);
        return demo::demo(demo).await;
    }
    let path = arguments
        .config
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_CONFIG));
    if matches!(arguments.command, CliCommand::Check) {
        let _summaries = logging::start(logging::DefaultLevel::Warn);
        return check::check(path);
    }
    if let CliCommand::Discover(discover) = &arguments.command {
        let _summaries = logging::start(logging::DefaultLevel::Warn);
        // `discover` works without a configuration file.
        let may_be_absent = arguments.config.is_none() && !path.try_exists().unwrap_or(true);
        let config = match may_be_absent.then(|| Config::new("", Vec::new())) {
            Some(defaults) => Ok(defaults),
            None => Config::load_without_sources(path),
        };
        return match config {
            Ok(config) => discover::discover(&config, discover).await,
            Err(faults) => print_faults(&faults),
        };
    }
    let config = match load(path) {
        Ok(config) => config,
        Err(status) => return status,
    };
    match &arguments.command {
        CliCommand::Run => {
            let _summaries = logging::start(logging::DefaultLevel::Info);
            run::run(config).await
        }
        CliCommand::Sync(sync) => sync::sync(config, sync).await,
        CliCommand::Audit(audit) => audit::audit(config, audit).await,
        CliCommand::Status(status) => status::status(&config, status).await,
        CliCommand::Approve(approve) => approve::approve(&config, approve).await,
        CliCommand::Unsubscribe(unsubscribe) => {
            let _summaries = logging::start(logging::DefaultLevel::Warn);
            unsubscribe::unsubscribe(config, unsubscribe).await
        }
        CliCommand::Check | CliCommand::Demo(_) | CliCommand::Discover(_) => OK,
    }
}

/// Loads the configuration, or prints its faults.
fn load(path: &Path) -> Result<Config, u8> {
    Config::load(path).map_err(|faults| print_faults(&faults))
}

/// Prints the faults of the configuration.
fn print_faults(faults: &ConfigFaults) -> u8 {
    eprintln!("{faults}");
    FAULTS
}
