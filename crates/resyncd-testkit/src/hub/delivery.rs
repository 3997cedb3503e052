//! Content distribution (WebSub, section 7).

use bytes::Bytes;
use futures_util::future::join_all;
use reqwest::header::{CONTENT_TYPE, LINK};
use websub::{Signature, SignatureMethod};

use super::event::{HubDelivery, HubEvent};
use super::options::Signing;
use super::state::{SharedHub, Subscription};
use crate::serving;

/// Delivers to every subscriber of a topic concurrently.
pub(super) async fn deliver_all(shared: &SharedHub, topic: &str, body: Bytes) -> Vec<HubDelivery> {
    let subscribers = shared.active(|subscription| subscription.topic == topic);
    let deliveries = subscribers
        .iter()
        .map(|subscription| deliver(shared, subscription, &body));
    join_all(deliveries).await
}

/// Delivers to one subscriber, and tries again a bounded number of times.
async fn deliver(shared: &SharedHub, to: &Subscription, body: &Bytes) -> HubDelivery {
    let mut delivery = HubDelivery {
        topic: to.topic.clone(),
        callback: to.callback.clone(),
        attempts: 0,
        status: None,
    };
    loop {
        let options = shared.options();
        delivery.attempts += 1;
        delivery.status = attempt(shared, to, body, options.signing).await;
        let gone = delivery.status == Some(410);
        if gone {
            shared.drop_subscription(&to.topic, &to.callback);
        }
        if gone || delivery.is_accepted() || delivery.attempts >= options.attempts {
            shared.events.add(HubEvent::Delivered(delivery.clone()));
            return delivery;
        }
        tokio::time::sleep(options.retry_after).await;
    }
}

async fn attempt(
    shared: &SharedHub,
    to: &Subscription,
    body: &Bytes,
    signing: Signing,
) -> Option<u16> {
    let links = serving::channel_links(&to.topic, shared.uri.as_str());
    let mut request = shared
        .client
        .post(&to.callback)
        .header(CONTENT_TYPE, "application/xml")
        .header(LINK, links)
        .body(body.clone());
    if let Some(secret) = &to.secret
        && let Some(signature) = signature(signing, secret, body)
    {
        request = request.header("X-Hub-Signature", signature.to_string());
    }
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    // Read to its end, so that the connection can be used again.
    let _ = answer.bytes().await;
    Some(status)
}

fn signature(signing: Signing, secret: &str, body: &[u8]) -> Option<Signature> {
    match signing {
        Signing::Signed(method) => Some(Signature::sign(method, secret.as_bytes(), body)),
        Signing::Unsigned => None,
        Signing::Wrong => {
            let other = format!("not {secret}");
            let method = SignatureMethod::Sha256;
            Some(Signature::sign(method, other.as_bytes(), body))
        }
    }
}
