//! Records that the Source contradicts what a hub has delivered, as a fault of the channel.

use super::context::SourceContext;
use crate::clock;
use crate::store::{DeliveryFaultKind, SetId};

/// Shows in the status that an answer or a document of the Source contradicts what the hub of a set has delivered.
pub(super) async fn note_contradiction(context: &SourceContext, set: SetId) {
    let (kind, now) = (DeliveryFaultKind::Contradicted, clock::now().wall);
    if let Err(error) = context.store.note_delivery_fault(set, kind, now).await {
        tracing::error!(code = error.code(), source = context.name(), %error,
            "database error; hub-contradicted not recorded for the channel");
    }
}

/// Reports that documents of the Source contradict what only a hub has stated of so many resources.
pub(super) async fn report_contradictions(context: &SourceContext, set: SetId, count: u64) {
    if count > 0 {
        tracing::warn!(
            code = DeliveryFaultKind::Contradicted.code(),
            source = context.name(),
            count,
            "documents of the Source contradict notifications that are not trusted; following the documents"
        );
        note_contradiction(context, set).await;
    }
}
