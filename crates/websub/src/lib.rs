//! [WebSub](https://www.w3.org/TR/websub/) (W3C Recommendation, 23 January 2018) without I/O, for subscriber and hub.
//!
//! | | |
//! |---|---|
//! | [`SubscriptionRequest`], [`Verification`] | the forms and queries of section 5 |
//! | [`Signature`] | the signatures of section 7 |
//! | [`subscriber`] | when to request, renew and repeat a subscription |
//! | [`hub`] | which subscriptions a hub has, and what it sends to whom |
//!
//! The machines are values: each method has the event and the time as arguments, and returns what to send. The caller has the HTTP
//! client, the server, the clock and the database.
//!
//! A form of another program is read as tolerantly as hubs and subscribers need it; what is written is as the Recommendation has it.

#![forbid(unsafe_code)]

mod form;
pub mod hub;
mod signature;
pub mod subscriber;

pub use form::{Intent, Mode, SubscriptionRequest, Verification};
pub use signature::{Signature, SignatureMethod};
