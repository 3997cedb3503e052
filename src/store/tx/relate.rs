//! Notes which resources are metadata of which others, and selects the resources that a selected record describes (section 14.5),
//! whichever of the two is read first.

use resourcesync::ChangeKind;
use resyncd_core::Standing;

use super::batch_context::BatchContext;
use super::statements::Resource;
use crate::store::change::Change;
use crate::store::error::StoreError;
use crate::store::sql::Connection;
use crate::store::tables::tally::Tallied;
use crate::store::tables::{relation, task};

/// Whether a change is selected: by what it states itself, or by the metadata that describes its resource.
pub(super) fn is_selected(
    sql: &Connection,
    context: &BatchContext<'_>,
    change: &Change,
) -> Result<bool, StoreError> {
    if change.is_selected() {
        return Ok(true);
    }
    match change.standing {
        Some(standing) if standing.has_type => Ok(relation::metadata_selects(
            sql,
            context.source,
            (&change.uri, &change.links),
            standing.lacks,
            standing.selection,
        )?),
        _ => Ok(false),
    }
}

impl Resource {
    /// Stores what a change that counts states of its resource and others. Resources that were not selected are, if this one has
    /// become a record that gives them what they lack.
    pub(super) fn relate(
        &self,
        sql: &Tallied<'_>,
        context: &BatchContext<'_>,
        change: &Change,
    ) -> Result<(), StoreError> {
        let links = match change.kind {
            ChangeKind::Deleted => &[],
            ChangeKind::Created | ChangeKind::Updated => &change.links[..],
        };
        // Most entries state none. Links that only a hub states do not count.
        let mut is_new = !change.unconfirmed
            && (self.state.has_links || relation::states_any(links))
            && relation::replace(sql, self.state.id, links)?;
        let Some(standing) = change.standing else {
            return Ok(());
        };
        if change.kind == ChangeKind::Deleted {
            relation::delete_selection_state(sql, self.state.id)?;
            return Ok(());
        }
        is_new |= relation::set_selection_state(sql, self.state.id, standing)?;
        if is_new && !standing.gives.is_empty() {
            select_described(sql, context, change, standing)?;
        }
        Ok(())
    }
}

fn select_described(
    sql: &Tallied<'_>,
    context: &BatchContext<'_>,
    record: &Change,
    standing: Standing,
) -> Result<(), StoreError> {
    let (source, selection) = (context.source, standing.selection);
    let named = (&record.uri, &record.links[..]);
    for it in relation::unselected_of(sql, source, named, selection)? {
        let described = (&it.uri, &it.links[..]);
        if relation::metadata_selects(sql, source, described, it.lacks, selection)?
            && task::select(sql, it.id)?
        {
            context.has_restored.set(true);
        }
    }
    Ok(())
}
