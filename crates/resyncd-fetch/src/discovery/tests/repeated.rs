//! Repeated searches: sets that are followed are not fetched again.

use super::*;

#[tokio::test]
async fn a_repeated_search_fetches_only_sets_that_are_not_followed() {
    let asked = Asked::default();
    let log = asked.clone();
    // The site's page leads to a Source Description, which has another one among its Capability Lists.
    let site = TestSite::start(move |request| {
        let path = request.path().to_owned();
        let page = match path.as_str() {
            "/" => "<html><link rel=\"resourcesync\" href=\"/all\"></html>".to_owned(),
            "/all" => description(&["=/1", "description=/more", "=/gone"]),
            "/more" => description(&["=/2"]),
            "/1" | "/2" => list(&["changelist=/c"]),
            _ => {
                log.lock().unwrap().push(path);
                return test_site::status(404);
            }
        };
        let etag = format!("\"{path}\"");
        if request.header("if-none-match") == etag {
            log.lock().unwrap().push(format!("{path} not modified"));
            return test_site::status(304);
        }
        log.lock().unwrap().push(path);
        test_site::ok_with(&[("etag", &etag)], page)
    })
    .await;
    let client = test_site::client();
    let entry = Url::parse(&site.url("/")).unwrap();
    let mut cache = DiscoveryCache::default();
    let mut followed = HashSet::new();
    let well_known = WELL_KNOWN.map(str::to_owned);
    let first = client
        .rediscover(&entry, LIMIT, &mut cache, &followed)
        .await
        .unwrap();
    assert_eq!((first.sets.len(), first.failed.len()), (2, 1));
    let mut found = std::mem::take(&mut *asked.lock().unwrap());
    found.retain(|path| !well_known.contains(path));
    found.sort();
    assert_eq!(found, ["/", "/1", "/2", "/all", "/gone", "/more"]);

    followed.extend(first.sets.into_iter().map(|set| set.uri));
    for _ in 0..2 {
        let again = client
            .rediscover(&entry, LIMIT, &mut cache, &followed)
            .await
            .unwrap();
        let known: HashSet<Url> = again.followed.into_iter().collect();
        assert_eq!(known, followed);
        assert_eq!((again.sets.len(), again.failed.len()), (0, 1));
        let mut found = std::mem::take(&mut *asked.lock().unwrap());
        found.retain(|path| !well_known.contains(path));
        found.sort();
        assert_eq!(
            found,
            [
                "/ not modified",
                "/all not modified",
                "/gone",
                "/more not modified"
            ]
        );
    }
}

#[tokio::test]
async fn a_followed_set_that_is_the_entry_point_is_fetched() {
    let (site, asked) = site(&[("/1", list(&["changelist=/c"]))]).await;
    let client = test_site::client();
    let entry = Url::parse(&site.url("/1")).unwrap();
    let followed = HashSet::from([entry.clone()]);
    let mut cache = DiscoveryCache::default();
    let found = client
        .rediscover(&entry, LIMIT, &mut cache, &followed)
        .await
        .unwrap();
    assert_eq!((found.sets.len(), found.followed.len()), (1, 0));
    assert_eq!(*asked.lock().unwrap(), ["/1"]);
}
