//! `version`: prints the version and the commit that the program was built from.

use super::exit_status::OK;

pub(super) fn version() -> u8 {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("RESYNCD_BUILD_COMMIT") {
        Some(commit) => println!("resyncd {version} (commit {commit})"),
        None => println!("resyncd {version} (commit not recorded)"),
    }
    OK
}
