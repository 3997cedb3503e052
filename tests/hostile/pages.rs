//! A web page from elsewhere, in the browser of somebody who may reach the status endpoint.

use reqwest::StatusCode;
use reqwest::header::{HOST, ORIGIN};

use crate::support::{NAME, Rig, client, resources};

#[tokio::test(flavor = "multi_thread")]
async fn pages_from_elsewhere_learn_nothing_and_change_nothing() {
    let rig = Rig::start_with(resources(3), |config| {
        config.status.hosts = vec!["status.example.net".to_owned()];
    })
    .await;
    rig.settled().await;
    let base = format!("http://{}", rig.config.status.listen);
    let get = |host: &'static str| client().get(format!("{base}/status")).header(HOST, host);
    let rebound = get("evil.example").send().await.unwrap();
    assert_eq!(rebound.status(), StatusCode::FORBIDDEN);
    let told = rebound.text().await.unwrap();
    assert!(
        told.contains("forbidden-host") && !told.contains(NAME),
        "{told}"
    );
    let named = get("status.example.net").send().await.unwrap();
    assert_eq!(named.status(), StatusCode::OK);

    let post = |origin: String| {
        let url = format!("{base}/sources/{NAME}/approve");
        client().post(url).header(ORIGIN, origin)
    };
    // An image or a link on a page asks by GET, and tells no origin.
    for path in ["poll", "approve", "unsubscribe"] {
        let asked = client().get(format!("{base}/sources/{NAME}/{path}"));
        let asked = asked.send().await.unwrap();
        assert_eq!(asked.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let foreign = post("http://evil.example".to_owned()).send().await.unwrap();
    assert_eq!(foreign.status(), StatusCode::FORBIDDEN);
    assert!(foreign.text().await.unwrap().contains("forbidden-origin"));
    assert_eq!(
        post(base.clone()).send().await.unwrap().status(),
        StatusCode::ACCEPTED
    );
    let told = rig.operator.status().await.refused;
    let counted = [("forbidden-host", 1), ("forbidden-origin", 1)];
    assert_eq!(told, counted.map(|(code, n)| (code.to_owned(), n)).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_holds_a_secret_or_a_callback() {
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
                assert!(!answer.contains(hidden), "{path} tells {hidden}");
            }
        }
    }
}
