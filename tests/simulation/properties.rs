//! Random histories. `RESYNCD_SIMULATIONS` says how many; what fails is kept beside this file and tried first ever after.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use super::history::history;

/// How many histories each property is tried with, unless the environment says otherwise.
const HISTORIES: u32 = 256;

fn config() -> ProptestConfig {
    let asked = std::env::var("RESYNCD_SIMULATIONS").ok();
    ProptestConfig {
        cases: asked.map_or(HISTORIES, |asked| asked.parse().unwrap()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource(
            "proptest-regressions",
        ))),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// Whatever happens: all promises are kept on the way, and in the end the mirror is where the Source is.
    #[test]
    fn any_history_ends_in_sync(history in history(60)) {
        history.live();
    }
}
