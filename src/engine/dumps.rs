//! Resource Dumps and Change Dumps (sections 11 and 13): their packages are fetched, and unpacked as their manifests become
//! tasks.

pub(super) mod change_dumps;
pub(super) mod members;
mod package_files;
pub(super) mod packages;
pub(super) mod refusals;
mod resource_dumps;
pub(super) mod unpack;
