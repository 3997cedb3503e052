//! Deliveries: their channel, their signature, and tolerated deviations (WebSub, section 7).

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use resyncd::config::Signatures;
use resyncd_testkit::{HubOptions, SampleOptions, Signing, Subscription};
use websub::{Signature, SignatureMethod};

use crate::support::{Rig, SET, client, eventually, resources, soon};
use crate::websub::{check_push, delivery, requests, status_of, subscribed, with_hub};

#[tokio::test(flavor = "multi_thread")]
async fn every_signature_method_is_accepted() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    for method in [
        SignatureMethod::Sha1,
        SignatureMethod::Sha256,
        SignatureMethod::Sha384,
        SignatureMethod::Sha512,
    ] {
        rig.hub()
            .configure(|hub| hub.signing = Signing::Signed(method));
        check_push(&rig, &format!("{method:?}")).await;
    }
    assert_eq!(rig.channel().await.rejected, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_deliveries_are_rejected_and_counted() {
    let rig = Rig::start_with(resources(3), |config| config.limits.notification = 10_000).await;
    let subscription = subscribed(&rig).await;
    let secret = subscription.secret.clone().unwrap();
    let forged = rig.source.notify(SET).body;

    let unsigned = delivery(&subscription, &forged, None);
    assert_eq!(status_of(unsigned).await, 403);
    // A wrong signature is not revealed.
    let good = Signature::sign(SignatureMethod::Sha256, secret.as_bytes(), &forged).to_string();
    let other = Signature::sign(SignatureMethod::Sha256, b"another secret", &forged).to_string();
    let wrong = [
        ("another secret", other),
        ("another length", good[..good.len() - 2].to_owned()),
        ("another method", good.replace("sha256", "sha1")),
        ("unknown method", good.replace("sha256", "md5")),
        ("no method", good.replace("sha256=", "")),
        ("nothing", String::new()),
    ];
    for (what, signature) in &wrong {
        let request = delivery(&subscription, &forged, None).header("X-Hub-Signature", signature);
        assert_eq!(status_of(request).await, 200, "{what}");
    }
    let large = vec![b'x'; 10_001];
    let large = delivery(&subscription, &large, Some(&secret));
    assert_eq!(status_of(large).await, 413, "too large");
    let refused = 2 + wrong.len() as u64;
    assert_eq!(rig.channel().await.rejected, refused);
    let unsupported = client().put(&subscription.callback);
    assert_eq!(status_of(unsupported).await, 405);

    // Correctly signed but unreadable: acknowledged, because a repetition by the hub would be the same.
    let unreadable = delivery(&subscription, b"<html>", Some(&secret));
    assert_eq!(status_of(unreadable).await, 200);
    eventually("counted", Some(rig.wakes()), async || {
        match rig.channel().await {
            channel if channel.rejected == refused + 1 => Ok(()),
            channel => Err(format!("{channel:?}")),
        }
    })
    .await;
    let channel = rig.channel().await;
    assert_eq!((channel.applied, channel.duplicate), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_notification_changes_nothing() {
    let rig = Rig::start(with_hub(HubOptions {
        signing: Signing::Wrong,
        ..HubOptions::default()
    }))
    .await;
    rig.settled().await;
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, "r0001.txt", "forged");
    let notification = rig.source.notify(SET);
    let deliveries = rig.source.publish(&notification).await.unwrap();
    assert_eq!(
        deliveries[0].status,
        Some(200),
        "the result is not revealed"
    );
    assert_eq!(rig.channel().await.rejected, 1);
    // The same notification with a valid signature is applied; nothing was applied before.
    rig.hub()
        .configure(|hub| hub.signing = Signing::Signed(SignatureMethod::Sha512));
    assert!(rig.mirrored("r0001.txt").unwrap() != b"forged");
    rig.source.publish(&notification).await.unwrap();
    rig.until_mirrored().await;
    let channel = rig.channel().await;
    assert_eq!((channel.received, channel.rejected), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_delivery_is_accepted_where_signatures_are_off() {
    let rig = Rig::start_with(
        with_hub(HubOptions {
            signing: Signing::Unsigned,
            ..HubOptions::default()
        }),
        |config| config.sources[0].signatures = Signatures::Off,
    )
    .await;
    let subscription = subscribed(&rig).await;
    for request in requests(rig.hub()).await {
        assert_eq!(request.secret, None);
    }
    check_push(&rig, "pushed").await;
    // A signature without a secret is ignored.
    rig.source
        .update(SET, "r0002.txt", "signed without a secret");
    let signed = rig.source.notify(SET).body;
    let signed = delivery(&subscription, &signed, Some("any"));
    assert_eq!(status_of(signed).await, 200);
    rig.until_mirrored().await;
}

/// Delivers a change with the body and headers that `make` returns.
async fn check_delivery(
    rig: &Rig,
    to: &Subscription,
    bytes: &str,
    make: impl FnOnce(Vec<u8>) -> (Vec<u8>, Vec<(&'static str, String)>),
) {
    // A poll does not bring it.
    rig.source.freeze_change_list(SET, true);
    let since = rig.operator.last_change().await;
    rig.source.update(SET, "r0001.txt", bytes.to_owned());
    let (body, headers) = make(rig.source.notify(SET).body.to_vec());
    let mut request = delivery(to, &body, to.secret.as_deref());
    for (name, value) in headers {
        request = request.header(name, value);
    }
    assert_eq!(status_of(request).await, 200, "{bytes}");
    let line = rig.until_in_feed(since, "r0001.txt").await;
    assert_eq!(line.origin, "notification", "{bytes}");
    rig.source.freeze_change_list(SET, false);
}

#[tokio::test(flavor = "multi_thread")]
async fn misleading_link_header_is_ignored() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let framework = rig.framework();
    for (what, links) in [
        (
            "both topics",
            format!(
                "<{}>; rel=self, <{framework}>; rel=self",
                subscription.topic
            ),
        ),
        (
            "an unknown topic",
            "<http://127.0.0.1:1/>; rel=\"self hub\"".into(),
        ),
        ("nonsense", "<<>>;;rel=\",".into()),
    ] {
        check_delivery(&rig, &subscription, what, |body| {
            (body, vec![("Link", links)])
        })
        .await;
    }
    let set = rig.set().await;
    for channel in set.channels {
        let expected = if channel.topic == subscription.topic {
            3
        } else {
            0
        };
        assert_eq!(channel.received, expected, "{}", channel.topic);
    }
}

async fn until_error(rig: &Rig, code: Option<&str>) {
    eventually("the error", Some(rig.wakes()), async || {
        let error = rig.channel().await.error;
        if error.as_ref().map(|error| error.code.as_str()) == code {
            Ok(())
        } else {
            Err(format!("{error:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_of_signatures_is_shown_until_a_delivery_is_accepted() {
    let rig = Rig::start(resources(3)).await;
    subscribed(&rig).await;
    for (signing, code) in [
        (Signing::Unsigned, "unsigned"),
        (Signing::Wrong, "wrong-signature"),
    ] {
        rig.hub().configure(|hub| hub.signing = signing);
        rig.source.update(SET, "r0001.txt", code);
        let notification = rig.source.notify(SET);
        rig.source.publish(&notification).await.unwrap();
        let channel = rig.channel().await;
        assert_eq!(channel.state, "active");
        assert_eq!(channel.error.unwrap().code, code);
        rig.hub()
            .configure(|hub| hub.signing = Signing::Signed(SignatureMethod::Sha256));
        rig.source.publish(&notification).await.unwrap();
        rig.until_holds("r0001.txt", code).await;
        until_error(&rig, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_right_signature_of_several_is_enough() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let secret = subscription.secret.clone().unwrap();
    let sign = |method, secret: &str, body: &[u8]| {
        Signature::sign(method, secret.as_bytes(), body).to_string()
    };
    use SignatureMethod::{Sha1, Sha256};
    for (round, joined) in [true, false, true, false].into_iter().enumerate() {
        let bytes = format!("round {round}");
        rig.source.update(SET, "r0001.txt", bytes.clone());
        let body = rig.source.notify(SET).body;
        let mut signatures = [sign(Sha1, "another", &body), sign(Sha256, &secret, &body)];
        if round >= 2 {
            signatures.reverse();
        }
        let values = if joined {
            vec![signatures.join(", ")]
        } else {
            signatures.to_vec()
        };
        let request = delivery(&subscription, &body, None);
        let request = values.into_iter().fold(request, |request, value| {
            request.header("X-Hub-Signature", value)
        });
        assert_eq!(status_of(request).await, 200);
        rig.until_holds("r0001.txt", &bytes).await;
    }
    assert_eq!(rig.channel().await.rejected, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_for_another_channel_or_set_is_a_hint_at_most() {
    let rig = Rig::start(SampleOptions {
        sets: vec![SET.to_owned(), "set2".to_owned()],
        ..resources(3)
    })
    .await;
    let subscription = subscribed(&rig).await;
    rig.idle().await;
    let secret = subscription.secret.as_deref();
    rig.until_named("set2", "in sync", |set| set.state == "in-sync")
        .await;
    rig.source.freeze_change_list(SET, true);
    let list = "/set1/changelist.xml";
    let resources = rig.set().await.resources;

    rig.source.update(SET, "r0001.txt", "misdirected");
    let body = rig.source.notify(SET).body;
    rig.source.create("set2", "other.txt", "of the other set");
    let of_set2 = rig.source.notify("set2").body;
    let link = format!("<{}>; rel=\"self\"", rig.framework());
    let misdirected = [
        delivery(&subscription, &body, secret).header("Link", link),
        delivery(&subscription, &of_set2, secret),
    ];
    for (round, request) in misdirected.into_iter().enumerate() {
        let polled = rig.source.hits(list);
        assert_eq!(status_of(request).await, 200);
        soon("polled", rig.source.wait_for_hits(list, polled + 1)).await;
        until_error(&rig, Some("misdirected-delivery")).await;
        let channel = rig.channel().await;
        assert_eq!((channel.rejected, channel.applied), (round as u64 + 1, 0));
    }
    let set = rig.set().await;
    assert_eq!((set.resources, set.gaps.len()), (resources, 0));
    assert_ne!(rig.mirrored("r0001.txt").unwrap(), b"misdirected");
    // Nothing is covered, and the same bytes are applied when they are directed here.
    assert_eq!(status_of(delivery(&subscription, &body, secret)).await, 200);
    rig.until_holds("r0001.txt", "misdirected").await;
    until_error(&rig, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_with_a_link_up_to_an_unknown_set_is_reported() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    let known = "/set1/capabilitylist.xml";
    check_delivery(&rig, &subscription, "of an unknown set", |body| {
        let text = String::from_utf8(body).unwrap();
        assert!(text.contains(known), "{text}");
        (text.replace(known, "/unknown.xml").into_bytes(), vec![])
    })
    .await;
    let topic = subscription.topic.to_string();
    rig.until("reported", |set| {
        let mut oddities = set.oddities.iter();
        oddities.any(|it| it.code == "wrong-up" && it.document == topic && it.count == 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_headers_are_tolerated() {
    let rig = Rig::start(resources(3)).await;
    let subscription = subscribed(&rig).await;
    for media_type in [
        "application/xml; charset=utf-8",
        "text/xml",
        "text/xml;charset=\"iso-8859-1\"",
        "application/x-www-form-urlencoded",
        "nonsense",
    ] {
        check_delivery(&rig, &subscription, media_type, |body| {
            (body, vec![("Content-Type", media_type.to_owned())])
        })
        .await;
    }
    for encoding in ["gzip", "br", "identity"] {
        check_delivery(&rig, &subscription, encoding, |body| {
            (body, vec![("Content-Encoding", encoding.to_owned())])
        })
        .await;
    }
    for headers in [vec![], vec![("Content-Encoding", "gzip".to_owned())]] {
        let what = format!("compressed, with {headers:?}");
        check_delivery(&rig, &subscription, &what, |body| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&body).unwrap();
            (encoder.finish().unwrap(), headers)
        })
        .await;
    }
    assert_eq!(rig.channel().await.rejected, 0);
}
