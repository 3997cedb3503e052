//! SHELL, inbound: the callback listener for hubs and Sources, and the status listener for operators with its page (`page`).
//!
//! | module | what it has |
//! |---|---|
//! | | **both listeners** |
//! | `listener`, `connection_slots` | the accept loop; how many connections, and which one is closed when there are too many |
//! | `rejection_counters` | rejected requests that belong to no Source and no channel |
//! | | **callback listener** |
//! | `callback` | verifications, denials and deliveries |
//! | `delivery_body`, `delivery_budget` | reads the body of a delivery; how many bytes of a channel are in memory at once |
//! | `delivery_rate` | how many deliveries a sender gets that nothing identifies |
//! | `known_callbacks` | callbacks used recently, so that not every delivery reads its channel |
//! | | **status listener** |
//! | `operator` | the routes, and the requests of operators and scripts |
//! | `feed`, `resource_line` | `GET /changes`, `GET /resources`; what is stated of a resource |
//! | `page` | the page for people |
//! | `bearer_token`, `host_origin_guard` | the optional token; requests that a foreign web page causes are rejected |
//! | `nodes` | requests about a Source that another node of the database follows |
//! | `state` | what the handlers need |
//! | `query`, `error_response` | the query of a request; errors as JSON |
//!
//! Invariants: a delivery is acknowledged only when it is on disk, or known at once to be unusable; a channel is identified by the
//! token of its callback alone; no response contains a secret or a token. The module knows the inbox, the callbacks, the feed and the
//! resources of the [`store`](crate::store) and the operations of the [`Engine`](crate::engine::Engine), not how they work.
//!
//! Specification: WebSub, sections 5.3 (verification of intent), 7 (content distribution) and 7.1 (signatures); version 0.1 of
//! ResourceSync, section 5.2.2 (HTTP callback).

mod bearer_token;
mod callback;
mod connection_slots;
mod delivery_body;
mod delivery_budget;
mod delivery_rate;
mod error_response;
mod feed;
mod host_origin_guard;
mod known_callbacks;
mod listener;
mod nodes;
mod operator;
mod page;
mod query;
mod rejection_counters;
mod resource_line;
mod state;

pub(crate) use bearer_token::{BearerToken, require_token};
pub use callback::{Callback, SharedRedaction, callback_router};
pub(crate) use listener::Peer;
pub use listener::{BoundListener, bind, serve};
pub use nodes::answer_nodes;
pub use operator::{operator_api, operator_router, operator_routes};
pub use rejection_counters::{PROBE, REJECTED, RejectionCounters};
