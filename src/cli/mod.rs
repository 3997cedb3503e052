//! The command line: one file per command. Results go to standard output, logs to standard error.
//!
//! | module | what it has |
//! |---|---|
//! | `run`, `publish`, `demo` | the commands that are a daemon |
//! | `check`, `configuration` (`config`), `discover`, `explain`, `man` (also `completions`), `version` | those that need neither a daemon nor its state |
//! | `notify` | sends a message that tries a `[[notify]]` |
//! | `sync`, `audit`, `backup`, `restore` | those that work on the state by themselves |
//! | `status`, `poll` | those that ask the running daemon |
//! | `failed`, `held`, `approve`, `retry`, `pause` (also `resume`), `versions`, `unsubscribe`, `forget` | those that ask it, or do without if none runs |
//! | `daemon`, `reload`, `watchdog`, `service_status` | the daemon: [`Daemon`]; SIGHUP; what systemd gets |
//! | `daemon_client`, `daemon_requests`, `selection` | requests to the daemon, or on its state; what their commands share; named Sources |
//! | `stop_signals`, `failure`, `exit_status`, `help` | SIGTERM, SIGINT; why a command ends early; exit statuses; texts of `--help` |
//! | `logging`, `log_throttle`, `progress`, `output`, `colours` | standard error and standard output |
//! | `status_text`, `up_to_date`, `human` | the status, times and lengths in words |
//! | `environment`, `public_url`, `users` | what the machine must have; whether the callback is reached; whose the state is |
//! | `file_descriptors` | how many the process may have |
//! | `planned_changes` | the copy of the state for `sync --dry-run` |
//!
//! Exit statuses: 0 success, 1 failure or not in sync, 2 a fault in the command line or the configuration, 3 daemon not reachable,
//! 4 (`run`) a state of a version with another schema.

/// Prints a line on standard output, also where the reader of a pipe has closed it; see `output`.
macro_rules! println {
    ($($text:tt)*) => { $crate::cli::output::print_line(::std::format_args!($($text)*)) };
}

/// The same on standard error.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::cli::output::print_error(::std::format_args!($($text)*)) };
}

mod approve;
mod audit;
mod backup;
mod check;
mod colours;
mod configuration;
mod daemon;
mod daemon_client;
mod daemon_requests;
mod demo;
mod discover;
mod environment;
mod exit_status;
mod explain;
mod failed;
mod failure;
mod file_descriptors;
mod forget;
mod held;
mod help;
mod human;
mod log_throttle;
mod logging;
mod man;
mod notify;
mod output;
mod pause;
mod planned_changes;
mod poll;
mod progress;
mod public_url;
mod publish;
mod reload;
mod restore;
mod retry;
mod run;
mod selection;
mod service_status;
mod status;
mod status_text;
mod stop_signals;
mod store;
mod sync;
mod unsubscribe;
mod up_to_date;
mod users;
mod version;
mod versions;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
pub use daemon::{Daemon, StartError};
use daemon_client::DaemonAddress;
use daemon_requests::SourcesArguments;
use exit_status::{FAILED, FAULTS, OK};
use failure::Failure;
use reload::ReloadSignal;
use tracing::level_filters::LevelFilter;

use crate::config::{Config, LogFormat};

/// The default path of the configuration file.
const DEFAULT_CONFIG: &str = "/etc/resyncd/config.toml";

