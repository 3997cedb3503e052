//! What a Capability List offers (section 9).

use resourcesync::Capability;
use resyncd_core::Offer;
use url::Url;

/// The documents of a capability that are offered, in their order.
pub(crate) fn offered<'a>(
    offers: &'a [Offer],
    capability: &'a Capability,
) -> impl Iterator<Item = &'a Url> {
    let offers = offers.iter();
    offers
        .filter(move |offer| offer.capability == *capability)
        .map(|offer| &offer.uri)
}
