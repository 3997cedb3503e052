//! A web page of another origin, in a browser that can reach the status endpoint.

use reqwest::StatusCode;
use reqwest::header::{HOST, ORIGIN};
use resyncd::config::Secret;

use crate::support::{NAME, Rig, client, eventually, resources, send};

#[tokio::test(flavor = "multi_thread")]
async fn foreign_web_pages_cannot_read_the_status_or_post_commands() {
    let rig = Rig::start_with(resources(3), |config| {
        config.status.hosts = vec!["status.example.net".to_owned()];
    })
    .await;
    rig.settled().await;
    let base = format!("http://{}", rig.config.status.listen);
    let get = |host: &'static str| client().get(format!("{base}/status")).header(HOST, host);
    let foreign_host = send(|| get("evil.example")).await;
    assert_eq!(foreign_host.status(), StatusCode::FORBIDDEN);
    let body = foreign_host.text().await.unwrap();
    assert!(
        body.contains("forbidden-host") && !body.contains(NAME),
        "{body}"
    );
    let own_host = send(|| get("status.example.net")).await;
    assert_eq!(own_host.status(), StatusCode::OK);

    for (site, status) in [
        ("cross-site", StatusCode::FORBIDDEN),
        ("same-site", StatusCode::FORBIDDEN),
        ("same-origin", StatusCode::OK),
        ("none", StatusCode::OK),
    ] {
        for path in [
            "/status",
            "/metrics",
            "/changes?limit=100000",
            "/failed",
            "/held",
            "/resources",
            "/healthz",
        ] {
            let request = client().get(format!("{base}{path}"));
            let request = request.header("Sec-Fetch-Site", site);
            let response = send(|| request.try_clone().unwrap()).await;
            assert_eq!(response.status(), status, "{site} {path}");
        }
    }

    let post = |origin: String| {
        let url = format!("{base}/sources/{NAME}/approve");
        client().post(url).header(ORIGIN, origin)
    };
    // An image or a link on a page sends GET without an `Origin` header.
    for path in ["poll", "approve", "reject", "retry", "unsubscribe"] {
        let request = || client().get(format!("{base}/sources/{NAME}/{path}"));
        let response = send(request).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
    }
    let foreign_origin = send(|| post("http://evil.example".to_owned())).await;
    assert_eq!(foreign_origin.status(), StatusCode::FORBIDDEN);
    assert!(
        foreign_origin
            .text()
            .await
            .unwrap()
            .contains("forbidden-origin")
    );
    assert_eq!(
        send(|| post(base.clone())).await.status(),
        StatusCode::ACCEPTED
    );
    let refused = rig.operator.status().await.refused;
    let counted = [("forbidden-host", 1), ("forbidden-origin", 1 + 2 * 7)];
    assert_eq!(
        refused,
        counted.map(|(code, n)| (code.to_owned(), n)).into()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_the_status_endpoint_is_for_its_own_pages_only() {
    let rig = Rig::start(resources(1)).await;
    rig.settled().await;
    let base = format!("http://{}", rig.config.status.listen);
    for (path, host) in [
        ("/", "localhost"),
        ("/healthz", "localhost"),
        ("/status", "localhost"),
        ("/metrics", "localhost"),
        ("/resource?uri=x", "localhost"),
        ("/absent", "localhost"),
        ("/sources/sample/poll", "localhost"),
        ("/status", "evil.example"),
        ("/metrics", "evil.example"),
    ] {
        let request = || client().get(format!("{base}{path}")).header(HOST, host);
        let response = send(request).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            let found = response.headers().get(name);
            assert_eq!(
                found.map(|it| it.to_str().unwrap()),
                Some(value),
                "{path} {name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn status_endpoint_requires_its_token() {
    const TOKEN: &str = "a-token-of-the-operator";
    let rig = Rig::start_with(resources(1), |config| {
        config.status.token = Secret::new(TOKEN);
    })
    .await;
    let base = format!("http://{}", rig.config.status.listen);
    let get = |path: &str, authorization: &str| {
        let request = client().get(format!("{base}{path}"));
        request.header("Authorization", authorization.to_owned())
    };
    let right = format!("Bearer {TOKEN}");
    for (path, authorization, status) in [
        ("/status", right.as_str(), 200),
        ("/changes", "bearer a-token-of-the-operator", 200),
        ("/status", "", 401),
        ("/metrics", "", 401),
        ("/resources", "", 401),
        ("/metrics", right.as_str(), 200),
        ("/", TOKEN, 401),
        ("/status", "Bearer a-token-of-the-operatoR", 401),
        ("/status", "Basic a-token-of-the-operator", 401),
        ("/absent", "", 401),
        ("/healthz", "", 200),
    ] {
        let answer = send(|| get(path, authorization)).await;
        assert_eq!(answer.status(), status, "{path} {authorization}");
        let body = answer.text().await.unwrap();
        assert!(!body.contains(TOKEN), "{body}");
    }
    let poll = format!("{base}/sources/{NAME}/poll");
    let answer = send(|| client().post(&poll)).await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert!(answer.headers().contains_key("www-authenticate"));
    let answer = send(|| client().post(&poll).bearer_auth(TOKEN)).await;
    assert_eq!(answer.status(), StatusCode::ACCEPTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_leave_room_for_other_requests() {
    // More than there are connections.
    const STREAMS: usize = 300;
    let rig = Rig::start(resources(1)).await;
    rig.settled().await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..STREAMS {
        let stream = rig.operator.events(0).await;
        match stream.status() {
            StatusCode::OK => open.push(stream),
            status => {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                assert!(stream.headers().contains_key("retry-after"));
                refused += 1;
            }
        }
    }
    assert_eq!((open.len(), refused), (64, STREAMS - 64));
    let (status, _) = rig.operator.get("/healthz").await;
    assert_eq!(status, StatusCode::OK);
    open.pop();
    eventually("a stream that ends makes room", None, async || {
        let stream = rig.operator.events(0).await;
        match stream.status() {
            StatusCode::OK => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_response_contains_a_secret_or_a_callback_url() {
    let rig = Rig::start(resources(3)).await;
    rig.settled().await;
    let subscriptions = rig.hub().subscriptions();
    assert_eq!(subscriptions.len(), 2);
    for path in [
        "/",
        "/status",
        "/changes",
        "/resources",
        "/healthz",
        "/readyz",
    ] {
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
