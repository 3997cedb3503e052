//! PURE: which Sources a node takes, and which ones it gives up.
//!
//! Each node decides for itself, in a transaction that no other one overlaps. It takes what is free up to its share of the weight; what
//! nobody has taken for [`GRACE`], it takes in any case: the others may not have it in their configurations. It gives up what a person wants
//! to be elsewhere, everything if it drains, and what is beyond its share if another node lacks that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::nodes::RENEWAL;

/// For how long a free Source is left to a node that lacks weight.
const GRACE: Duration = RENEWAL.saturating_mul(2);
/// For how long a Source stays where it is, unless a person wants it elsewhere, or its node drains.
const SETTLED: Duration = Duration::from_secs(60);
/// The weight that a Source has without any resources.
pub(super) const LEAST_WEIGHT: u64 = 100;

/// A node that may hold something.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) name: String,
    /// Whether it is to hold nothing.
    pub(super) drains: bool,
}

/// A Source, or (with an empty name) what belongs to none.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) source: String,
    /// The id of its node; `None`: it is free.
    pub(super) node: Option<String>,
    /// For how long it is held, or free.
    pub(super) age: Duration,
    /// The name of the node that a person wants it to be at.
    pub(super) wanted: Option<String>,
    pub(super) weight: u64,
}

impl Share {
    /// That of a Source that nobody has held yet.
    pub(super) fn new(source: String) -> Self {
        Self {
            weight: if source.is_empty() { 0 } else { LEAST_WEIGHT },
            source,
            node: None,
            age: Duration::ZERO,
            wanted: None,
        }
    }
}

/// What a node does next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) takes: Vec<String>,
    pub(super) gives_up: Vec<String>,
}

