//! What a node has not brought is polled for, and what the configuration lacks is shown.

use chrono::DateTime;
use resyncd::status::{ChannelStatus, CountedError, SetStatus, UnsubscribeResult};

use crate::support::{NAME, soon};
use crate::xmpp::draft::{Draft, account};
use crate::xmpp::scripted::{Scripted, Session};

const LOOPBACK: &str = "127.0.0.1";

fn error_of(channel: &ChannelStatus) -> Option<&str> {
    channel.error.as_ref().map(|error| error.code.as_str())
}

/// What the session sends makes a poll due sooner, and is shown until the next item.
async fn expect_poll(draft: &Draft<Scripted>, session: &mut Session, sent: &str, code: &str) {
    let due = |set: &SetStatus| {
        let at = set.next_poll_at.as_deref().unwrap();
        DateTime::parse_from_rfc3339(at).unwrap()
    };
    let rests = |set: &SetStatus| set.next_poll_at.is_some() && set.channels[0].inbox == 0;
    let regular = due(&draft.until("at rest", rests).await);
    session.items(sent).await;
    draft
        .until(code, |set| {
            due(set) < regular && error_of(&set.channels[0]) == Some(code)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_that_is_not_accepted_causes_a_poll_and_is_shown_until_the_next_one() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed("", "").await;
    draft.settled().await;
    let two = "<item id='1'><a xmlns='urn:x'/><b xmlns='urn:x'/></item>";
    expect_poll(&draft, &mut session, two, "bad-item").await;
    let channel = draft.until_channel("counted", |it| it.rejected == 1).await;
    assert_eq!(channel.state, "active");
    let set = draft.change_set(&[("/a", "updated", "20:00:00")]);
    session.items(&format!("<item id='2'>{set}</item>")).await;
    draft
        .until_channel("accepted", |it| it.received == 1 && it.error.is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_that_the_service_announces_and_does_not_have_causes_a_poll() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed("", "").await;
    draft.settled().await;
    // A node that is notified only.
    expect_poll(&draft, &mut session, "", "missed-items").await;
    draft.until_channel("counted", |it| it.rejected == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_without_its_document_is_asked_for_by_the_next_session_also_if_none_is_resumed() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed("", "").await;
    draft.settled().await;
    draft.put("/a", "missed");
    session.items("<item id='7'/>").await;
    session.request("<item id='7'/>").await;
    drop(session);
    let mut session = draft.server.subscribed("", "").await;
    let set = draft.change_set(&[("/a", "updated", "20:00:00")]);
    let item = format!("<item id='7'>{set}</item>");
    let id = session.request("<item id='7'/>").await;
    session.answer(&id, &item).await;
    draft.until_pages(&[("/a", "missed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_without_an_account_is_a_notice_that_names_the_key() {
    let draft = Draft::follow((), &["/a"], |_| {}).await;
    let is_wanted = |notice: &CountedError| notice.code == "no-xmpp-account";
    let set = draft
        .until("in sync, with a notice", |set| {
            set.state == "in-sync" && set.notices.iter().any(is_wanted)
        })
        .await;
    let notice = set.notices.iter().find(|it| is_wanted(it)).unwrap();
    assert!(notice.message.contains("[xmpp] jid"), "{notice:?}");
    assert!(set.channels.is_empty(), "{set:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_ended_once_the_account_is_back() {
    let mut draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let session = draft.server.subscribed("", "").await;
    draft.settled().await;
    let own = session.own.clone();
    draft.server.refusing(draft.rig.stop_daemon()).await;
    drop(session);
    draft.rig.config.xmpp = None;
    draft.rig.config.sources[0].notifications = false;
    draft.rig.start_daemon().await;
    draft
        .until_channel("not ended", |it| error_of(it) == Some("no-xmpp-account"))
        .await;
    draft.rig.stop_daemon().await;
    let address = draft.server.address;
    draft.rig.config.xmpp = Some(account(LOOPBACK, address.port()));
    draft.rig.start_daemon().await;
    let mut session = draft.server.log_in("").await;
    session.bind().await;
    session
        .confirm(&format!("<unsubscribe node='changes' jid='{own}'/>"))
        .await;
    session.until("</stream:stream>").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_ended_with_the_address_that_the_server_has_assigned() {
    const ASSIGNED: &str = "resyncd@localhost/assigned";
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.log_in("").await;
    session.until("</iq>").await;
    session
        .send(&format!(
            "<iq type='result' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>{ASSIGNED}</jid></bind></iq>"
        ))
        .await;
    let subscribe = format!("<subscribe node='changes' jid='{ASSIGNED}'/>");
    session.confirm(&subscribe).await;
    let id = session.request("max_items='50'").await;
    session.answer(&id, "").await;
    draft.settled().await;
    let path = format!("/sources/{NAME}/unsubscribe");
    let unsubscribe = format!("<unsubscribe node='changes' jid='{ASSIGNED}'/>");
    let post = async || {
        let (_, body) = draft.rig.operator.post(&path).await;
        let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
        assert!(results[0].confirmed, "{results:?}");
        assert_eq!(results[0].transport, "xmpp");
    };
    let serving = async {
        // The time for an answer begins once a session is bound: not while the other one logs in.
        let mut endings = [draft.server.log_in("").await, draft.server.log_in("").await];
        for ending in &mut endings {
            ending.bind().await;
        }
        assert_ne!(endings[0].own, endings[1].own);
        for ending in &mut endings {
            ending.confirm(&unsubscribe).await;
        }
        session.confirm(&unsubscribe).await;
        endings
    };
    soon("ended", async { tokio::join!(post(), post(), serving) }).await;
}
