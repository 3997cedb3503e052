//! `config`: prints the configuration as it is used, the schema of the file, or a file to begin with.

use std::path::Path;

use super::discover::{EntryPoint, print_starter};
use super::exit_status::OK;
use super::failure::Failure;
use super::output::print_as_is;
use crate::config::{Config, ConfigFaults};

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct ConfigArguments {
    /// Print every key, with the defaults of those that the file omits
    #[arg(long)]
    effective: bool,
    /// Print the JSON Schema of the file, for editors
    #[arg(long)]
    schema: bool,
    /// Print a first configuration for the Source at a URL, as `discover` finds it
    #[arg(long, value_name = "URL")]
    starter: Option<EntryPoint>,
}

/// `read`: reads what requests to a Source need of the configuration, which may be absent.
pub(super) async fn config(
    path: &Path,
    arguments: &ConfigArguments,
    read: impl FnOnce() -> Result<Config, ConfigFaults>,
) -> Result<u8, Failure> {
    if let Some(entry) = &arguments.starter {
        print_starter(&read()?, entry).await?;
    } else if arguments.schema {
        println!("{:#}", Config::schema());
    } else {
        print_as_is(&Config::effective(path)?);
    }
    Ok(OK)
}
