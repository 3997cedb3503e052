//! `store copy`: moves the state from one database to another, such as from SQLite's to one on a server. `nodes`, `move`, `drain`: the machines
//! that work on one database.

use std::time::Duration;

use indicatif::{HumanCount, HumanDuration};

use super::exit_status::OK;
use super::failure::Failure;
use super::users::refuse_another_user;
use crate::clock;
use crate::config::Config;
use crate::store::{Moving, StatePlace, StoreError, begin_another_feed, move_state};

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

/// Arguments of `move`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MoveArguments {
    /// The Source
    #[arg(value_name = "SOURCE")]
    source: String,
    /// The machine that is to follow it
    #[arg(value_name = "NODE")]
    node: String,
}

/// Arguments of `drain`.
#[derive(Debug, clap::Args)]
pub(super) struct DrainArguments {
    /// The machine; without it: this one
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Have it follow its share of the Sources again
    #[arg(long)]
    undo: bool,
}

/// How often it is checked whether Sources have moved.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn nodes(config: &Config) -> Result<u8, Failure> {
    let place = on_server(config)?;
    for node in in_background(move || place.nodes()).await? {
        let age = HumanDuration(node.age);
        if !node.works {
            println!("{}: ended {age} ago", node.name);
            continue;
        }
        let leads = if node.leads { ", leads" } else { "" };
        let drains = if node.drains { ", drains" } else { "" };
        let sources = HumanCount(node.sources);
        println!(
            "{}: works for {age}, Sources: {sources}{leads}{drains}",
            node.name
        );
    }
    Ok(OK)
}

pub(super) async fn move_to(config: &Config, arguments: &MoveArguments) -> Result<u8, Failure> {
    let place = on_server(config)?;
    let MoveArguments { source, node } = arguments.clone();
    let (of, name, moved) = (place.clone(), source.clone(), node.clone());
    in_background(move || of.move_source(&name, &moved)).await?;
    loop {
        let (of, name, moved) = (place.clone(), source.clone(), node.clone());
        match in_background(move || of.moving(&name, &moved)).await? {
            Moving::Done => break,
            Moving::Waits => tokio::time::sleep(LOOK).await,
            Moving::Refused => {
                let message =
                    format!("{node} has not taken {source}; does its configuration have it?");
                return Err(Failure::coded("not-moved", message));
            }
        }
    }
    println!("{source}: followed by {node}");
    Ok(OK)
}

pub(super) async fn drain(config: &Config, arguments: &DrainArguments) -> Result<u8, Failure> {
    let place = on_server(config)?;
    let node = arguments.node.as_deref();
    let node = node.unwrap_or(place.node_name()).to_owned();
    let (of, name, drains) = (place.clone(), node.clone(), !arguments.undo);
    in_background(move || of.drain(&name, drains)).await?;
    if arguments.undo {
        println!("{node}: follows its share of the Sources again");
        return Ok(OK);
    }
    loop {
        let of = place.clone();
        let nodes = in_background(move || of.nodes()).await?;
        let mut holding = nodes.iter().filter(|it| it.sources > 0 || it.leads);
        if !holding.any(|it| it.name == node) {
            println!("{node}: follows no Sources");
            return Ok(OK);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Where the state is, on a server.
fn on_server(config: &Config) -> Result<StatePlace, Failure> {
    let place = config.state();
    if place.is_on_server() {
        return Ok(place);
    }
    let folder = config.state_dir.display();
    let message = format!("the state is in {folder}, where one daemon works on it");
    Err(Failure::coded("state-in-folder", message))
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or(Err(StoreError::Panicked))
}
