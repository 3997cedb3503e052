//! The configuration file.

/// placeholder
#[derive(Clone, Debug)]
pub struct Fault {}
/// placeholder
#[derive(Clone, Debug)]
pub struct Faults {}