/// The next step of the node of that id. `configured`: the Sources that it can hold.
pub(super) fn plan(
    own: &str,
    nodes: &[Candidate],
    shares: &[Share],
    configured: &BTreeSet<&str>,
) -> Plan {
    let mut plan = Plan::default();
    // If all drain, what they held is held all the same.
    let mut usable: Vec<&Candidate> = nodes.iter().filter(|node| !node.drains).collect();
    if usable.is_empty() {
        usable = nodes.iter().collect();
    }
    let is_usable = usable.iter().any(|node| node.id == own);
    let at = |name: &str| usable.iter().find(|node| node.name == name);
    let mut loads: BTreeMap<&str, u64> = usable.iter().map(|node| (&*node.id, 0)).collect();
    for share in shares {
        if let Some(load) = share.node.as_deref().and_then(|node| loads.get_mut(node)) {
            *load += share.weight;
        }
    }
    let total: u64 = shares.iter().map(|share| share.weight).sum();
    let fair = total.div_ceil(usable.len().max(1) as u64);
    let mut load = loads.get(own).copied().unwrap_or_default();
    for share in shares.iter().filter(|share| share.node.is_none()) {
        if !is_usable || !configured.contains(&*share.source) {
            continue;
        }
        let takes = match share.wanted.as_deref().and_then(at) {
            Some(wanted) if share.age < GRACE => wanted.id == own,
            // The first one leads: it has no weight.
            _ => load == 0 || load + share.weight / 2 <= fair || share.age >= GRACE,
        };
        if takes {
            load += share.weight;
            plan.takes.push(share.source.clone());
        }
    }
    let lacking = loads.iter().filter(|(id, _)| **id != own);
    let mut lacking: u64 = lacking.map(|(_, load)| fair.saturating_sub(*load)).sum();
    for share in shares.iter().filter(|it| it.node.as_deref() == Some(own)) {
        let goes = if !configured.contains(&*share.source) || !is_usable {
            true
        } else if let Some(wanted) = share.wanted.as_deref().and_then(at) {
            wanted.id != own
        } else {
            let is_beyond = load >= fair + share.weight && load > fair + fair / 5;
            // What was just taken may have been left by a node that can't hold it.
            let is_settled = share.age >= SETTLED && plan.takes.is_empty();
            is_beyond && lacking >= share.weight && is_settled && share.weight > 0
        };
        if goes {
            load = load.saturating_sub(share.weight);
            lacking = lacking.saturating_sub(share.weight);
            plan.gives_up.push(share.source.clone());
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Duration = Duration::from_secs(3600);
    const NEW: Duration = Duration::from_secs(1);

    fn node(text: &str) -> Candidate {
        let name = text.trim_end_matches('-');
        Candidate {
            id: format!("{name} id"),
            name: name.to_owned(),
            drains: text.ends_with('-'),
        }
    }

    /// Such as `x@a 500 old >b`: the Source x at the node a, of that weight, wanted at b.
    fn share(text: &str) -> Share {
        let mut words = text.split(' ');
        let (source, node) = words.next().unwrap().split_once('@').unwrap();
        let weight = words.next().unwrap().parse().unwrap();
        let age = if words.next() == Some("old") {
            OLD
        } else {
            NEW
        };
        Share {
            source: source.to_owned(),
            node: Some(format!("{node} id")).filter(|_| !node.is_empty()),
            age,
            wanted: words.next().map(|wanted| wanted[1..].to_owned()),
            weight,
        }
    }

    #[test]
    fn nodes_take_and_give_up_what_they_should() {
        // The nodes, the Sources, and what `a` takes and gives up.
        for (nodes, shares, takes, gives_up) in [
            // One node takes all; two their shares, and the rest after a while.
            ("a", "@ 0 new|x@ 100 new|y@ 100 new", " x y", ""),
            ("a b", "@ 0 new|x@ 100 new|y@ 100 new", " x", ""),
            ("a b", "@b 0 new|x@ 300 new|y@b 100 new", "x", ""),
            ("a b", "x@a 100 old|y@ 100 new|z@ 100 new", "y", ""),
            ("a b", "x@a 100 old|y@ 100 old", "y", ""),
            // What is not configured is never taken, and is given up.
            ("a", "other@ 100 old|x@ 100 old", "x", ""),
            ("a", "other@a 100 old|x@a 100 old", "", "other"),
            // What a person wants elsewhere goes there while that node works.
            ("a b", "x@ 100 new >b|y@b 100 old", "", ""),
            ("a b", "x@ 100 old >b|y@b 100 old", "x", ""),
            ("a", "x@ 100 new >b", "x", ""),
            ("a b", "x@ 100 new >a|y@a 900 old", "x", ""),
            ("a b", "x@a 100 old >b|y@b 900 old", "", "x"),
            ("a b-", "x@a 100 old >b", "", ""),
            ("a", "x@a 100 old >b", "", ""),
            // A node that drains gives up all, unless all drain.
            ("a- b", "@a 0 old|x@a 100 old|y@ 100 old", "", " x"),
            ("a- b-", "x@a 100 old|y@ 100 old", "y", ""),
            // The weight is balanced, but not to and fro, and not what is new.
            ("a b", "x@a 100 old|y@a 100 old|z@a 100 old", "", "x"),
            ("a b", "x@a 100 new|y@a 100 new", "", ""),
            ("a b", "x@a 100 old|y@b 100 old", "", ""),
            ("a b", "x@a 100 old|y@a 100 old|z@b 100 old", "", ""),
            ("a b", "x@a 1000 old|y@b 100 old", "", ""),
            ("a b", "x@a 1000 old|y@a 100 old", "", "y"),
        ] {
            let nodes: Vec<Candidate> = nodes.split(' ').map(node).collect();
            let all: Vec<Share> = shares.split('|').map(share).collect();
            let configured = BTreeSet::from(["", "x", "y", "z"]);
            let plan = plan("a id", &nodes, &all, &configured);
            let found = (plan.takes.join(" "), plan.gives_up.join(" "));
            assert_eq!(found, (takes.to_owned(), gives_up.to_owned()), "{shares}");
        }
    }

    /// However the nodes come and go, all is held in the end, by whom it should be, and stays there.
    #[test]
    fn shares_come_to_rest() {
        let configured: Vec<String> = (0..60).map(|number| number.to_string()).collect();
        let configured: BTreeSet<&str> = configured.iter().map(String::as_str).collect();
        let mut shares: Vec<Share> = configured
            .iter()
            .map(|source| Share {
                source: (*source).to_owned(),
                node: None,
                age: Duration::ZERO,
                wanted: None,
                weight: LEAST_WEIGHT + source.parse::<u64>().unwrap().pow(2),
            })
            .collect();
        for names in ["a", "a b c", "b c", "b c d e", "b- c d e", "e"] {
            let nodes: Vec<Candidate> = names.split(' ').map(node).collect();
            for share in &mut shares {
                let known = share.node.take();
                share.node = known.filter(|known| nodes.iter().any(|node| node.id == *known));
            }
            let mut at_rest = 0;
            let mut rounds = 0;
            while at_rest < 15 {
                rounds += 1;
                assert!(rounds < 100, "{names}");
                at_rest += 1;
                for node in &nodes {
                    let plan = plan(&node.id, &nodes, &shares, &configured);
                    for share in &mut shares {
                        let takes = plan.takes.contains(&share.source);
                        if takes || plan.gives_up.contains(&share.source) {
                            share.node = takes.then(|| node.id.clone());
                            share.age = Duration::ZERO;
                            at_rest = 0;
                        }
                    }
                }
                for share in &mut shares {
                    share.age += RENEWAL;
                }
            }
            let total: u64 = shares.iter().map(|share| share.weight).sum();
            let usable: Vec<&Candidate> = nodes.iter().filter(|node| !node.drains).collect();
            for node in &usable {
                let held = shares
                    .iter()
                    .filter(|it| it.node.as_deref() == Some(&node.id));
                let load: u64 = held.map(|share| share.weight).sum();
                let fair = total as f64 / usable.len() as f64;
                assert!(
                    (0.7..1.3).contains(&(load as f64 / fair)),
                    "{names}: {load} of {fair}"
                );
            }
        }
    }
}
