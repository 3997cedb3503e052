//! `config`: prints the configuration as it is used, the schema of the file, or a file to begin with.

use std::path::Path;

use super::discover::{EntryPoint, print_starter};
use super::exit_status::{FAULTS, OK};
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
) -> u8 {
    if let Some(entry) = &arguments.starter {
        return match read() {
            Ok(config) => print_starter(&config, entry).await,
            Err(faults) => print_faults(&faults),
        };
    }
    if arguments.schema {
        println!("{:#}", Config::schema());
        return OK;
    }
    match Config::effective(path) {
        Ok(text) => {
            print_as_is(&text);
            OK
        }
        Err(faults) => print_faults(&faults),
    }
}

fn print_faults(faults: &ConfigFaults) -> u8 {
    eprintln!("{faults}");
    FAULTS
}
