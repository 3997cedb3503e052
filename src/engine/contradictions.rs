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