/// Synchronize local mirrors with ResourceSync Sources
#[derive(Debug, Parser)]
#[command(name = "resyncd", version, max_term_width = 100, after_help = help::PROGRAM)]
struct CliArguments {
    /// Configuration file [default: /etc/resyncd/config.toml]
    #[arg(
        short,
        long,
        value_name = "FILE",
        env = "RESYNCD_CONFIG",
        global = true
    )]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the daemon in the foreground until SIGTERM or SIGINT
    #[command(after_help = help::RUN)]
    Run,
    /// Check the configuration: print every fault, or `ok`
    #[command(after_help = help::CHECK)]
    Check(check::CheckArguments),
    /// Print the configuration with its defaults, its schema, or one to begin with
    #[command(after_help = help::CONFIG)]
    Config(configuration::ConfigArguments),
    /// Show what a Source offers: sets, documents, channels and hubs
    #[command(after_help = help::DISCOVER)]
    Discover(discover::DiscoverArguments),
    /// Synchronize once, without subscribing, and exit
    #[command(after_help = help::SYNC)]
    Sync(sync::SyncArguments),
    /// Compare the mirrors with their Sources, file by file
    #[command(after_help = help::AUDIT)]
    Audit(audit::AuditArguments),
    /// Show daemon status
    #[command(after_help = help::STATUS)]
    Status(status::StatusArguments),
    /// Show, approve or reject held-back deletions of a Source
    #[command(after_help = help::APPROVE)]
    Approve(approve::ApproveArguments),
    /// List the resources whose changes have failed
    #[command(after_help = help::FAILED)]
    Failed(SourcesArguments),
    /// List the deletions that are held back
    #[command(after_help = help::HELD)]
    Held(held::HeldArguments),
    /// Retry failed changes now
    #[command(after_help = help::RETRY)]
    Retry(SourcesArguments),
    /// List the stored versions of a resource, or fetch those that its TimeMap names
    #[command(after_help = help::VERSIONS)]
    Versions(versions::VersionsArguments),
    /// Poll the documents of Sources now
    #[command(after_help = help::POLL)]
    Poll(poll::PollArguments),
    /// Request nothing of Sources until they are resumed
    #[command(after_help = help::PAUSE)]
    Pause(pause::PauseArguments),
    /// Resume Sources that are paused
    #[command(after_help = help::RESUME)]
    Resume(pause::PauseArguments),
    /// Copy the database into a file, also while the daemon runs
    #[command(after_help = help::BACKUP)]
    Backup(backup::BackupArguments),
    /// Make a backup the database again, while no daemon runs
    #[command(after_help = help::RESTORE)]
    Restore(restore::RestoreArguments),
    /// Move the state into another database
    #[command(after_help = help::STORE)]
    Store(store::StoreArguments),
    /// List the machines that work on one database, or have
    #[command(after_help = help::NODES)]
    Nodes,
    /// Have another machine of the database follow a Source
    #[command(after_help = help::MOVE)]
    Move(store::MoveArguments),
    /// Have the others follow what a machine of the database follows
    #[command(after_help = help::DRAIN)]
    Drain(store::DrainArguments),
    /// End the subscriptions of all or the named Sources, at hubs and PubSub services
    #[command(after_help = help::UNSUBSCRIBE)]
    Unsubscribe(unsubscribe::UnsubscribeArguments),
    /// Delete what is known of a Source that was removed from the configuration
    #[command(after_help = help::FORGET)]
    Forget(forget::ForgetArguments),
    /// Send a message to try how people are told what waits for them
    #[command(after_help = help::NOTIFY)]
    Notify(notify::NotifyArguments),
    /// Publish a folder as a Source, until SIGTERM or SIGINT
    #[command(after_help = help::PUBLISH)]
    Publish(publish::PublishArguments),
    /// Run a changing sample Source, its hub and a daemon that follows it, on loopback
    #[command(after_help = help::DEMO)]
    Demo(demo::DemoArguments),
    /// Print what completes a command line in a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(man::CompletionsArguments),
    /// Print the manual page, or write those of all commands into a folder
    #[command(after_help = help::MAN)]
    Man(man::ManArguments),
    /// Print what a code means, and what to do
    #[command(after_help = help::EXPLAIN)]
    Explain(explain::ExplainArguments),
    /// Print the version and the commit that it was built from
    #[command(after_help = help::VERSION)]
    Version,
}

impl CliCommand {
    /// Where the daemon is, if the command line states it instead of the configuration.
    fn daemon(&self) -> Option<&DaemonAddress> {
        match self {
            Self::Status(status) => Some(&status.daemon),
            Self::Approve(approve) => Some(&approve.daemon),
            Self::Failed(of) | Self::Retry(of) => Some(&of.daemon),
            Self::Held(held) => Some(&held.of.daemon),
            Self::Poll(poll) => Some(&poll.daemon),
            Self::Pause(pause) | Self::Resume(pause) => Some(&pause.daemon),
            Self::Forget(forget) => Some(&forget.daemon),
            _ => None,
        }
    }
}

/// The command line, for what is generated from it.
#[must_use]
pub fn command_line() -> clap::Command {
    CliArguments::command()
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = CliArguments::parse();
    file_descriptors::raise_limit();
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
    let status = status.unwrap_or_else(Failure::print);
    // Blocking tasks that still run, such as a DNS lookup, are abandoned: the end of the process ends its threads. A shutdown would
    // detach them while they end, and glibc may read what a thread has released by then (sourceware bug 19951): SIGSEGV.
    std::mem::forget(runtime);
    let is_incomplete = status == OK && output::is_lost();
    ExitCode::from(if is_incomplete { FAILED } else { status })
}

