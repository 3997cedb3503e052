//! `backup`: copies the database into a file, also while the daemon runs.

use std::path::{Path, PathBuf};

use indicatif::HumanBytes;

use super::exit_status::{FAILED, OK};
use crate::clock;
use crate::config::Config;
use crate::store::{StoreError, back_up};

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// The file to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) async fn backup(config: &Config, arguments: &BackupArguments) -> u8 {
    // What SQLite and the system say of it does not name it.
    let place = arguments.file.parent();
    if let Some(place) = place.filter(|place| *place != Path::new("") && !place.is_dir()) {
        let place = place.display();
        eprintln!("resyncd: there is no folder {place}: create it first [no-folder]");
        return FAILED;
    }
    let (folder, file) = (config.state_dir.clone(), arguments.file.clone());
    let copying = move || back_up(&folder, &file, clock::now().wall);
    let copied = match tokio::task::spawn_blocking(copying).await {
        Ok(copied) => copied,
        Err(_) => Err(StoreError::Panicked),
    };
    match copied {
        Ok(Some(length)) => {
            println!("{}: {}", arguments.file.display(), HumanBytes(length));
            OK
        }
        Ok(None) => {
            eprintln!(
                "resyncd: there is no database in {} [no-database]",
                config.state_dir.display()
            );
            FAILED
        }
        Err(error) => {
            eprintln!("resyncd: {error} [{}]", error.code());
            FAILED
        }
    }
}
