//! Opens the folder of a Source's versions: the one that it has used so far.

use std::path::Path;
use std::sync::Arc;

use resyncd_mirror::{Mirror, MirrorError, MirrorId, OWN_FOLDER};

use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::engine::versions::folder::VersionsFolder;

/// Opens the folder. One whose disk is not mounted is not begun anew, unless a person has created the folder `.resyncd` in it.
pub(super) async fn open_versions(
    context: &SourceContext,
    folder: &VersionsFolder,
) -> Result<Arc<Mirror>, EngineError> {
    if let Some(opened) = folder.opened() {
        return Ok(opened);
    }
    let root = folder.root().clone();
    // By its place: another folder may be another one.
    let key = format!("{}/versions:{}", context.name(), root.display());
    let stored = context.store.mirror_id(&key).await?;
    let known = stored.as_deref().and_then(MirrorId::parse);
    let opening = move || match Mirror::open_known(root.clone(), known.as_ref()) {
        Err(MirrorError::NotMounted {
            is_other: false, ..
        }) if is_prepared(&root) => Mirror::open(&root),
        opened => opened,
    };
    let opened = tokio::task::spawn_blocking(opening).await;
    let opened =
        opened.map_err(|error| EngineError::of_join(&error, "the folder of versions"))??;
    let id = opened.id().as_str();
    if stored.as_deref() != Some(id) {
        context.store.note_mirror(&key, id).await?;
    }
    Ok(folder.set_opened(opened))
}

fn is_prepared(root: &Path) -> bool {
    root.join(OWN_FOLDER).is_dir()
}

/// What is wrong with the folder, and what to do about it.
pub(super) fn code_of(error: &EngineError) -> &'static str {
    match error {
        EngineError::Mirror(MirrorError::NotMounted { .. }) => "versions-missing",
        error => error.code(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use url::Url;

    use super::*;
    use crate::engine::tests::TestSource;

    #[tokio::test]
    async fn folder_whose_disk_is_not_mounted_is_not_begun_anew() {
        let url = Url::parse("https://example.org/").unwrap();
        let source = TestSource::new(&url, |client| client);
        let root = source.mirror.root().with_file_name("versions");
        let folder = VersionsFolder::at(root.clone());
        let open = async || open_versions(&source.context, &folder).await.map(drop);
        open().await.unwrap();
        folder.close();
        open().await.unwrap();
        folder.close();
        fs::remove_dir_all(&root).unwrap();
        let refused = open().await.unwrap_err();
        assert_eq!(code_of(&refused), "versions-missing");
        assert!(!root.exists());
        fs::create_dir(&root).unwrap();
        assert!(open().await.is_err());
        // A person begins it anew.
        fs::create_dir(root.join(OWN_FOLDER)).unwrap();
        open().await.unwrap();
        folder.close();
        // Another folder is another one.
        let other = VersionsFolder::at(root.with_file_name("others"));
        open_versions(&source.context, &other).await.unwrap();
    }
}
