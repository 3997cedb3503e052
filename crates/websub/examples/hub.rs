//! A hub and its subscriber, from the request to the end of the lease: each side is a machine, and this program is the network and the
//! clock between them.
//!
//! ```text
//! cargo run --example hub
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use chrono::{DateTime, TimeDelta};
use websub::hub::{Hub, HubRules, Outcome};
use websub::subscriber::{Lease, LeaseState, PendingRequest, VerificationAnswer};
use websub::{Intent, Mode, SubscriptionRequest, Verification};

const TOPIC: &str = "https://publisher.example/changes";

fn main() -> Result<(), Box<dyn Error>> {
    let start = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
    let mut hub = Hub::new(HubRules::default(), []);
    let mut lease = Lease::new(start);
    let mut database = Vec::new();

    for now in [start, start + TimeDelta::minutes(5)] {
        // The subscriber asks when its lease says so: at first, and then after half of the lease.
        assert!(lease.handle_timeout(now));
        let asked = PendingRequest {
            intent: Intent::Subscribe,
            lease_seconds: 600,
        };
        lease.begin_request(now, asked);
        let form = SubscriptionRequest {
            mode: Mode::Subscribe,
            callback: "https://subscriber.example/callback?id=7f3a".to_owned(),
            topic: TOPIC.to_owned(),
            lease_seconds: Some(asked.lease_seconds),
            secret: Some("a secret of this subscription".to_owned()),
        }
        .to_form();

        // The hub answers 202, and verifies the intent. A real challenge is random.
        let request = SubscriptionRequest::parse_form(&form).ok_or("an incomplete form")?;
        let pending = hub.request(now, request, "5b7c0e".to_owned())?;
        let url = pending.url();
        println!("GET {url}");

        // The subscriber answers with the challenge if it has asked for that.
        let (_, query) = url.split_once('?').ok_or("no query")?;
        let verification = Verification::parse_query(query).ok_or("an incomplete query")?;
        let answer = lease.verify(now, Intent::Subscribe, verification.lease_seconds, 0.0);
        assert_eq!(verification.topic, TOPIC);
        assert_eq!(answer, VerificationAnswer::Confirm);
        let challenge = verification.challenge.ok_or("no challenge")?;

        // The hub stores what the answer has changed.
        if let Outcome::Subscribed(subscription) =
            hub.confirm(pending, 200, challenge.as_bytes())?
        {
            println!("subscribed until {}", subscription.expires_at);
            database = vec![subscription];
        }
    }

    // The hub is started anew, and something is published.
    let mut hub = Hub::new(HubRules::default(), database);
    let now = start + TimeDelta::minutes(14);
    for delivery in hub.deliveries(now, TOPIC, b"<urlset/>") {
        println!("POST {}", delivery.callback);
        println!("Link: <https://hub.example/>; rel=\"hub\", <{TOPIC}>; rel=\"self\"");
        if let Some(signature) = delivery.signature {
            println!("X-Hub-Signature: {signature}");
        }
    }
    assert_eq!(hub.deliveries(now, TOPIC, b"").count(), 1);

    // Nobody has renewed the lease: both sides know that it has run out.
    let now = start + TimeDelta::minutes(15);
    assert_eq!(hub.next_expiry(), Some(now));
    assert_eq!(hub.expire(now).len(), 1);
    assert!(lease.handle_timeout(now));
    assert_eq!(lease.state, LeaseState::Expired);
    println!("expired");
    Ok(())
}
