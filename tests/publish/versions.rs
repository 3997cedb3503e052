//! The stored versions of resources (Memento).

use reqwest::header::HeaderName;
use reqwest::{Method, StatusCode};
use url::Url;

use super::Published;
use crate::support::{SET, eventually, resources};

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_found_by_their_time() {
    let published = Published::start(resources(3), |config| {
        let folder = config.sources[0].mirror.with_file_name("versions");
        config.sources[0].versions = Some(folder.into());
    })
    .await;
    for text in ["one", "two"] {
        published.rig.source.update(SET, "r0001.txt", text);
        published.rig.source.notify_and_publish(SET).await.unwrap();
        published.rig.until_holds("r0001.txt", text).await;
    }
    published.rig.settled().await;
    let file = published.get(&published.file("r0001.txt")).await;
    let links = file.header("link").to_owned();
    let of = |rel: &str| {
        let found = links
            .split(", ")
            .find(|link| link.contains(&format!("rel=\"{rel}\"")));
        let (target, _) = found
            .unwrap()
            .trim_start_matches('<')
            .split_once('>')
            .unwrap();
        Url::parse(target).unwrap()
    };
    let (gate, map) = (of("timegate"), of("timemap"));
    let listed = eventually(
        "both versions are listed",
        Some(published.rig.wakes()),
        async || {
            let answer = published.get(&map).await;
            let text = answer.text();
            if text.matches("rel=\"memento\"").count() >= 2 {
                Ok(text)
            } else {
                Err(text)
            }
        },
    )
    .await;
    assert!(
        listed.contains("rel=\"original\"") && listed.contains("rel=\"timegate\""),
        "{listed}"
    );

    // As archives have it.
    let (folder, _) = map.as_str().split_once("timemap/").unwrap();
    let original = published.rig.uri("r0001.txt");
    let of_original = Url::parse(&format!("{folder}timemap/{original}")).unwrap();
    let expected = listed.replace(published.file("r0001.txt").as_str(), &original);
    assert_eq!(published.get(&of_original).await.text(), expected);
    let second = listed.rsplit_once("/memento/").unwrap().1;
    let second: String = second
        .chars()
        .take(15)
        .filter(char::is_ascii_digit)
        .collect();
    let by_second = Url::parse(&format!("{folder}memento/{second}/{original}")).unwrap();
    assert!(
        published
            .get(&by_second)
            .await
            .headers
            .contains_key("memento-datetime")
    );

    let accept = HeaderName::from_static("accept-datetime");
    let mementos: Vec<&str> = listed
        .lines()
        .filter(|line| line.contains("rel=\"memento\""))
        .collect();
    for (datetime, listed) in [
        ("Tue, 15 Nov 1994 12:45:26 GMT", mementos[0]),
        (
            "Wed, 01 Jan 2098 00:00:00 GMT",
            mementos[mementos.len() - 1],
        ),
    ] {
        let found = published
            .answer(Method::GET, &gate, &[(accept.clone(), datetime)])
            .await;
        assert_eq!(found.status, StatusCode::FOUND, "{datetime}");
        assert_eq!(found.header("vary"), "accept-datetime");
        let memento = published
            .get(&Url::parse(found.header("location")).unwrap())
            .await;
        assert_eq!(memento.status, StatusCode::OK, "{datetime}");
        assert!(listed.contains(found.header("location")), "{listed}");
        let dated = format!("datetime=\"{}\"", memento.header("memento-datetime"));
        assert!(listed.contains(&dated), "{listed}");
        assert!(memento.header("link").contains("rel=\"original\""));
    }
    let newest = published.answer(Method::GET, &gate, &[]).await;
    let newest = published
        .get(&Url::parse(newest.header("location")).unwrap())
        .await;
    assert_eq!(newest.text(), "two");
    let bad = published
        .answer(Method::GET, &gate, &[(accept, "yesterday")])
        .await;
    assert_eq!(bad.status, StatusCode::BAD_REQUEST);
    let other = Url::parse(&gate.as_str().replace("r0001", "r0009")).unwrap();
    assert_eq!(published.get(&other).await.status, StatusCode::NOT_FOUND);
}
