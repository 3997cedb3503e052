//! Histories that once failed, in short, and those that one decision depends on.

use super::history::{Act, History};
use super::network::Fate;
use super::source::Habits;
use super::world::Settings;

const AT_ONCE: Fate = Fate::Delivered(1);

fn run(habits: Habits, acts: Vec<Act>) {
    let history = History {
        habits,
        settings: Settings::default(),
        acts,
        last_resource_list: false,
    };
    history.run();
}

/// One baseline, one notification, and the end of the process at each step.
#[test]
fn notification_is_applied_wherever_the_process_ends() {
    for step in 0..40 {
        let acts = vec![
            Act::Change(1),
            Act::Pass(1000),
            Act::Crash(step),
            Act::Publish(0, AT_ONCE),
            Act::Pass(60_000),
        ];
        run(Habits::default(), acts);
    }
}
