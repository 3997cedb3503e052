//! Channels over XMPP PubSub (ResourceSync 0.1, section 5.2.1), with prosody on loopback, which each test starts, and a publisher that
//! shares nothing with the program. Without prosody these tests do nothing (`apt install prosody`).
//!
//! | the Destination | tested by |
//! |---|---|
//! | mirrors by baseline and push: updates, creations and deletions | [`push`]: `changes_are_pushed_…` |
//! | asks for what it has missed, after a restart of either side | [`push`]: `restart_of_…` |
//! | ends the subscription on request | [`push`]: `subscription_is_ended_…` |
//! | polls where there is no account, or no server | [`push`]: `set_is_polled_…` |
//! | accepts only what the service itself sends | [`push`]: `item_of_somebody_else_…` |
//! | uses TLS, proves the password, bounds stanzas | `fetch::xmpp` |

#![allow(
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail"
)]

#[path = "../support/mod.rs"]
mod support;

mod prosody;
mod push;