async fn command(arguments: &CliArguments) -> Result<u8, Failure> {
    let command = &arguments.command;
    let path = arguments
        .config
        .as_deref()
        .unwrap_or(Path::new(DEFAULT_CONFIG));
    // `discover` works without a configuration file.
    let read_if_present = || {
        let may_be_absent = arguments.config.is_none() && !path.try_exists().unwrap_or(true);
        if may_be_absent {
            Config::without_file(path)
        } else {
            Config::load_without_sources(path)
        }
    };
    let log_warnings = |format| logging::start(LevelFilter::WARN, format);
    match command {
        CliCommand::Version => return Ok(version::version()),
        CliCommand::Explain(arguments) => return explain::explain(arguments),
        CliCommand::Completions(arguments) => return Ok(man::completions(arguments)),
        CliCommand::Man(arguments) => return man::man(arguments),
        CliCommand::Publish(publish) => return publish::publish(publish).await,
        CliCommand::Demo(demo) => return demo::demo(demo).await,
        CliCommand::Check(check) => {
            let _summaries = log_warnings(LogFormat::Auto);
            return Ok(check::check(path, check).await);
        }
        CliCommand::Config(config) => {
            let _summaries = log_warnings(LogFormat::Auto);
            return configuration::config(path, config, read_if_present).await;
        }
        CliCommand::Discover(discover) => {
            let _summaries = log_warnings(LogFormat::Auto);
            return discover::discover(&read_if_present()?, discover).await;
        }
        // Before the configuration is read: a change of it after that is not missed.
        CliCommand::Run => {
            let hangup = ReloadSignal::listen()?;
            let config = Config::load(path)?;
            let _summaries = logging::start(config.log.level, config.log.format);
            for warning in &Config::warnings(path) {
                tracing::warn!(code = warning.code, "{warning}");
            }
            return run::run(config, path, hangup).await;
        }
        _ => {}
    }
    let config = load(path, command)?;
    let _summaries = match command {
        // They start it with their progress, or do nothing that is logged.
        CliCommand::Sync(_) | CliCommand::Audit(_) | CliCommand::Forget(_) => None,
        CliCommand::Status(_) | CliCommand::Poll(_) => None,
        CliCommand::Backup(_) | CliCommand::Restore(_) => None,
        CliCommand::Store(_) | CliCommand::Nodes => None,
        CliCommand::Move(_) | CliCommand::Drain(_) => None,
        _ => Some(log_warnings(config.log.format)),
    };
    match command {
        CliCommand::Sync(sync) => sync::sync(config, sync).await,
        CliCommand::Audit(audit) => audit::audit(config, audit).await,
        CliCommand::Status(status) => Ok(status::status(&config, status).await),
        CliCommand::Approve(approve) => approve::approve(&config, approve).await,
        CliCommand::Failed(failed) => failed::failed(&config, failed).await,
        CliCommand::Held(held) => held::held(&config, held).await,
        CliCommand::Retry(retry) => retry::retry(&config, retry).await,
        CliCommand::Poll(poll) => poll::poll(&config, poll).await,
        CliCommand::Pause(sources) => pause::pause(&config, sources).await,
        CliCommand::Resume(sources) => pause::resume(&config, sources).await,
        CliCommand::Versions(versions) => versions::versions(config, versions).await,
        CliCommand::Backup(backup) => backup::backup(&config, backup).await,
        CliCommand::Restore(restore) => restore::restore(&config, restore).await,
        CliCommand::Store(store) => store::store(&config, store).await,
        CliCommand::Nodes => store::nodes(&config).await,
        CliCommand::Move(moved) => store::move_to(&config, moved).await,
        CliCommand::Drain(drained) => store::drain(&config, drained).await,
        CliCommand::Unsubscribe(named) => unsubscribe::unsubscribe(&config, named).await,
        CliCommand::Forget(forget) => forget::forget(&config, forget).await,
        CliCommand::Notify(notify) => notify::notify(&config, notify).await,
        CliCommand::Run
        | CliCommand::Check(_)
        | CliCommand::Config(_)
        | CliCommand::Publish(_)
        | CliCommand::Demo(_)
        | CliCommand::Discover(_)
        | CliCommand::Explain(_)
        | CliCommand::Completions(_)
        | CliCommand::Man(_)
        | CliCommand::Version => Ok(OK),
    }
}

/// Loads the configuration, unless the command line states where the daemon is. What only asks the daemon, or copies or restores the
/// database, needs no secrets of the Sources, which may be for the daemon only.
fn load(path: &Path, command: &CliCommand) -> Result<Config, Failure> {
    let daemon = command.daemon();
    if let Some(config) = daemon.and_then(DaemonAddress::config) {
        return config.map_err(|error| Failure::new(FAULTS, error));
    }
    let is_of_database = matches!(
        command,
        CliCommand::Backup(_)
            | CliCommand::Restore(_)
            | CliCommand::Store(_)
            | CliCommand::Nodes
            | CliCommand::Move(_)
            | CliCommand::Drain(_)
    );
    let config = if daemon.is_some() || is_of_database {
        Config::load_without_secrets(path)
    } else {
        Config::load(path)
    };
    Ok(config?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_every_command_has_examples_that_are_accepted() {
        let program = CliArguments::command();
        let commands = program.get_subcommands().chain([&program]);
        for command in commands.filter(|command| command.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let examples: Vec<&str> = help
                .lines()
                .filter_map(|line| line.strip_prefix("  "))
                .filter(|line| line.contains("resyncd "))
                .collect();
            assert!(!examples.is_empty(), "{}", command.get_name());
            assert!(help.contains("Exit status"), "{}", command.get_name());
            assert!(help.lines().all(|line| line.len() <= 80), "{help}");
            for example in examples {
                // Behind `sudo -u resyncd` and variables; what follows may be the shell's.
                let at = example.rfind("resyncd ").unwrap();
                let words = example[at..].split_whitespace();
                let words = words.take_while(|word| ![">", "|"].contains(word));
                let parsed = CliArguments::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {parsed:?}");
            }
        }
    }
}
