//! `restore`: makes a backup the database again. The former database is set aside.

use std::path::{Path, PathBuf};

use super::exit_status::{FAILED, OK};
use super::users::refuse_another_user;
use crate::clock;
use crate::config::Config;
use crate::store::{StoreError, restore as restore_backup};

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArguments {
    /// The file that `backup` has written; it stays as it is
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// `environment`: the configuration file, if the environment names it.
pub(super) async fn restore(
    config: &Config,
    arguments: &RestoreArguments,
    environment: Option<&Path>,
) -> u8 {
    if let Err(status) = refuse_another_user(&config.state_dir, environment) {
        return status;
    }
    let (folder, file) = (config.state_dir.clone(), arguments.file.clone());
    let restoring = move || restore_backup(&folder, &file, clock::now().wall);
    let restored = match tokio::task::spawn_blocking(restoring).await {
        Ok(restored) => restored,
        Err(_) => Err(StoreError::Panicked),
    };
    match restored {
        Ok(aside) => {
            println!("{}: restored", arguments.file.display());
            if let Some(aside) = aside {
                println!("{}: the former database", aside.display());
            }
            OK
        }
        Err(error @ StoreError::Locked(_)) => {
            eprintln!(
                "resyncd: {error}: stop it first, such as with `systemctl stop resyncd` [{}]",
                error.code()
            );
            FAILED
        }
        Err(error) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            FAILED
        }
    }
}
