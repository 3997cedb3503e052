//! HTTP callback of the draft of version 0.1 (2012), section 5.2.2, over real sockets.
//!
//! | the Destination | tested by |
//! |---|---|
//! | registers a callback where the Sitemap names an interface of a configured protocol, and mirrors by baseline and push | [`push`]: `changes_are_pushed_…`, `part_of_an_index_…` |
//! | registers it again after a restart of either side, with the same address | [`push`]: `restart_of_…` |
//! | polls where the interface refuses | [`push`]: `set_is_polled_…` |
//! | ends without a request, which the draft does not have | [`endings`] |
//! | requests no interface of another protocol, and none at a private address | [`interfaces`] |
//! | applies a deletion once the Source confirms it | [`hostile`]: `deletion_…` |
//! | puts no content into the mirror that the Source does not serve | [`hostile`]: `content_…` |
//! | requests nothing of other hosts for what is pushed | [`hostile`]: `other_hosts_…` |
//! | bounds what is delivered, in size and rate | [`hostile`]: `flood_…`, `long_delivery_…` |

mod callback_site;
mod endings;
mod hostile;
mod interfaces;
mod push;
