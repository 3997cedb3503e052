//! Opens the mirror of a Source: the one that it has used so far.

use resyncd_mirror::{Mirror, MirrorId};

use super::context::SourceContext;
use super::error::EngineError;
use super::source::location::has_another_mirror;

/// Which mirror may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    /// The one that the database knows; any if it knows none, or if `mirror` is another folder than before.
    Known,
    /// Any: the database knows it from now on.
    Any,
}

/// Opens the mirror of a Source. The first one that is opened, or one that was not expected, becomes known to the database; one in
/// another folder than before not yet: that is recorded with its location, once what is known of the former one is dropped.
pub(super) async fn open_mirror(
    context: &SourceContext,
    accepting: Accepting,
) -> Result<Mirror, EngineError> {
    let stored = context.store.mirror_id(context.name()).await?;
    let is_elsewhere = has_another_mirror(&context.store, &context.source).await?;
    let known = match accepting {
        Accepting::Known if is_elsewhere => None,
        Accepting::Known => stored.as_deref().and_then(MirrorId::parse),
        Accepting::Any => None,
    };
    let place = context.source.mirror.clone();
    let opening = move || Mirror::open_known(&place, known.as_ref());
    let opened = tokio::task::spawn_blocking(opening).await;
    let mirror = opened.map_err(|error| EngineError::of_join(&error, "the mirror"))??;
    let id = mirror.id().as_str();
    if !is_elsewhere && stored.as_deref() != Some(id) {
        context.store.note_mirror(context.name(), id).await?;
    }
    Ok(mirror)
}

#[cfg(test)]
mod tests {
    use resyncd_mirror::OWN_FOLDER;
    use url::Url;

    use super::*;
    use crate::engine::source::location::record_source_location;
    use crate::engine::tests::{NAME, TestSource};

    #[tokio::test]
    async fn mirror_in_another_folder_is_accepted_and_becomes_known_with_its_place() {
        let url = Url::parse("https://example.org/").unwrap();
        let mut source = TestSource::new(&url, |client| client);
        let folder = source.close_mirror();
        let (context, store) = (&source.context, &source.store);
        let former_folder = folder.with_file_name("former");
        let former = Mirror::open(&former_folder).unwrap().id().to_string();
        let noting = store.note_location(NAME, url.as_str(), former_folder, &former);
        noting.await.unwrap();
        let opened = open_mirror(context, Accepting::Known).await.unwrap();
        // If the configuration is changed back now, the former one is expected.
        let known = store.mirror_id(NAME).await.unwrap();
        assert_eq!(known.as_deref(), Some(former.as_str()));
        record_source_location(context, opened.id()).await.unwrap();
        let known = store.mirror_id(NAME).await.unwrap();
        assert_eq!(known.as_deref(), Some(opened.id().as_str()));
        drop(opened);
        // From now on no other one.
        std::fs::remove_dir_all(folder.join(OWN_FOLDER)).unwrap();
        let refused = open_mirror(context, Accepting::Known).await;
        assert_eq!(
            refused.err().map(|error| error.code()),
            Some("mirror-missing")
        );
    }
}
