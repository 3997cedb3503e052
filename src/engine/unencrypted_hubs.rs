//! Subscriptions whose secret goes to a hub over plain http: whoever reads it on the way can sign notifications. And callbacks whose
//! address goes over plain http, which nothing but their address protects.
//!
//! Must not know who asks, nor how it is shown.

use chrono::{DateTime, Utc};
use resyncd_core::HubUri;
use resyncd_fetch::is_in_the_clear;
use url::Url;

use crate::status::StatusError;
use crate::store::ChannelRecord;

/// The secret of a subscription is sent unencrypted.
pub(super) const UNENCRYPTED_CODE: &str = "unencrypted-hub";

/// Whether a secret that is sent to a hub leaves this machine without TLS.
pub(super) fn is_unencrypted(hub: &HubUri) -> bool {
    is_in_the_clear(hub.url())
}

/// The notice of a channel whose hub got its secret that way, or whose callback is known to others on the way. `public_url`: where the
/// callback is.
pub(super) fn notice(
    channel: &ChannelRecord,
    public_url: Option<&Url>,
    now: DateTime<Utc>,
) -> Option<StatusError> {
    let transport = channel.transport;
    if transport.has_hubs() {
        notice_of_hub(channel, now)
    } else if transport.has_callback() {
        notice_of_callback(channel, public_url?, now)
    } else {
        None
    }
}

fn notice_of_callback(
    channel: &ChannelRecord,
    public_url: &Url,
    now: DateTime<Utc>,
) -> Option<StatusError> {
    let interface = channel.topic.url();
    let how = match (is_in_the_clear(interface), is_in_the_clear(public_url)) {
        _ if channel.is_unwanted => return None,
        (true, _) => format!("the address of the callback is sent to {interface} unencrypted"),
        (false, true) => "[callback] public_url is http: what is delivered, with the address of the callback, comes unencrypted"
            .to_owned(),
        (false, false) => return None,
    };
    let message = format!("{how}: whoever reads it on the way can deliver");
    Some(StatusError::new("unencrypted-callback", message, now))
}

fn notice_of_hub(channel: &ChannelRecord, now: DateTime<Utc>) -> Option<StatusError> {
    let hub = channel.hub.as_ref()?;
    let is_exposed = channel.secret.is_some() && !channel.is_unwanted && is_unencrypted(hub);
    is_exposed.then(|| {
        let message = format!(
            "the secret of the subscription is sent to {hub} unencrypted: whoever reads it on the way can sign notifications"
        );
        StatusError::new(UNENCRYPTED_CODE, message, now)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use resourcesync::Capability;
    use resyncd_core::{Channel, TopicUri, Transport};

    use super::*;
    use crate::clock;
    use crate::engine::status_view;
    use crate::engine::tests::{NAME, TestSource};
    use crate::store::CallbackKeys;

    #[tokio::test]
    async fn secret_that_is_sent_over_plain_http_is_a_notice() {
        let list = Url::parse("https://example.org/capabilitylist.xml").unwrap();
        for (hub, secret, expected) in [
            (
                "http://hub.example/",
                Some("secret"),
                &["unencrypted-hub"][..],
            ),
            ("https://hub.example/", Some("secret"), &[]),
            ("http://hub.example/", None, &[]),
        ] {
            let source = TestSource::new(&list, |client| client);
            let (store, now) = (&source.store, clock::now().wall);
            let set = store.begin_set(NAME, &list).await.unwrap().id;
            let topic = TopicUri::parse("https://example.org/topic").unwrap();
            let hub = HubUri::parse(hub).unwrap();
            let keys = CallbackKeys {
                token: "token".to_owned(),
                secret: secret.map(str::to_owned),
            };
            let (kind, hubs) = (Capability::ChangeNotification, [hub.clone()]);
            let channel = store.add_channel(now, set, &kind, &topic, &hubs, keys);
            let channel = channel.await.unwrap().id;
            // As after a request to it.
            let asked =
                store.change_channel(channel, false, move |channel| channel.hub = Some(hub));
            asked.await.unwrap();
            let runtime_status = &source.context.runtime_status;
            let contexts = [Arc::clone(&source.context)];
            let status = status_view::status(store, runtime_status, now, &contexts);
            let status = status.await.unwrap();
            let notices = &status.sources[0].sets[0].notices;
            let codes: Vec<&str> = notices.iter().map(|notice| notice.code.as_str()).collect();
            assert_eq!(codes, expected, "{status:#?}");
        }
    }

    #[tokio::test]
    async fn address_of_a_callback_that_goes_over_plain_http_is_a_notice() {
        let list = Url::parse("https://example.org/sitemap.xml").unwrap();
        let (secure, clear) = ("https://own.example/", "http://own.example/");
        for (interface, public_url, is_left, is_expected) in [
            ("http://example.org/subscribe", secure, false, true),
            ("https://example.org/subscribe", clear, false, true),
            ("https://example.org/subscribe", secure, false, false),
            ("http://127.0.0.1/", "http://localhost/", false, false),
            ("http://example.org/subscribe", clear, true, false),
        ] {
            let source = TestSource::new(&list, |client| client);
            let (store, now) = (&source.store, clock::now().wall);
            let set = store.begin_set(NAME, &list).await.unwrap().id;
            let topic = TopicUri::parse(interface).unwrap();
            let mut channel = Channel::without_hubs(Transport::Callback, now, &topic);
            if is_left {
                channel.leave(now);
            }
            let keys = CallbackKeys {
                token: "token".to_owned(),
                secret: None,
            };
            let kind = Capability::ChangeNotification;
            let added = store.insert_channel(set, &kind, channel, keys);
            let channel = added.await.unwrap();
            let public_url = Url::parse(public_url).unwrap();
            let found = notice(&channel, Some(&public_url), now);
            let code = found.as_ref().map(|notice| notice.code.as_str());
            let expected = is_expected.then_some("unencrypted-callback");
            assert_eq!(code, expected, "{interface} {public_url} {found:?}");
        }
    }

    #[test]
    fn secret_is_exposed_where_http_leaves_this_machine() {
        for (hub, expected) in [
            ("http://hub.example/", true),
            ("https://hub.example/", false),
            ("http://192.0.2.1/", true),
            ("http://127.0.0.2:8080/", false),
            ("http://[::1]/", false),
            ("http://localhost/hub", false),
        ] {
            let found = is_unencrypted(&HubUri::parse(hub).unwrap());
            assert_eq!(found, expected, "{hub}");
        }
    }
}
