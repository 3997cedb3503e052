//! `check`: checks the configuration and prints every fault, or `ok`.

use std::path::Path;

use super::exit_status::{FAULTS, OK};
use crate::config::Config;

pub(super) fn check(path: &Path) -> u8 {
    match Config::load(path) {
        Ok(_) => {
            println!("ok");
            OK
        }
        // The faults are the result of this command: they go to standard output.
        Err(faults) => {
            println!("{faults}");
            FAULTS
        }
    }
}
