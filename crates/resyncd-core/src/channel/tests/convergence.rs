//! Both halves of the machine with a store that fails, a driver that is restarted and a hub that loses requests: the channel
//! ends up as it is wanted.

use super::*;

/// What the hub of a run does to its next request or verification.
#[derive(Clone, Copy, Debug)]
enum Luck {
    /// The request arrives and is verified.
    Good,
    /// The hub refuses.
    Refused,
    /// The hub accepts and does not verify.
    Unverified,
    /// The hub verifies, and its answer is lost.
    AnswerLost,
    /// The commit fails.
    CommitFails,
    /// The commit succeeds, and its result is lost.
    CommitResultLost,
    /// The process is killed before it performs the action.
    Killed,
}

fn luck() -> impl Strategy<Value = Luck> {
    use Luck::*;
    prop_oneof![
        Just(Good),
        Just(Refused),
        Just(Unverified),
        Just(AnswerLost),
        Just(CommitFails),
        Just(CommitResultLost),
        Just(Killed),
    ]
}

/// Drives the channel until it waits for a verified lease or has ended; the luck runs out before that.
fn run(case: &mut Case, lucks: &[Luck]) -> String {
    let mut lucks = lucks.iter().copied();
    let (mut now, mut event) = (0, Started);
    for _ in 0..1000 {
        let luck = lucks.next().unwrap_or(Luck::Good);
        let (mut machine, mut channel) = (case.machine.clone(), case.channel.clone());
        let step = machine.handle(&mut channel, case.now(now), event);
        match luck {
            Luck::CommitFails => {}
            Luck::CommitResultLost => case.channel = channel,
            _ => (case.machine, case.channel) = (machine, channel),
        }
        event = match (luck, step.action) {
            (Luck::CommitFails | Luck::CommitResultLost, _) => {
                now += 2;
                Started
            }
            (Luck::Killed, _) => {
                case.machine = ChannelMachine::new(case.now(now), rules(None));
                Started
            }
            (_, ChannelAction::End) => break,
            (_, ChannelAction::ReadTopic(_)) => TopicUnavailable,
            (Luck::Refused, ChannelAction::SendRequest(_)) => refused(None),
            (Luck::Unverified, ChannelAction::SendRequest(_)) => accepted(),
            (_, ChannelAction::SendRequest(request)) => {
                now += 1;
                let intent = request.asked.intent;
                case.verify(now, intent);
                if matches!(luck, Luck::AnswerLost) {
                    refused(None)
                } else {
                    accepted()
                }
            }
            (_, ChannelAction::WaitUntil(_))
                if case.channel.lease.state == ChannelState::Active
                    && case.channel.lease.failures == 0 =>
            {
                break;
            }
            (_, ChannelAction::WaitUntil(time)) => {
                let seconds = case.seconds(time);
                now = now.max(u64::try_from(seconds).unwrap());
                Woken
            }
        };
    }
    case.channel.lease.state.code().to_owned()
}

proptest! {
    #[test]
    fn wanted_channel_becomes_active_whatever_fails_before(
        lucks in proptest::collection::vec(luck(), 0..30)
    ) {
        let mut case = Case::new("a b");
        prop_assert_eq!(run(&mut case, &lucks), "active");
    }

    #[test]
    fn unwanted_channel_ends_whatever_fails_before(
        lucks in proptest::collection::vec(luck(), 0..30)
    ) {
        let mut case = Case::active("a b").left(0);
        prop_assert_eq!(run(&mut case, &lucks), "unsubscribed");
    }
}
