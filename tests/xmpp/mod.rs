//! Channels over XMPP PubSub (ResourceSync 0.1, section 5.2.1), with prosody on loopback, which each test starts, and a publisher that
//! shares nothing with the program; and with a server that each test tells what to do. Without prosody the tests of [`push`] do nothing
//! (`apt install prosody`), or fail if `RESYNCD_NEEDS_PROSODY` is set, as it is in `.ci/run`. `tests/interop` has a publisher and a
//! client of others.
//!
//! | the Destination | tested by |
//! |---|---|
//! | mirrors by baseline and push: updates, creations and deletions | [`push`]: `changes_are_pushed_…` |
//! | asks for what it has missed, after a restart of either side | [`push`]: `restart_of_…` |
//! | ends the subscription on request | [`push`]: `subscription_is_ended_…` |
//! | polls where there is no account, or no server | [`push`]: `set_is_polled_…` |
//! | resumes a session that was cut off | [`push`]: `session_that_was_cut_off_…`; [`hostile`]: `session_is_resumed_…` |
//! | begins anew where that would repeat what has ended the session | [`hostile`]: `session_whose_subscription_has_ended_…` |
//! | ends the subscription until that is confirmed | [`hostile`]: `subscription_is_ended_until_…` |
//! | accepts only what the service itself sends | [`push`]: `item_of_somebody_else_…`; [`hostile`]: `item_whose_sender_…` |
//! | sends nothing without TLS | [`hostile`]: `server_that_offers_no_tls_…` |
//! | polls for what is rejected or missed, and asks for what came without its document | [`missed`] |
//! | bounds stanzas | [`hostile`]: `stanza_that_is_a_bomb_…`, `stanza_that_never_ends_…` |
//! | uses TLS, proves the password | `resyncd_channels::xmpp` |

mod draft;
mod hostile;
mod missed;
mod prosody;
mod proxy;
mod push;
mod scripted;
