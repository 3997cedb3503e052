//! Servers and services that do what they should not, and connections that end at the wrong moment. The daemon goes on, by polling
//! where nothing else is left.

use resyncd::config::Config;
use resyncd::status::{ChannelStatus, UnsubscribeResult};

use crate::support::xmpp_end::{MECHANISMS, SM};
use crate::support::{NAME, soon, was_polled_since};
use crate::xmpp::draft::{Draft, put_sitemap_with};
use crate::xmpp::scripted::{Scripted, Session};

const LOOPBACK: &str = "127.0.0.1";
/// The longest document that the daemon accepts in some tests, in bytes.
const LIMIT: u64 = 64 << 10;

/// A change of the page, as an item.
fn item(draft: &Draft<Scripted>, id: &str, time: &str) -> String {
    let set = draft.change_set(&[("/a", "updated", time)]);
    format!("<item id='{id}'>{set}</item>")
}

/// The next item is applied.
async fn expect_pushed(draft: &Draft<Scripted>, session: &mut Session) {
    draft.put("/a", "pushed");
    session.items(&item(draft, "next", "20:00:00")).await;
    draft.until_pages(&[("/a", "pushed")]).await;
}

/// Waits until the channel reports an error with this code.
async fn until_reported(draft: &Draft<Scripted>, code: &str) -> ChannelStatus {
    let is_reported =
        |channel: &ChannelStatus| channel.error.as_ref().is_some_and(|it| it.code == code);
    draft.until_channel(code, is_reported).await
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_offers_no_tls_gets_nothing_and_the_set_is_polled() {
    // It resolves to loopback, which is no proof that it is this machine.
    let draft = Draft::start_scripted("127.1", |_| {}).await;
    let mut session = draft.server.accept().await;
    session.greet(MECHANISMS).await;
    assert_eq!(session.rest().await, "");
    until_reported(&draft, "xmpp-no-tls").await;
    draft.expect_polled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_whose_sender_is_not_the_service_is_rejected() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed("", "").await;
    draft.settled().await;
    draft.put("/a", "evil");
    let evil = item(&draft, "1", "08:00:00");
    for from in [
        "from='evil.localhost'",
        "from='pubsub.localhost.example.org'",
        "from='resyncd@localhost'",
        "",
    ] {
        session.items_of(from, &evil).await;
    }
    let channel = draft
        .until_channel("rejected", |channel| channel.rejected == 4)
        .await;
    assert_eq!(channel.received, 0);
    assert_eq!(channel.error.unwrap().code, "foreign-publisher");
    expect_pushed(&draft, &mut session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stanza_that_is_a_bomb_is_rejected_and_the_set_is_polled() {
    let limit = |config: &mut Config| config.limits.notification = LIMIT;
    let draft = Draft::start_scripted(LOOPBACK, limit).await;
    let prefix = "x".repeat(60 << 10);
    let declared = format!(
        "<items node='changes' xmlns:x='{prefix}' x:a=''>{}</items>",
        "<item><a/></item>".repeat(1000)
    );
    let deep = format!(
        "<items node='changes'><item id='1'>{}{}</item></items>",
        "<a>".repeat(1000),
        "</a>".repeat(1000)
    );
    for (bomb, code) in [(declared, "too-large"), (deep, "xmpp-protocol")] {
        let mut session = draft.server.subscribed("", "").await;
        draft.settled().await;
        session.event(&bomb).await;
        let channel = until_reported(&draft, code).await;
        assert_eq!(channel.received, 0);
    }
    draft.expect_polled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stanza_that_never_ends_is_given_up_and_the_set_is_polled() {
    let limit = |config: &mut Config| config.limits.notification = LIMIT;
    let draft = Draft::start_scripted(LOOPBACK, limit).await;
    let mut session = draft.server.subscribed("", "").await;
    draft.settled().await;
    let begin = "<message><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='changes'><item id='1'><a>";
    session.send(begin).await;
    let (part, mut sent) = ("a".repeat(16 << 10), 0_u64);
    while session.send(&part).await {
        sent += part.len() as u64;
        assert!(sent < 1 << 30, "it goes on to read");
    }
    let channel = until_reported(&draft, "too-large").await;
    assert_eq!((channel.received, channel.rejected), (0, 1));
    drop(session);
    draft.server.refusing(draft.expect_polled()).await;
    let mut session = draft.server.subscribed("", "").await;
    expect_pushed(&draft, &mut session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_is_resumed_although_the_first_connection_is_refused() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let session = draft.server.subscribed(SM, "").await;
    draft.settled().await;
    drop(session);
    drop(draft.server.accept().await);
    let mut session = draft.server.log_in(SM).await;
    // The subscription, and the newest items.
    assert_eq!(session.resume().await, "2");
    expect_pushed(&draft, &mut session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_whose_subscription_has_ended_is_not_resumed() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed(SM, "").await;
    draft.settled().await;
    session.event("<delete node='changes'/>").await;
    until_reported(&draft, "xmpp-refused").await;
    let mut session = draft.server.subscribed(SM, "").await;
    expect_pushed(&draft, &mut session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_has_fallen_silent_is_subscribed_to_anew() {
    const MOST_POLLS: usize = 6;
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let silent = draft.server.subscribed(SM, "").await;
    draft.settled().await;
    let source = &draft.rig.source;
    let list = source.base().join("/changeset.xml").unwrap();
    let link = format!(
        "<xhtml:link rel='current http://www.openarchives.org/rs/changeset' href='{list}'/>"
    );
    // A Change Set shows what was not pushed; the Sitemap alone does not.
    put_sitemap_with(source, &["/a"], "2012-08-09", &link);
    let followed = &draft.rig.config.sources[0];
    let polling = async {
        // The first ones are only the reference. Once it has fallen silent no poll finds anything: on a busy machine it might be
        // subscribed to anew by then, and fall silent again.
        for number in 0..MOST_POLLS {
            let times = (0..number).map(|minute| format!("17:{minute:02}:00"));
            let times: Vec<String> = times.collect();
            let mut changes = vec![("/a", "created", "08:00:00")];
            changes.extend(times.iter().map(|time| ("/a", "updated", time.as_str())));
            let text = format!("version {number}");
            draft.put("/a", &text);
            source.put_document("/changeset.xml", "text/xml", draft.change_set(&changes));
            let before = draft.until("the status", |_| true).await;
            draft.rig.operator.poll_in_the_end(NAME).await;
            draft.until_pages(&[("/a", &text)]).await;
            let set = draft
                .until("in sync, and polled", |set| {
                    set.state == "in-sync" && was_polled_since(&before, set, followed)
                })
                .await;
            let error = set.channels[0].error.as_ref();
            if error.is_some_and(|error| error.code == "push-silent") {
                return;
            }
        }
        panic!("{MOST_POLLS} polls are enough");
    };
    // It is not resumed: the service may have lost the subscription.
    let (mut session, ()) = tokio::join!(draft.server.subscribed(SM, ""), polling);
    let sent = silent.rest().await;
    assert!(!sent.contains("unsubscribe"), "{sent}");
    draft.settled().await;
    let channel = until_reported(&draft, "push-silent").await;
    assert_eq!(channel.received, 0);
    expect_pushed(&draft, &mut session).await;
    draft
        .until_channel("push works", |channel| channel.error.is_none())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_items_are_asked_for_after_an_answer_that_ends_the_session() {
    let (many, deep) = ("a".repeat(200 << 10), "<a>".repeat(600));
    for (content, code) in [(many, "too-large"), (deep, "xmpp-protocol")] {
        let limit = |config: &mut Config| config.limits.notification = LIMIT;
        let draft = Draft::start_scripted(LOOPBACK, limit).await;
        let bad = format!("<item id='1'><a>{content}");
        draft.server.subscribed("", &bad).await;
        until_reported(&draft, code).await;
        let mut session = draft.server.log_in("").await;
        session.bind().await;
        session.confirm("<subscribe node='changes'").await;
        draft.put("/a", "missed");
        let missed = item(&draft, "2", "08:00:00");
        let id = session.request("max_items='25'").await;
        session.answer(&id, &missed).await;
        draft.until_pages(&[("/a", "missed")]).await;
        // The first one was no message that was pushed.
        let channel = draft.until_channel("shown", |_| true).await;
        assert_eq!(channel.rejected, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_items_that_are_all_new_are_reported_as_a_gap() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let first = item(&draft, "1", "08:00:00");
    let session = draft.server.subscribed("", &first).await;
    draft
        .until_channel("received", |channel| channel.received == 1)
        .await;
    drop(session);
    // It came before.
    let second = item(&draft, "2", "09:00:00");
    let mut session = draft
        .server
        .subscribed("", &format!("{first}{second}"))
        .await;
    // Once what is pushed after the answer has come, the answer has been judged.
    session.items(&item(&draft, "3", "10:00:00")).await;
    let channel = draft
        .until_channel("received", |channel| channel.received == 3)
        .await;
    let code = channel.error.map(|it| it.code);
    assert_ne!(code.as_deref(), Some("missed-items"));
    drop(session);
    draft.put("/a", "pushed");
    let fourth = item(&draft, "4", "11:00:00");
    let _session = draft.server.subscribed("", &fourth).await;
    let channel = until_reported(&draft, "missed-items").await;
    assert_eq!(channel.rejected, 0);
    draft.until_pages(&[("/a", "pushed")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn item_that_states_the_same_again_counts_also_after_a_resumption() {
    let draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let mut session = draft.server.subscribed(SM, "").await;
    draft.settled().await;
    let base = draft.rig.source.base();
    // Without a time, and always with the same identifier.
    let current = format!(
        "<item id='current'><urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:rs='http://www.openarchives.org/rs/terms/' \
         rs:type='changeset'><url><loc>{}</loc></url></urlset></item>",
        base.join("/a").unwrap()
    );
    for (number, text) in ["first", "second", "third", "fourth"]
        .into_iter()
        .enumerate()
    {
        if number == 2 {
            drop(session);
            session = draft.server.log_in(SM).await;
            session.resume().await;
        }
        draft.put("/a", text);
        session.items(&current).await;
        draft.until_pages(&[("/a", text)]).await;
        draft
            .until_channel("received", |channel| {
                channel.received == number as u64 + 1 && channel.inbox == 0
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_is_ended_until_the_service_confirms_that_also_after_a_restart() {
    let mut draft = Draft::start_scripted(LOOPBACK, |_| {}).await;
    let session = draft.server.subscribed("", "").await;
    draft.settled().await;
    let own = session.own.clone();
    drop(session);
    let path = format!("/sources/{NAME}/unsubscribe");
    let (_, body) = draft.server.refusing(draft.rig.operator.post(&path)).await;
    let results: Vec<UnsubscribeResult> = serde_json::from_str(&body).unwrap();
    assert!(!results[0].confirmed, "{results:?}");
    // Each refused attempt doubles the pause before the next one, also after the restart.
    soon("the daemon tries again", draft.server.accept()).await;
    draft.server.refusing(draft.rig.stop_daemon()).await;
    draft.rig.config.sources[0].notifications = false;
    draft.rig.start_daemon().await;
    let mut session = draft.server.log_in("").await;
    session.bind().await;
    assert!(session.own.starts_with(&format!("{own}-end")));
    let wanted = format!("<unsubscribe node='changes' jid='{own}'/>");
    session.confirm(&wanted).await;
    session.until("</stream:stream>").await;
}
