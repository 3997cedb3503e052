//! `backup`: copies the database into a file, also while the daemon runs.

use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use chrono::NaiveDateTime;
use indicatif::HumanBytes;

use super::exit_status::{FAULTS, OK};
use super::failure::Failure;
use crate::clock;
use crate::config::Config;
use crate::store::{StoreError, back_up};

/// The name of a copy in a folder, by its time.
const NAME: &str = "resyncd-%Y%m%dT%H%M%SZ.db";

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// The file to write, which must not exist; or a folder, in which it gets the time as its name
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// In a folder: remove all but the newest copies, so many with the new one
    #[arg(long, value_name = "NUMBER")]
    keep: Option<NonZeroUsize>,
}

pub(super) async fn backup(config: &Config, arguments: &BackupArguments) -> Result<u8, Failure> {
    let now = clock::now().wall;
    let is_folder = is_folder(&arguments.file);
    if arguments.keep.is_some() && !is_folder {
        let shown = arguments.file.display();
        let text = format!("--keep is for a folder, such as {shown}/ [no-folder]");
        return Err(Failure::new(FAULTS, text));
    }
    let file = if is_folder {
        arguments.file.join(now.format(NAME).to_string())
    } else {
        arguments.file.clone()
    };
    // What SQLite and the system say of it does not name it.
    let place = file.parent();
    if let Some(place) = place.filter(|place| *place != Path::new("") && !place.is_dir()) {
        let text = format!("there is no folder {}: create it first", place.display());
        return Err(Failure::coded("no-folder", text));
    }
    let shown = file.display();
    if file.symlink_metadata().is_ok() {
        let text = format!(
            "{shown} exists already, and is not overwritten: name another file, or a folder"
        );
        return Err(Failure::coded("file-exists", text));
    }
    let (state, copy) = (config.state(), file.clone());
    let copying = tokio::task::spawn_blocking(move || back_up(&state, &copy, now)).await;
    let Some(length) = copying.unwrap_or(Err(StoreError::Panicked))? else {
        let text = format!("there is no database in {}", config.state_dir.display());
        return Err(Failure::coded("no-database", text));
    };
    println!("{shown}: {}", HumanBytes(length));
    if let Some(keep) = arguments.keep {
        let folder = &arguments.file;
        remove_older(folder, &file, keep).map_err(|error| {
            let folder = folder.display();
            let text = format!("older copies in {folder} can't be removed: {error}");
            Failure::coded("backup-not-removed", text)
        })?;
    }
    Ok(OK)
}

/// Whether the copy gets a name in that place: a folder, also one that is only meant.
fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/") || path.is_dir()
}

/// Whether a file has the name of a copy in a folder.
fn is_copy(name: &OsStr) -> bool {
    let name = name.to_str().unwrap_or_default();
    let at = NaiveDateTime::parse_from_str(name, NAME);
    at.is_ok_and(|at| at.format(NAME).to_string() == name)
}

/// Removes the oldest copies of a folder. The new one stays, even if others have later times: the clock may have been wrong.
fn remove_older(folder: &Path, new: &Path, keep: NonZeroUsize) -> io::Result<()> {
    let mut others = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_other = new.file_name() != Some(&entry.file_name());
        if is_other && is_copy(&entry.file_name()) && entry.file_type()?.is_file() {
            others.push(entry.path());
        }
    }
    others.sort();
    let surplus = others.len().saturating_sub(keep.get() - 1);
    for old in &others[..surplus] {
        fs::remove_file(old)?;
        println!("{}: removed", old.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_a_folder_have_exactly_one_kind_of_name() {
        for (name, expected) in [
            ("resyncd-20260103T001000Z.db", true),
            ("resyncd-20260103T001000Z.db.unfinished", false),
            ("resyncd-20260103T001000Z.db-journal", false),
            ("resyncd-2026013T001000Z.db", false),
            ("resyncd-20261303T001000Z.db", false),
            ("resyncd-+0260103T001000Z.db", false),
            ("my-resyncd-20260103T001000Z.db", false),
            ("resyncd.db", false),
        ] {
            assert_eq!(is_copy(OsStr::new(name)), expected, "{name}");
        }
    }
}
