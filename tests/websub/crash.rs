//! A killed process: the pending request was stored before it was sent.

use std::collections::BTreeMap;

use resyncd_testkit::SampleSource;
use websub::Mode;

use crate::support::process::Home;
use crate::support::{client, eventually, resources};
use crate::websub::{BareHub, verify};

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_killed_process_is_confirmed_by_the_next() {
    let hub = BareHub::start(None).await;
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), &format!("hub = \"{}\"", hub.uri));
    let first = home.run();
    // The requests have been sent; the hub never answers.
    let forms = hub.wait_for_forms(2).await;
    first.kill();

    let _second = home.run();
    for form in &forms {
        let fields: BTreeMap<_, _> = url::form_urlencoded::parse(form.as_bytes()).collect();
        let (callback, topic) = (&fields["hub.callback"], &fields["hub.topic"]);
        eventually("the callback answers", None, async || {
            let answer = client().get(callback.as_ref()).send().await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
        let forged = verify(callback, Mode::Unsubscribe, topic, Some("c"), None).await;
        assert_eq!(forged.0, 404, "no request to unsubscribe");
        let late = verify(callback, Mode::Subscribe, topic, Some("late"), Some(600)).await;
        assert_eq!((late.0, late.2.as_str()), (200, "late"));
    }
    // Both channels are active. Whether requests were repeated before their verification depends on how long the restart took.
    home.settled(&source).await;
}
