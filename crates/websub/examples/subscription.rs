//! A subscription from the request to a signed delivery: what subscriber and hub send each other, without HTTP between them.
//!
//! ```text
//! cargo run --example subscription
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use websub::{Mode, Signature, SignatureMethod, SubscriptionRequest, Verification};

fn main() {
    // The subscriber posts a form to the hub.
    let request = SubscriptionRequest {
        mode: Mode::Subscribe,
        callback: "https://subscriber.example/callback/7f3a".to_owned(),
        topic: "https://publisher.example/changes".to_owned(),
        lease_seconds: Some(864_000),
        secret: Some("a secret of this subscription".to_owned()),
    };
    let form = request.to_form();
    println!("POST to the hub: {form}");

    // The hub answers 202, and verifies the intent by a GET of the callback.
    let subscription = SubscriptionRequest::parse_form(&form).expect("a complete form");
    let verification = Verification {
        mode: subscription.mode,
        topic: subscription.topic.clone(),
        challenge: Some("a text that can't be guessed".to_owned()),
        lease_seconds: subscription.lease_seconds,
        reason: None,
    };
    let query = verification.to_query();
    println!("GET of the callback: ?{query}");

    // The subscriber has asked for that, and answers 200 with the challenge.
    let received = Verification::parse_query(&query).expect("a complete query");
    assert_eq!(
        (received.mode, &received.topic),
        (request.mode, &request.topic)
    );
    println!("200: {}", received.challenge.unwrap_or_default());

    // The hub delivers what the publisher has published, with the header X-Hub-Signature.
    let body = b"<urlset/>";
    let secret = subscription.secret.unwrap_or_default();
    let header = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), body).to_string();
    println!("X-Hub-Signature: {header}");

    // The subscriber accepts the body only if a signature verifies it.
    let signatures = Signature::parse_all([header.as_str()].into_iter());
    let secret = request.secret.unwrap_or_default();
    let is_genuine = |body: &[u8]| {
        signatures
            .iter()
            .any(|it| it.verifies(secret.as_bytes(), body))
    };
    assert!(is_genuine(body));
    assert!(!is_genuine(b"<urlset>forged</urlset>"));
}
