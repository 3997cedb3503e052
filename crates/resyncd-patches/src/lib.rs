//! Patches: descriptions of how one version of a resource becomes the next one, applied to bytes. Knows nothing of the rest of resyncd.
//!
//! JSON Patch (RFC 6902), merge patch (RFC 7396) and XML patch operations (RFC 5261, RFC 7351). A patch for JSON states data and not
//! bytes: [`apply_patch`] returns the bytes that the program would write that wrote the file, where its style is known, and the caller
//! takes those that have the stated digest. What is not usable costs a download, no more.
//!
//! Invariants: every function is total, and bounded in memory and time, whatever the patch and the file are. A result is never taken
//! for right here: only a digest proves it.
//!
//! The order of keys and the spelling of numbers decide the bytes. So `serde_json` has the features `preserve_order` and
//! `arbitrary_precision`, which cargo switches on for the whole program.
//!
//! Specification: ResourceSync 1.1, section 14.4 (patching content).

mod apply;
mod error;
mod json;
mod json_style;
mod kind;
mod xml;
mod xml_document;
mod xml_selector;

pub use apply::{MAX_PATCH_BYTES, apply_patch};
pub use error::PatchError;
pub use kind::PatchKind;
