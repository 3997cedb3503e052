//! Decides whether deletions need the approval of a person.

/// Whether so many deletions at once, of a set that had `resources`, need the approval of a person: more than `few`, and more than
/// `max_share` of the resources.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "a share of a set need not be exact to the last resource of 2^52"
)]
pub fn needs_approval(deletions: u64, resources: u64, few: u64, max_share: f64) -> bool {
    deletions > few && deletions as f64 > resources as f64 * max_share
}

#[cfg(test)]
mod tests;
