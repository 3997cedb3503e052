//! Copies files of an object store for a program that reads them.

use std::fs::{self, File};
use std::io;

use resyncd_mirror::{MirrorError, MirrorPath, MirrorPlace, MirrorReader};
use tempfile::TempDir;

use super::delivery::DeliveryError;

/// Copies these files into a temporary folder, each at its path. One that is gone by now is left out: a later line says so.
pub(super) async fn copy_files(
    mirror: MirrorPlace,
    files: Vec<String>,
) -> Result<TempDir, DeliveryError> {
    let copying = tokio::task::spawn_blocking(move || copy(mirror, &files));
    let copied = copying
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    copied.map_err(DeliveryError::Files)
}

fn copy(mirror: MirrorPlace, files: &[String]) -> io::Result<TempDir> {
    let reader = MirrorReader::open(mirror).map_err(io::Error::other)?;
    let folder = tempfile::tempdir()?;
    for path in files {
        let path = MirrorPath::parse(path).map_err(io::Error::other)?;
        let mut file = match reader.open_file(&path) {
            Err(MirrorError::Missing { .. }) => continue,
            opened => opened.map_err(io::Error::other)?,
        };
        let copy = folder.path().join(path.as_str());
        if let Some(above) = copy.parent() {
            fs::create_dir_all(above)?;
        }
        io::copy(&mut file, &mut File::create(copy)?)?;
    }
    Ok(folder)
}
