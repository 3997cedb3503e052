//! `store copy`: moves the state from one database to another, such as from SQLite's to one on a server. `nodes`: the machines that work on one
//! database.

use indicatif::{HumanCount, HumanDuration};

use super::exit_status::OK;
use super::failure::Failure;
use super::users::refuse_another_user;
use crate::clock;
use crate::config::Config;
use crate::store::{StoreError, begin_another_feed, move_state};

/// Arguments of `store`.
#[derive(Debug, clap::Args)]
pub(super) struct StoreArguments {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, clap::Subcommand)]
enum StoreCommand {
    /// Copy the state into a database that has none, with its feed and all positions, while no daemon runs
    Copy(CopyArguments),
    /// Begin another feed, after the database was restored to an earlier time, while no daemon runs
    NewFeed,
}

#[derive(Debug, clap::Args)]
struct CopyArguments {
    /// The state: a folder such as that of `state_dir`, or the URL of a PostgreSQL database
    #[arg(value_name = "FROM")]
    from: String,
    /// Where it is to be: the same
    #[arg(value_name = "TO")]
    to: String,
}

pub(super) async fn store(config: &Config, arguments: &StoreArguments) -> Result<u8, Failure> {
    refuse_another_user(&config.state_dir)?;
    let CopyArguments { from, to } = match &arguments.command {
        StoreCommand::Copy(copy) => copy,
        StoreCommand::NewFeed => {
            let (state, now) = (config.state(), clock::now().wall);
            let feed = in_background(move || begin_another_feed(&state, now)).await?;
            println!("{feed}: the id of the feed");
            return Ok(OK);
        }
    };
    let (source, target) = (config.state_at(from)?, config.state_at(to)?);
    let rows = in_background(move || move_state(&source, &target)).await?;
    let Some(rows) = rows else {
        return Err(Failure::coded(
            "no-database",
            format!("there is no database in {from}"),
        ));
    };
    println!("{to}: {} rows", HumanCount(rows));
    Ok(OK)
}

pub(super) async fn nodes(config: &Config) -> Result<u8, Failure> {
    let place = config.state();
    if !place.is_on_server() {
        println!(
            "the state is in {}, where one daemon works on it",
            config.state_dir.display()
        );
        return Ok(OK);
    }
    for node in in_background(move || place.nodes()).await? {
        let age = HumanDuration(node.age);
        if node.is_holder {
            println!("{}: works on the database, for {age}", node.name);
        } else {
            println!("{}: seen {age} ago", node.name);
        }
    }
    Ok(OK)
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(StoreError::Panicked))
}
