//! Opens the mirror of a Source: the one that it has used so far.

use super::context::SourceContext;
use super::error::EngineError;
use crate::mirror::{Mirror, MirrorId};

/// Which mirror may be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepting {
    /// The one that the database knows; any if it knows none.
    Known,
    /// Any: the database knows it from now on.
    Any,
}

/// Opens the mirror of a Source. The first one that is opened, or one that was not expected, becomes known to the database.
pub(super) async fn open_mirror(
    context: &SourceContext,
    accepting: Accepting,
) -> Result<Mirror, EngineError> {
    let stored = context.store.mirror_id(context.name()).await?;
    let known = match accepting {
        Accepting::Known => stored.as_deref().and_then(MirrorId::parse),
        Accepting::Any => None,
    };
    let root = context.source.mirror.clone();
    let opening = move || Mirror::open_known(&root, known.as_ref());
    let opened = tokio::task::spawn_blocking(opening).await;
    let mirror = opened.map_err(|error| EngineError::of_join(&error, "the mirror"))??;
    let id = mirror.id().as_str();
    if stored.as_deref() != Some(id) {
        context.store.note_mirror(context.name(), id).await?;
    }
    Ok(mirror)
}
