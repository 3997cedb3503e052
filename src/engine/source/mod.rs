//! One Source: finds its sets and runs a worker for each.
//!
//! | module | what it does |
//! |---|---|
//! | `worker` | the worker of the Source |
//! | `discovery` | which of its sets are followed |
//! | `new_sets` | how many new ones begin to be followed |
//! | `location` | whether its URL, sets or mirror are others than before |

pub(super) mod discovery;
pub(super) mod location;
pub(super) mod new_sets;
pub(super) mod worker;
