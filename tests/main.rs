//! The behaviour of the program and of its library, from outside: one program, so that it is linked once, with a module for each
//! subject. `tests/clock.rs` is a program of its own: it sets the clock of its process.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test panics where its preconditions fail, and makes what it needs by itself"
)]

mod callback;
mod config;
mod destination;
mod documents;
mod fuzzing;
mod generated_docs;
mod hostile;
mod process;
mod publish;
mod readme;
mod support;
mod websocket;
mod websub;
mod xmpp;
