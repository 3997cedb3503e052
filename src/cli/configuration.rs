//! `config`: prints the configuration as it is used, or the schema of the file.

use std::path::Path;

use super::exit_status::{FAULTS, OK};
use super::output::print_text;
use crate::config::Config;

/// Arguments of `config`.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArguments {
    /// Print every key, with the defaults of those that the file omits
    #[arg(long, required_unless_present = "schema")]
    effective: bool,
    /// Print the JSON Schema of the file, for editors
    #[arg(long, conflicts_with = "effective")]
    schema: bool,
}

pub(super) fn config(path: &Path, arguments: &ConfigArguments) -> u8 {
    if arguments.schema {
        println!("{:#}", Config::schema());
        return OK;
    }
    match Config::effective(path) {
        Ok(text) => {
            print_text(&text);
            OK
        }
        Err(faults) => {
            eprintln!("{faults}");
            FAULTS
        }
    }
}
