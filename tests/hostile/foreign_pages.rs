//! A web page of another origin, in a browser that can reach the status endpoint.

use reqwest::StatusCode;
use reqwest::header::{HOST, ORIGIN};

use crate::support::{NAME, Rig, client, resources};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_web_pages_cannot_read_the_status_or_post_commands() {
    let rig = Rig::start_with(resources(3), |config| {
        config.status.hosts = vec!["status.example.net".to_owned()];
    })
    .await;
    rig.settled().await;
    let base = format!("http://{}", rig.config.status.listen);
    let get = |host: &'static str| client().get(format!("{base}/status")).header(HOST, host);
    let foreign_host = get("evil.example").send().await.unwrap();
    assert_eq!(foreign_host.status(), StatusCode::FORBIDDEN);
    let body = foreign_host.text().await.unwrap();
    assert!(
        body.contains("forbidden-host") && !body.contains(NAME),
        "{body}"
    );
    let own_host = get("status.example.net").send().await.unwrap();
    assert_eq!(own_host.status(), StatusCode::OK);

    let post = |origin: String| {
        let url = format!("{base}/sources/{NAME}/approve");
        client().post(url).header(ORIGIN, origin)
    };
    // An image or a link on a page sends GET without an `Origin` header.
    for path in ["poll", "approve", "unsubscribe"] {
        let response = client().get(format!("{base}/sources/{NAME}/{path}"));
        let response = response.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let foreign_origin = post("http://evil.example".to_owned()).send().await.unwrap();
    assert_eq!(foreign_origin.status(), StatusCode::FORBIDDEN);
    assert!(
        foreign_origin
            .text()
            .await
            .unwrap()
            .contains("forbidden-origin")
    );
    assert_eq!(
        post(base.clone()).send().await.unwrap().status(),
        StatusCode::ACCEPTED
    );
    let refused = rig.operator.status().await.refused;
    let counted = [("forbidden-host", 1), ("forbidden-origin", 1)];
    assert_eq!(
        refused,
        counted.map(|(code, n)| (code.to_owned(), n)).into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_contains_a_secret_or_a_callback_url() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let subscriptions = rig.hub().subscriptions();
    assert_eq!(subscriptions.len(), 2);
    for path in ["/", "/status", "/changes", "/healthz", "/readyz"] {
        let (_, answer) = rig.operator.get(path).await;
        for subscription in &subscriptions {
            let token = subscription.callback.rsplit('/').next();
            let secret = subscription.secret.as_deref().unwrap();
            for hidden in [token.unwrap(), secret] {
                assert!(!answer.contains(hidden), "{path} contains {hidden}");
            }
        }
    }
}
