use super::*;

#[test]
fn more_than_a_hundred_deletions_and_more_than_the_share_need_approval() {
    for (deletions, resources, share, expected) in [
        (100, 100, 0.1, false),
        (101, 101, 0.1, true),
        (101, 1010, 0.1, false),
        (102, 1010, 0.1, true),
        (1_000_000, 10_000_000, 0.1, false),
        (101, 101, 1.0, false),
        (101, 1_000_000, 0.0, true),
        (0, 0, 0.0, false),
    ] {
        assert_eq!(
            needs_approval(deletions, resources, 100, share),
            expected,
            "{deletions} of {resources}, {share}"
        );
    }
}
