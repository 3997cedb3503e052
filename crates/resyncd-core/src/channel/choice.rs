//! Which channels of a set are wanted: what a Capability List advertises, compared with what is stored.

use resourcesync::Capability;

use crate::{TopicUri, Transport};

/// What identifies a channel of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelKey<'a> {
    /// Change or framework notifications.
    pub kind: &'a Capability,
    /// The topic as advertised.
    pub topic: &'a TopicUri,
    /// Over what its notifications come.
    pub transport: Transport,
    /// Whether the hub has to sign deliveries. A secret can't be changed, so another policy needs another channel.
    pub is_signed: bool,
}

/// The result of [`choose_channels`], as indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelChoice {
    /// Wanted channels that are stored: advertised, stored.
    pub known: Vec<(usize, usize)>,
    /// Wanted channels that are not stored.
    pub new: Vec<usize>,
    /// Stored channels that are not wanted.
    pub unwanted: Vec<usize>,
    /// How many are advertised and not wanted, because another one of their kind is.
    pub surplus: usize,
}

/// Compares the channels that are advertised with those that are stored. Of each kind one is wanted: the first that is followed
/// (`is_followed`, by the place in `stored`), or else the first that is stored, or else the first. One that is advertised twice
/// counts once.
pub fn choose_channels(
    advertised: &[ChannelKey<'_>],
    stored: &[ChannelKey<'_>],
    is_followed: impl Fn(usize) -> bool,
) -> ChannelChoice {
    let place = |key: &ChannelKey<'_>| stored.iter().position(|other| other == key);
    let mut choice = ChannelChoice::default();
    for (index, key) in advertised.iter().enumerate() {
        let is_of_kind = |other: &&ChannelKey<'_>| other.kind == key.kind;
        let mut of_kind = advertised.iter().filter(is_of_kind);
        if advertised[..index].iter().any(|other| is_of_kind(&other)) {
            continue;
        }
        choice.surplus += of_kind.clone().filter(|other| *other != key).count();
        let followed = of_kind
            .clone()
            .find(|key| place(key).is_some_and(&is_followed));
        let wanted = followed.or_else(|| of_kind.find(|key| place(key).is_some()));
        let wanted = wanted.unwrap_or(key);
        let index = advertised.iter().position(|other| other == wanted);
        let index = index.unwrap_or_default();
        match place(wanted) {
            Some(place) => choice.known.push((index, place)),
            None => choice.new.push(index),
        }
    }
    choice.unwanted = (0..stored.len())
        .filter(|place| choice.known.iter().all(|(_, known)| known != place))
        .collect();
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        advertised: &[(&str, &str, bool)],
        stored: &[(&str, &str, bool)],
        expected: ChannelChoice,
    ) {
        check_with(advertised, stored, &[], expected);
    }

    /// `left`: the places of the stored ones that are not followed any more.
    fn check_with(
        advertised: &[(&str, &str, bool)],
        stored: &[(&str, &str, bool)],
        left: &[usize],
        expected: ChannelChoice,
    ) {
        let own = |keys: &[(&str, &str, bool)]| -> Vec<(Capability, TopicUri, bool)> {
            keys.iter()
                .map(|&(kind, topic, is_signed)| {
                    let kind = match kind {
                        "changes" => Capability::ChangeNotification,
                        _ => Capability::FrameworkNotification,
                    };
                    let topic = TopicUri::parse(&format!("http://source.example/{topic}"));
                    (kind, topic.unwrap(), is_signed)
                })
                .collect()
        };
        fn keys(own: &[(Capability, TopicUri, bool)]) -> Vec<ChannelKey<'_>> {
            own.iter()
                .map(|(kind, topic, is_signed)| ChannelKey {
                    kind,
                    topic,
                    transport: Transport::Websub,
                    is_signed: *is_signed,
                })
                .collect()
        }
        let is_followed = |place| !left.contains(&place);
        let choice = choose_channels(&keys(&own(advertised)), &keys(&own(stored)), is_followed);
        assert_eq!(choice, expected, "{advertised:?}, {stored:?}");
    }

    fn choice(known: &[(usize, usize)], new: &[usize], unwanted: &[usize]) -> ChannelChoice {
        ChannelChoice {
            known: known.to_vec(),
            new: new.to_vec(),
            unwanted: unwanted.to_vec(),
            surplus: 0,
        }
    }

    #[test]
    fn channel_is_identified_by_kind_topic_and_signature_policy() {
        let (a, b) = (("changes", "a", true), ("changes", "b", true));
        let (framework, unsigned) = (("framework", "a", true), ("changes", "a", false));
        check(&[], &[], choice(&[], &[], &[]));
        check(&[b], &[a], choice(&[], &[0], &[0]));
        check(&[a], &[framework], choice(&[], &[0], &[0]));
        check(&[a], &[unsigned], choice(&[], &[0], &[0]));
        // The channel of the new policy is found behind the one of the old policy.
        check(&[a], &[unsigned, a], choice(&[(0, 1)], &[], &[0]));
        check(&[], &[a, b], choice(&[], &[], &[0, 1]));
    }

    /// It goes on with its lease.
    #[test]
    fn stored_channel_is_wanted_although_it_is_not_followed_any_more() {
        let (a, b) = (("changes", "a", true), ("changes", "b", true));
        let expected = ChannelChoice {
            surplus: 1,
            ..choice(&[(1, 0)], &[], &[])
        };
        check_with(&[a, b], &[b], &[0], expected);
    }

    #[test]
    fn one_channel_of_each_kind_is_wanted() {
        let (a, b, c) = (
            ("changes", "a", true),
            ("changes", "b", true),
            ("changes", "c", true),
        );
        let (f, g) = (("framework", "a", true), ("framework", "g", true));
        let surplus = |surplus: usize, choice: ChannelChoice| ChannelChoice { surplus, ..choice };
        check(&[a, f], &[], choice(&[], &[0, 1], &[]));
        check(&[a, b, f, c, g], &[], surplus(3, choice(&[], &[0, 2], &[])));
        // What is subscribed to stays, in any order.
        check(&[a, b], &[b], surplus(1, choice(&[(1, 0)], &[], &[])));
        // Of several subscriptions, one stays.
        check(&[a, b], &[b, a], surplus(1, choice(&[(0, 1)], &[], &[0])));
        // One that was left is not taken up again, in whatever order they are advertised.
        for (advertised, place) in [([a, b], 0), ([b, a], 1)] {
            let expected = surplus(1, choice(&[(place, 0)], &[], &[1]));
            check_with(&advertised, &[a, b], &[1], expected);
        }
    }

    #[test]
    fn channel_that_is_advertised_twice_counts_once() {
        let a = ("changes", "a", true);
        check(&[a, a], &[], choice(&[], &[0], &[]));
        check(&[a, a], &[a], choice(&[(0, 0)], &[], &[]));
    }
}
