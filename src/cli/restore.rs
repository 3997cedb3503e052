//! `restore`: makes a backup the database again. The former database is set aside.

use std::path::PathBuf;

use super::exit_status::OK;
use super::failure::Failure;
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

pub(super) async fn restore(config: &Config, arguments: &RestoreArguments) -> Result<u8, Failure> {
    refuse_another_user(&config.state_dir)?;
    let (state, file) = (config.state(), arguments.file.clone());
    let restoring = move || restore_backup(&state, &file, clock::now().wall);
    let restored = tokio::task::spawn_blocking(restoring).await;
    let restored = restored.unwrap_or(Err(StoreError::Panicked));
    let aside = restored.map_err(|error| match &error {
        StoreError::Locked(_) => {
            let step = "stop it first, such as with `systemctl stop resyncd`";
            Failure::coded(error.code(), format!("{error}: {step}"))
        }
        _ => error.into(),
    })?;
    println!("{}: restored", arguments.file.display());
    if let Some(aside) = aside {
        println!("{}: the former database", aside.display());
    }
    Ok(OK)
}
