//! Records that the Source contradicts what only a hub has stated: as the fault of the channel, and counted as an oddity of its
//! notifications.

use super::context::SourceContext;
use crate::clock;
use crate::protocol::{Oddities, Oddity};
use crate::store::{DeliveryFaultKind, SetId};

/// Records `count` changes that a hub has stated, and that the Source's answers or documents contradict.
pub(super) async fn note_contradictions(context: &SourceContext, set: SetId, count: u64) {
    let kind = DeliveryFaultKind::Contradicted;
    let now = clock::now().wall;
    match context.store.note_delivery_fault(set, kind, now).await {
        Ok(Some(topic)) => {
            let mut oddities = Oddities::default();
            oddities.add_several(Oddity::HubContradicted, count);
            context
                .runtime_status
                .note_oddities(set, |documents| documents.add(topic.url(), &oddities));
        }
        // The channel is no longer the set's.
        Ok(None) => {}
        Err(error) => {
            tracing::error!(code = error.code(), source = context.name(), %error, "database error; the fault of the hub is not shown");
        }
    }
}
