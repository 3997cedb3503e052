//! Endless redirects: five are followed, for every kind of request.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use resyncd_core::{HubUri, ResourceUri, TopicUri};
use resyncd_fetch::AllowedHosts;
use websub::{Mode, SubscriptionRequest};

use crate::hostile::bodies::{UNREACHED, client, fetch_all};
use crate::support::site::{Site, redirect};
use crate::support::soon;

#[tokio::test(flavor = "multi_thread")]
async fn redirect_loop_is_aborted_after_five_redirects() {
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let site = Site::start(Ipv4Addr::LOCALHOST, |_| {
        move |path: &str, _: &_| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            redirect(307, &format!("{path}x?{number}"))
        }
    })
    .await;
    let client = client(UNREACHED);
    let url = site.url("/loop");
    let expected: Result<u64, &str> = Err("too-many-redirects");
    assert_eq!(
        soon("three requests", fetch_all(&client, &url)).await,
        [expected; 3]
    );
    assert_eq!(requests.swap(0, Ordering::SeqCst), 3 * 6);

    let any = AllowedHosts::any();
    let uri = ResourceUri::try_from(url.clone()).unwrap();
    let probed = soon("the probe", client.probe(&uri, &any)).await;
    assert_eq!(probed.map_err(|error| error.code()), expected.map(drop));
    assert_eq!(requests.swap(0, Ordering::SeqCst), 6);

    let topic = TopicUri::try_from(url.clone()).unwrap();
    let links = soon("the topic", client.ask_topic(&topic)).await;
    assert_eq!(
        links.map(drop).map_err(|error| error.code()),
        expected.map(drop)
    );
    assert_eq!(requests.swap(0, Ordering::SeqCst), 6);

    let request = SubscriptionRequest {
        mode: Mode::Subscribe,
        callback: "http://127.0.0.1/token".into(),
        topic: url.to_string(),
        lease_seconds: Some(60),
        secret: None,
    };
    let hub = HubUri::try_from(url).unwrap();
    let answer = soon("the hub", client.ask_hub(&hub, &request)).await;
    assert_eq!(
        answer.map(drop).map_err(|error| error.code()),
        expected.map(drop)
    );
    assert_eq!(requests.load(Ordering::SeqCst), 6);
}
