//! Channels over WebSockets (ResourceSync Notification 0.8, sections 3 to 6), over real sockets.
//!
//! | the Destination | tested by |
//! |---|---|
//! | mirrors by baseline and push: updates, creations and deletions, as text or binary | [`push`]: `changes_are_pushed_…` |
//! | polls what a framework notification names | [`push`]: `framework_notification_…` |
//! | finds by a poll what was missed, after a restart of either side | [`push`]: `restart_of_…` |
//! | polls where no connection can be opened | [`push`]: `set_is_polled_…` |
//! | detects that push has silently stopped | [`push`]: `connection_that_has_fallen_silent_…` |
//! | connects over TLS | [`push`]: `connection_over_tls_…` |
//! | closes the connection when the channel is not wanted any more | [`endings`] |
//! | reads no further while its inbox is full | [`hostile`]: `full_inbox_…` |
//! | accepts no message beyond the limit | [`hostile`]: `long_message_…`; frames of gigabytes, messages without end and servers that answer no pings: `resyncd_channels::websocket` |
//! | connects to no private address | [`hostile`]: `private_addresses_…` |
//! | sends credentials to their own origin only | [`hostile`]: `credentials_…` |

mod endings;
mod hostile;
mod push;
