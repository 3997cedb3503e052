//! Patches: descriptions of how one version of a resource becomes the next one, applied to bytes. Knows nothing of the rest of resyncd.
//!
//! JSON Patch (RFC 6902), merge patch (RFC 7396) and XML patch operations (RFC 5261, RFC 7351). A patch for JSON states data and not
//! bytes: [`apply_patch`] returns the bytes that the usual programs would write for them, one after the other, and the caller takes
//! those that have the stated digest.
//!
//! Invariants: every function is total, and bounded in memory and time, whatever the patch and the file are. A result is never taken
//! for right here: only a digest proves it.
//!
//! JSON has a value of its own, because the order of keys and the spelling of numbers decide the bytes; `serde_json` retains neither
//! unless two features are switched on that change it for the whole program.
//!
//! Specification: ResourceSync 1.1, section 14.4 (patching content).

mod apply;
mod error;
mod json;
mod json_value;
mod kind;
mod merge;
mod number;
mod serialization;
mod xml;
mod xml_selector;
mod xml_tree;

pub use apply::{MAX_PATCH_BYTES, PatchedBytes, apply_patch};
pub use error::PatchError;
pub use kind::PatchKind;
