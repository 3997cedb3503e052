//! Against a scripted server at the other end of a connection in memory.

use std::time::{Duration, Instant};

use chrono::Utc;
use resyncd_core::Now;
use resyncd_fetch::{Client, HttpSettings};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;

use super::stream::AnyConnection;
use super::*;

#[path = "../../../../tests/support/xmpp_end.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of this")]
mod xmpp_end;

use xmpp_end::{HANGING, MECHANISMS, SM, XmppEnd};

const PASSWORD: &str = "pencil";
const LIMIT: usize = 100 << 10;
const SERVICE: &str = "pubsub.example.org";
const NODE: &str = "changes";
const DOMAIN: &str = "example.org";
const STARTTLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

fn account(domain: &str) -> XmppAccount {
    XmppAccount {
        user: "me".to_owned(),
        domain: domain.to_owned(),
        password: XmppPassword::new(PASSWORD).unwrap(),
        server: None,
    }
}

/// A client whose server is at this address.
fn client_of(server: SocketAddr) -> Transports {
    let account = XmppAccount {
        server: Some((server.ip().to_string(), server.port())),
        ..account("example.org")
    };
    let now = || Now {
        wall: Utc::now(),
        mono: Instant::now(),
    };
    let client = Client::new(&HttpSettings::default(), now).unwrap();
    Transports::new(client, Some(account))
}

/// The other end.
type Server = XmppEnd<AnyConnection>;

fn over(connection: AnyConnection) -> Server {
    XmppEnd::over(connection, DOMAIN)
}

fn ends() -> (AnyConnection, Server) {
    let (client, server): (DuplexStream, DuplexStream) = duplex(64 << 10);
    (Box::new(client), over(Box::new(server)))
}

/// A client that begins a session.
async fn begin(
    connection: AnyConnection,
    security: Security,
    domain: &str,
    resumption: Option<NodeResumption>,
) -> Result<NodeSession, XmppError> {
    let account = account(domain);
    let authority =
        CertificateDer::from_pem_slice(resyncd_testkit::tls::AUTHORITY.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Arc::new(tls);
    let credentials = LoginCredentials {
        account: &account,
        tls: &|| Ok(Arc::clone(&tls)),
        resource: "resyncd-1",
        limit: LIMIT,
        service: Some(SERVICE),
    };
    let login = log_in(connection, security, &credentials, resumption.as_ref()).await?;
    let name = NodeName {
        service: SERVICE.to_owned(),
        node: NODE.to_owned(),
    };
    NodeSession::begin(login, name, resumption, 5).await
}

/// A session on loopback, and its server.
async fn session(features: &str) -> (NodeSession, Server) {
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, features).await;
        server.bind().await;
        if features.contains("sm:3") {
            server.manage().await;
        }
        server.subscribe().await;
    };
    let (session, ()) = tokio::join!(
        begin(client, Security::Loopback, "example.org", None),
        serving
    );
    (session.unwrap(), server)
}

/// The next event but for the end of an answer.
async fn next_event(session: &mut NodeSession) -> NodeEvent {
    loop {
        let next = tokio::time::timeout(HANGING, session.next()).await;
        match next.expect("not within the limit").unwrap() {
            NodeEvent::Answered | NodeEvent::Missing(_) => {}
            event => return event,
        }
    }
}

async fn next_item(session: &mut NodeSession) -> (String, String) {
    match next_event(session).await {
        NodeEvent::Item(item) => {
            let text = String::from_utf8(item.document.to_vec()).unwrap();
            (item.id, text)
        }
        other => panic!("{other:?}"),
    }
}

async fn failure(session: &mut NodeSession) -> XmppError {
    let next = tokio::time::timeout(HANGING, session.next()).await;
    next.expect("not within the limit").unwrap_err()
}

#[tokio::test]
async fn stanza_is_acknowledged_once_all_of_its_items_are_stored() {
    let (mut session, mut server) = session(SM).await;
    server
        .items("<item id='1'><a xmlns='urn:x'/></item><item id='2'><b xmlns='urn:x'/></item>")
        .await;
    server.send("<r xmlns='urn:xmpp:sm:3'/>").await;
    let (id, text) = next_item(&mut session).await;
    assert_eq!((id.as_str(), text.as_str()), ("1", "<a xmlns='urn:x'></a>"));
    assert_eq!(next_item(&mut session).await.0, "1", "until it is stored");
    session.stored();
    assert_eq!(next_item(&mut session).await.0, "2");
    // The subscription alone.
    assert_eq!(session.resumption().unwrap().handled, 1);
    session.stored();
    server.items("<item id='3'><c xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut session).await.0, "3");
    assert_eq!(session.resumption().unwrap().handled, 2);
    let sent = server.until("<a xmlns='urn:xmpp:sm:3' h='2'/>").await;
    assert!(
        sent.contains("<items node='changes' max_items='5'>"),
        "{sent}"
    );
    assert!(!sent.contains("h='3'"), "{sent}");
}

#[tokio::test]
async fn session_is_resumed_or_begun_anew() {
    let (mut first, mut server) = session(SM).await;
    server.items("<item id='1'><a xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut first).await.0, "1");
    let resumption = first.resumption().unwrap();
    drop((first, server));
    for is_known in [true, false] {
        let (client, mut server) = ends();
        let serving = async {
            server.log_in(PASSWORD, SM).await;
            if is_known {
                assert_eq!(server.resume().await, "1");
                server.items("<item id='1'><a xmlns='urn:x'/></item>").await;
                return;
            }
            assert_eq!(server.fail_to_resume().await, "1");
            server.bind().await;
            server.manage().await;
            server.subscribe().await;
            let request = server.until("</iq>").await;
            assert!(request.contains("max_items='5'"), "{request}");
            server
                .answer("r2", "<item id='1'><a xmlns='urn:x'/></item>")
                .await;
        };
        let beginning = begin(
            client,
            Security::Loopback,
            "example.org",
            Some(resumption.clone()),
        );
        let (again, ()) = tokio::join!(beginning, serving);
        let mut again = again.unwrap();
        // It was not stored before.
        assert_eq!(next_item(&mut again).await.0, "1");
        again.stored();
    }
}

#[tokio::test]
async fn publish_request_of_the_draft_is_answered_when_it_is_stored() {
    let (mut session, mut server) = session(SM).await;
    server
        .send(&format!(
            "<xmpp:iq from='{SERVICE}' type='set' to='me@example.org/resyncd-1' id='liAJUz3S' xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' \
             xmlns:xmpp='http://jabber.org/protocol/pubsub' xmlns:rs='http://www.openarchives.org/rs/terms/'><xmpp:pubsub>\
             <xmpp:publish node='changes'><xmpp:item id='3294'><urlset rs:type='changeset'/></xmpp:item></xmpp:publish></xmpp:pubsub></xmpp:iq>"
        ))
        .await;
    let (id, text) = next_item(&mut session).await;
    let expected = "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:tns0='http://www.openarchives.org/rs/terms/' \
                    tns0:type='changeset'></urlset>";
    assert_eq!((id.as_str(), text.as_str()), ("3294", expected));
    session.stored();
    server.send("<r xmlns='urn:xmpp:sm:3'/>").await;
    server.items("<item id='2'><b xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut session).await.0, "2");
    server
        .until("<iq type='result' id='liAJUz3S' to='pubsub.example.org'></iq>")
        .await;
    // It is no stanza of RFC 6120, which the server would count: only the answer to `subscribe` is.
    let sent = server.until("<a xmlns='urn:xmpp:sm:3' h='1'/>").await;
    assert!(!sent.contains("h='2'"), "{sent}");
    assert_eq!(session.resumption().unwrap().handled, 1);
}

#[tokio::test]
async fn item_without_a_document_is_asked_for() {
    let (mut session, mut server) = session("").await;
    server.items("<item id='7'/><retract id='6'/>").await;
    server
        .items_of(
            "from='Pubsub.Example.ORG'",
            "<item id='8'><b xmlns='urn:x'/></item>",
        )
        .await;
    assert_eq!(next_item(&mut session).await.0, "8");
    session.stored();
    // One request at a time.
    server.answer("r2", "").await;
    let next = async {
        let sent = server
            .until("<items node='changes'><item id='7'/></items></pubsub></iq>")
            .await;
        assert!(sent.contains("<iq type='get' id='r3'"), "{sent}");
        let item = "<item id='7'><c xmlns='urn:x'/></item>";
        server.answer("r3", item).await;
    };
    let (item, ()) = tokio::join!(next_item(&mut session), next);
    assert_eq!(item, ("7".to_owned(), "<c xmlns='urn:x'></c>".to_owned()));
}

#[tokio::test]
async fn item_that_is_gone_costs_no_other_one() {
    let (mut session, mut server) = session("").await;
    let items = "<item id='7'/><item id='8'/>";
    server.items(items).await;
    server.answer("r2", "").await;
    assert_eq!(session.next().await.unwrap(), NodeEvent::Answered);
    let serving = async {
        server.until("<item id='7'/></items></pubsub></iq>").await;
        server
            .send(&format!(
                "<iq type='error' id='r3' from='{SERVICE}'><error type='cancel'>\
                 <item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            ))
            .await;
        server.until("<item id='8'/></items></pubsub></iq>").await;
        let item = "<item id='8'><a xmlns='urn:x'/></item>";
        server.answer("r4", item).await;
    };
    let (item, ()) = tokio::join!(next_item(&mut session), serving);
    assert_eq!(item.0, "8");
}

#[tokio::test]
async fn document_that_is_too_long_is_skipped_although_its_stanza_is_not() {
    let (mut session, mut server) = session("").await;
    let (begin, end) = ("<item id='1'><a xmlns='urn:x'>", "</a></item>");
    let serving = async {
        // In another notation it would be shorter.
        let text = ">".repeat(LIMIT / 4);
        server.items(&[begin, &text, end].concat()).await;
        let item = "<item id='2'><a xmlns='urn:x'/></item>";
        server.items(item).await;
    };
    let receiving = async {
        let event = next_event(&mut session).await;
        assert!(
            matches!(&event, NodeEvent::Rejected(error) if error.code() == "too-large"),
            "{event:?}"
        );
        next_item(&mut session).await
    };
    let (item, ()) = tokio::join!(receiving, serving);
    assert_eq!(item.0, "2");
}

#[tokio::test]
async fn newest_items_are_distinguished_from_what_is_pushed() {
    let (mut session, mut server) = session("").await;
    let items = ["<item id='1'><a xmlns='urn:x'/></item>", "<item id='2'/>"];
    server.answer("r2", items[0]).await;
    server.items(items[1]).await;
    let item = |id: &str, is_answer: bool| {
        NodeEvent::Item(NodeItem {
            id: id.to_owned(),
            document: "<a xmlns='urn:x'></a>".into(),
            is_answer,
        })
    };
    assert!(session.awaits_newest());
    assert_eq!(session.next().await.unwrap(), item("1", true));
    session.stored();
    assert_eq!(session.next().await.unwrap(), NodeEvent::Answered);
    assert!(!session.awaits_newest());
    let answering = async {
        server.until("<item id='2'/></items></pubsub></iq>").await;
        let item = items[0].replace('1', "2");
        server.answer("r3", &item).await;
    };
    let (event, ()) = tokio::join!(session.next(), answering);
    assert_eq!(event.unwrap(), item("2", false));
}

#[tokio::test]
async fn what_is_not_answered_is_asked_for_again_after_a_resumption() {
    let (mut first, mut server) = session(SM).await;
    server
        .items("<item id='7'/><item id='8'/><item id='7'/>")
        .await;
    server.items("<item id='9'><b xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut first).await.0, "9");
    first.stored();
    drop(server);
    assert!(matches!(failure(&mut first).await, XmppError::Lost(_)));
    let resumption = first.resumption().unwrap();
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, SM).await;
        assert_eq!(server.resume().await, "3");
        let sent = server.until("</iq>").await;
        assert!(
            sent.contains("<items node='changes' max_items='5'>"),
            "{sent}"
        );
        // To what the session before has asked.
        let item = "<item id='1'><a xmlns='urn:x'/></item>";
        server.answer("r2", item).await;
        server.answer("r3", "").await;
        for (id, request, condition) in [("7", "r4", "forbidden"), ("8", "r5", "item-not-found")] {
            let sent = server.until("</iq>").await;
            let wanted = format!("<items node='changes'><item id='{id}'/></items>");
            assert!(sent.contains(&wanted), "{sent}");
            server
                .send(&format!(
                    "<iq type='error' id='{request}' from='{SERVICE}'><error type='cancel'>\
                     <{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
                ))
                .await;
        }
        server.items("<item id='9'><c xmlns='urn:x'/></item>").await;
    };
    let listening = async {
        let begun = begin(client, Security::Loopback, "example.org", Some(resumption));
        let mut again = begun.await.unwrap();
        assert_eq!(next_item(&mut again).await.0, "1");
        again.stored();
        match next_event(&mut again).await {
            NodeEvent::Rejected(error) => assert_eq!(error.code(), "bad-item"),
            other => panic!("{other:?}"),
        }
        assert!(again.resumption().is_some());
        // The other one is gone: that is no fault.
        next_item(&mut again).await
    };
    let (item, ()) = tokio::join!(listening, serving);
    assert_eq!(item.0, "9");
}

#[tokio::test(start_paused = true)]
async fn service_that_does_not_answer_is_asked_anew() {
    let (mut session, mut server) = session(SM).await;
    let answering = async {
        loop {
            // The server itself is there.
            let ping = server.until("<ping xmlns='urn:xmpp:ping'/></iq>").await;
            let id = ping.rsplit("id='").next().unwrap();
            let id = id.split('\'').next().unwrap();
            server.send(&format!("<iq type='result' id='{id}'/>")).await;
        }
    };
    let found = tokio::select! {
        found = failure(&mut session) => found,
        () = answering => unreachable!(),
    };
    assert_eq!(found, XmppError::NoAnswer);
    assert_eq!(session.resumption(), None);
}

#[tokio::test]
async fn event_before_stanzas_are_counted_is_delivered() {
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, SM).await;
        server.bind().await;
        let item = "<item id='1'><a xmlns='urn:x'/></item>";
        server.items(item).await;
        server.manage().await;
        server.subscribe().await;
    };
    let begun = begin(client, Security::Loopback, "example.org", None);
    let (session, ()) = tokio::join!(begun, serving);
    let mut session = session.unwrap();
    assert_eq!(next_item(&mut session).await.0, "1");
    session.stored();
    server.items("<item id='2'><b xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut session).await.0, "2");
    // The answer to `subscribe`.
    assert_eq!(session.resumption().unwrap().handled, 1);
}

#[tokio::test]
async fn item_that_is_not_accepted_is_processed() {
    let (mut session, mut server) = session(SM).await;
    let deep = format!("{}{}", "<a>".repeat(120), "</a>".repeat(120));
    let items = format!("<item id='1'><a/><b/></item><item id='2'>{deep}</item>");
    let wide = "<item/>".repeat(9000);
    let sending = async {
        server.items(&items).await;
        server.items(&wide).await;
        let item = "<item id='3'><b xmlns='urn:x'/></item>";
        server.items(item).await;
        server.until("<a xmlns='urn:xmpp:sm:3' h='4'/>").await;
    };
    let receiving = async {
        let mut rejected = 0;
        loop {
            match session.next().await.unwrap() {
                NodeEvent::Item(item) => break assert_eq!(item.id, "3"),
                NodeEvent::Rejected(error) => {
                    assert_eq!(error.code(), "bad-item");
                    assert!(error.is_of_message());
                    rejected += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        // Once for each of the two stanzas.
        assert_eq!(rejected, 2);
        assert_eq!(session.resumption().unwrap().handled, 3);
        session.stored();
        // What waits is sent with the next reading.
        let _ = session.next().await;
    };
    tokio::select! {
        () = receiving => unreachable!("nothing more is sent"),
        () = sending => {}
    }
}

#[tokio::test]
async fn only_a_session_whose_connection_is_lost_is_resumed() {
    let ended = "<message from='pubsub.example.org'><event xmlns='http://jabber.org/protocol/pubsub#event'><delete node='changes'/>\
                 </event></message>";
    for (sent, code, is_resumed) in [
        (ended, "xmpp-refused", false),
        ("<message><body>", "connection-lost", true),
        ("<unknown xmlns='urn:x'/>", "xmpp-protocol", false),
        ("<message></body>", "xmpp-protocol", false),
        ("</stream:stream>", "xmpp-session", false),
    ] {
        let (mut session, mut server) = session(SM).await;
        let (found, ()) = tokio::join!(failure(&mut session), async {
            server.send(sent).await;
            drop(server);
        });
        assert_eq!(found.code(), code);
        assert_eq!(session.resumption().is_some(), is_resumed, "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_that_an_item_takes_to_be_stored_does_not_count() {
    let (mut session, mut server) = session("").await;
    server.items("<item id='1'><a xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut session).await.0, "1");
    tokio::time::advance(Duration::from_secs(600)).await;
    session.stored();
    let sending = async {
        server.until("<ping xmlns='urn:xmpp:ping'/></iq>").await;
        server.items("<item id='2'><b xmlns='urn:x'/></item>").await;
    };
    let (item, ()) = tokio::join!(next_item(&mut session), sending);
    assert_eq!(item.0, "2");
}

#[tokio::test(start_paused = true)]
async fn time_that_many_items_take_to_be_stored_does_not_count() {
    let (mut session, mut server) = session("").await;
    let items = |id: usize| format!("<item id='{id}'><a xmlns='urn:x'/></item>");
    for id in 0..40 {
        server.items(&items(id)).await;
    }
    // After all of them.
    server.answer("r2", &items(40)).await;
    for id in 0..=40 {
        assert_eq!(next_item(&mut session).await.0, id.to_string());
        tokio::time::advance(Duration::from_secs(31)).await;
        session.stored();
    }
}

#[tokio::test]
async fn what_comes_before_an_answer_is_bounded() {
    let long = "x".repeat(LIMIT / 2);
    let event = format!("<item id='1'><a xmlns='urn:x'>{long}</a></item>");
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, "").await;
        server.bind().await;
        server.until("</iq>").await;
        for _ in 0..10 {
            server.items(&event).await;
        }
    };
    let begun = async {
        let begun = begin(client, Security::Loopback, "example.org", None).await;
        begun.err().map(|error| error.code())
    };
    let (found, ()) = tokio::join!(begun, serving);
    assert_eq!(found, Some("xmpp-protocol"));
    // Before the session has begun, too.
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, SM).await;
        server.bind().await;
        for _ in 0..10 {
            server.items(&event).await;
        }
    };
    let begun = async {
        let begun = begin(client, Security::Loopback, "example.org", None).await;
        begun.err().map(|error| error.code())
    };
    let (found, ()) = tokio::join!(begun, serving);
    assert_eq!(found, Some("xmpp-protocol"));
    // Who leaves is not interested.
    let (session, mut server) = session("").await;
    let serving = async {
        server.until("<unsubscribe ").await;
        for _ in 0..10 {
            server.items(&event).await;
        }
        server
            .send(&format!("<iq type='result' id='r3' from='{SERVICE}'/>"))
            .await;
    };
    let (ended, ()) = tokio::join!(session.unsubscribe(), serving);
    assert_eq!(ended, Ok(()));
}

#[tokio::test]
async fn session_is_resumed_after_an_attempt_that_reaches_no_server() {
    let listen = || async { TcpListener::bind("127.0.0.1:0").await.unwrap() };
    let (listener, gone) = (listen().await, listen().await);
    let client = client_of(listener.local_addr().unwrap());
    let refused = client_of(gone.local_addr().unwrap());
    drop(gone);
    let topic = TopicUri::of_channel("xmpp:pubsub.example.org?;node=changes".parse().unwrap());
    let topic = topic.unwrap();
    let mut memory = NodeMemory {
        resource: "resyncd-1".to_owned(),
        limit: LIMIT as u64,
        newest: 5,
        resumption: Some(session(SM).await.0.resumption().unwrap()),
        unanswered: Vec::new(),
    };
    let opened = refused.open_node(&topic, &mut memory).await;
    assert_eq!(opened.err().unwrap().code(), "xmpp-unreachable");
    assert!(memory.resumption.is_some());
    let serving = async {
        // It is lost once more, when it has begun.
        drop(listener.accept().await.unwrap());
        let connection = listener.accept().await.unwrap().0;
        let mut server = over(Box::new(connection));
        server.log_in(PASSWORD, SM).await;
        assert_eq!(server.resume().await, "0");
        server
    };
    let opening = async {
        let opened = client.open_node(&topic, &mut memory).await;
        assert_eq!(opened.err().unwrap().code(), "connection-lost");
        client.open_node(&topic, &mut memory).await
    };
    let (opened, _server) = tokio::join!(opening, serving);
    assert!(opened.unwrap().1, "it is resumed");
    assert_eq!(memory.resumption, None);
}

#[tokio::test]
async fn only_the_service_counts() {
    let (mut session, mut server) = session("").await;
    let item = "<item id='1'><a xmlns='urn:x'/></item>";
    for from in [
        "evil@example.org/r",
        "me@example.org",
        "pubsub.example.org.evil.example",
        "pubsub.example.org/r",
    ] {
        server.items_of(&format!("from='{from}'"), item).await;
        let event = session.next().await.unwrap();
        assert_eq!(event, NodeEvent::Foreign(from.to_owned()));
    }
    server
        .send(&format!(
            "<iq type='set' id='x' from='evil@example.org/r'><pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='changes'>{item}\
             </publish></pubsub></iq>"
        ))
        .await;
    let event = session.next().await.unwrap();
    assert_eq!(event, NodeEvent::Foreign("evil@example.org/r".to_owned()));
    // What nobody has asked for, of somebody else, of another node, an error, and what is no event.
    server
        .send(&format!(
            "<iq type='result' id='r2' from='evil@example.org/r'><pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='changes'>{item}\
             </items></pubsub></iq><message from='{SERVICE}'><event xmlns='http://jabber.org/protocol/pubsub#event'><items node='other'>{item}\
             </items></event></message><message type='error' from='{SERVICE}'><event xmlns='http://jabber.org/protocol/pubsub#event'>\
             <items node='changes'>{item}</items></event></message><message from='a@b'><body>hello</body></message><presence/>"
        ))
        .await;
    server.items("<item id='2'><a xmlns='urn:x'/></item>").await;
    assert_eq!(next_item(&mut session).await.0, "2");
    let sent = server.until("<service-unavailable").await;
    assert!(
        sent.contains("<iq type='error' id='x' to='evil@example.org/r'>"),
        "{sent}"
    );
}

#[tokio::test]
async fn requests_of_somebody_else_do_not_end_the_session() {
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, SM).await;
        server.bind().await;
        server.manage().await;
        let request = "<iq type='get' id='x' from='evil@example.org/r'/>";
        for _ in 0..50 {
            server.send(&request.repeat(50)).await;
        }
        server.subscribe().await;
        // An answer has it as well, in six times as many bytes.
        let long = "'".repeat(15_000);
        server
            .send(&format!(
                "<iq type='get' id=\"{long}\" from='evil@example.org/r'/>"
            ))
            .await;
        let item = "<item id='1'><a xmlns='urn:x'/></item>";
        server.items(item).await;
        server
    };
    let listening = async {
        let begun = begin(client, Security::Loopback, "example.org", None).await;
        let mut session = begun.unwrap();
        assert_eq!(next_item(&mut session).await.0, "1");
        session
    };
    let (session, mut server) = tokio::join!(listening, serving);
    // Those, the answer to `subscribe`, and the long one.
    assert_eq!(session.resumption().unwrap().handled, 2502);
    let sent = server.until("<a xmlns='urn:xmpp:sm:3' h='2502'/>").await;
    assert!(sent.contains("<iq type='error' id='x' to='evil@example.org/r'>"));
    assert!(sent.matches("type='error'").count() < 500, "{}", sent.len());
}

#[tokio::test]
async fn answer_of_somebody_else_confirms_no_subscription() {
    let (client, mut server) = ends();
    let serving = async {
        server.log_in(PASSWORD, "").await;
        server.bind().await;
        server.until("</iq>").await;
        server
            .send("<iq type='result' id='r1' from='evil@example.org/r'/>")
            .await;
        server
            .send(&format!(
                "<iq type='error' id='r1' from='{SERVICE}'><error type='auth'>\
                 <forbidden xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
            ))
            .await;
    };
    let (session, ()) = tokio::join!(
        begin(client, Security::Loopback, "example.org", None),
        serving
    );
    assert_eq!(
        session.err(),
        Some(XmppError::Refused("forbidden".to_owned()))
    );
}

#[tokio::test]
async fn subscription_ends_on_request() {
    let (session, mut server) = session("").await;
    let serving = async {
        server.until("max_items='5'></items></pubsub></iq>").await;
        let request = server.until("</iq>").await;
        assert!(
            request.contains("<unsubscribe node='changes' jid='me@example.org/resyncd-1'/>"),
            "{request}"
        );
        server
            .send(&format!("<iq type='result' id='r3' from='{SERVICE}'/>"))
            .await;
        server.until("</stream:stream>").await;
    };
    let (ended, ()) = tokio::join!(session.unsubscribe(), serving);
    assert_eq!(ended, Ok(()));
}

#[tokio::test]
async fn without_tls_nothing_is_sent_unless_the_server_is_on_loopback() {
    // The offer was removed on the way.
    for features in ["", MECHANISMS] {
        let (client, mut server) = ends();
        let serving = async {
            server.greet(features).await;
            server.rest().await
        };
        let (session, sent) = tokio::join!(
            begin(client, Security::Required, "example.org", None),
            serving
        );
        assert_eq!(session.err(), Some(XmppError::NoTls));
        assert_eq!(sent, "", "{features}");
    }
    assert_eq!(XmppError::NoTls.code(), "xmpp-no-tls");
    // Or the answer.
    let (client, mut server) = ends();
    let serving = async {
        server.greet(&format!("{STARTTLS}{MECHANISMS}")).await;
        server
            .until("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
            .await;
        server
            .send("<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
            .await;
        server.rest().await
    };
    let (session, sent) = tokio::join!(
        begin(client, Security::Required, "example.org", None),
        serving
    );
    assert_eq!((session.err(), sent.as_str()), (Some(XmppError::NoTls), ""));
    for (address, expected) in [
        ("127.0.0.1", Security::Loopback),
        ("::1", Security::Loopback),
        ("::ffff:127.0.0.2", Security::Loopback),
        ("192.0.2.1", Security::Required),
        ("10.0.0.1", Security::Required),
        ("2001:db8::1", Security::Required),
    ] {
        let found = security_of(&account("localhost"), address.parse().unwrap());
        assert_eq!(found, expected, "{address}");
    }
}

#[tokio::test]
async fn what_comes_before_tls_does_not_count_after_it() {
    let (client, mut server) = ends();
    let serving = async {
        server.greet(STARTTLS).await;
        server.until("xmpp-tls'/>").await;
        server
            .send(&format!("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/><stream:features>{MECHANISMS}</stream:features>"))
            .await;
        server.rest().await
    };
    let (session, sent) = tokio::join!(
        begin(client, Security::Required, "example.org", None),
        serving
    );
    assert_eq!(session.err().unwrap().code(), "xmpp-protocol");
    assert_eq!(sent, "");
}

#[tokio::test]
async fn certificate_must_be_of_the_domain() {
    for (domain, expected) in [("127.0.0.1", None), ("example.org", Some("xmpp-tls"))] {
        let (client, mut server) = ends();
        let serving = async {
            server.greet(&format!("{STARTTLS}{MECHANISMS}")).await;
            server.until("xmpp-tls'/>").await;
            server
                .send("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
                .await;
            let acceptor =
                tokio_rustls::TlsAcceptor::from(Arc::new(resyncd_testkit::tls::tls_server()));
            let Ok(connection) = acceptor.accept(server.into_connection()).await else {
                return;
            };
            let mut server = over(Box::new(connection));
            server.log_in(PASSWORD, "").await;
            server.bind().await;
            server.subscribe().await;
            server.until("max_items").await;
        };
        let beginning = async {
            let mut session = begin(client, Security::Required, domain, None).await?;
            // What waits to be sent is sent with the next reading.
            let _ = session.next().await;
            Ok::<_, XmppError>(())
        };
        let (session, ()) = tokio::join!(beginning, serving);
        assert_eq!(
            session.err().map(|error| error.code()),
            expected,
            "{domain}"
        );
    }
}

#[tokio::test]
async fn server_that_does_not_know_the_password_is_left() {
    let (client, mut server) = ends();
    let serving = async {
        server.greet(MECHANISMS).await;
        server.authenticate("another").await;
        server.rest().await
    };
    let (session, sent) = tokio::join!(
        begin(client, Security::Loopback, "example.org", None),
        serving
    );
    assert_eq!(session.err().unwrap().code(), "xmpp-authentication");
    assert_eq!(sent, "");
    // One that wants the password itself does not get it.
    let (client, mut server) = ends();
    let serving = async {
        let plain = MECHANISMS.replace("SCRAM-SHA-1", "LOGIN");
        server.greet(&plain).await;
        server.rest().await
    };
    let (session, sent) = tokio::join!(
        begin(client, Security::Loopback, "example.org", None),
        serving
    );
    assert_eq!(session.err().unwrap().code(), "xmpp-authentication");
    assert_eq!(sent, "");
}

#[tokio::test]
async fn bombs_and_endless_stanzas_are_bounded() {
    let long = "x".repeat(300 << 10);
    let deep = "<a>".repeat(10_000);
    for (sent, code) in [
        (
            "<!DOCTYPE a [<!ENTITY b 'bbbbbbbbbb'><!ENTITY c '&b;&b;&b;'>]><message/>",
            "xmpp-protocol",
        ),
        ("<message><!ENTITY b 'c'></message>", "xmpp-protocol"),
        ("<message>&b;</message>", "xmpp-protocol"),
        ("<message><body>", ""),
        (&format!("<message><body>{long}"), "too-large"),
        (&format!("<message a='{long}"), "too-large"),
        (&format!("<message>{deep}"), "xmpp-protocol"),
        (
            "<stream:error><policy-violation xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>",
            "xmpp-session",
        ),
        ("</stream:stream>", "xmpp-session"),
    ] {
        let (mut session, mut server) = session("").await;
        let (found, ()) = tokio::join!(
            async {
                let found = failure(&mut session).await;
                drop(session);
                found
            },
            async {
                server.send(sent).await;
                if code.is_empty() {
                    drop(server);
                }
            }
        );
        let code = if code.is_empty() {
            "connection-lost"
        } else {
            code
        };
        let start: String = sent.chars().take(60).collect();
        assert_eq!(found.code(), code, "{start}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_is_gone_or_never_ends_a_stanza_is_left() {
    let (mut silent, mut server) = session("").await;
    let (found, ()) = tokio::join!(failure(&mut silent), async {
        server.until("<ping xmlns='urn:xmpp:ping'/></iq>").await;
    });
    assert_eq!(found, XmppError::Unanswered);
    let (mut endless, mut server) = session("").await;
    let (found, ()) = tokio::join!(
        async {
            let found = endless.next().await.unwrap_err();
            drop(endless);
            found
        },
        async {
            server.send("<message>").await;
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_secs(20)).await;
                server.send("<a/>").await;
            }
        }
    );
    assert_eq!(found, XmppError::Endless);
}

#[tokio::test]
async fn what_is_announced_and_does_not_come_is_reported() {
    let (mut session, mut server) = session("").await;
    let refused = |id: &str, condition: &str| {
        format!(
            "<iq type='error' id='{id}' from='{SERVICE}'><error type='cancel'>\
             <{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>"
        )
    };
    server.send(&refused("r2", "feature-not-implemented")).await;
    server
        .items("<item id='1'/><item id='2'/><item id='3'/>")
        .await;
    let serving = async {
        server.until("<item id='1'/></items></pubsub></iq>").await;
        server.send(&refused("r3", "item-not-found")).await;
        server.until("<item id='2'/></items></pubsub></iq>").await;
        server.answer("r4", "").await;
        server.until("<item id='3'/></items></pubsub></iq>").await;
        server.answer("r5", "<item id='3'/>").await;
        // Something has happened, and that is all that it states.
        server.items("").await;
        server.items("<retract id='1'/>").await;
        let item = "<item id='4'><a xmlns='urn:x'/></item>";
        server.items(item).await;
    };
    let listening = async {
        let mut next = async || {
            let next = tokio::time::timeout(HANGING, session.next()).await;
            next.expect("not within the limit").unwrap()
        };
        let reason = "feature-not-implemented".to_owned();
        assert_eq!(next().await, NodeEvent::Refused(reason));
        assert_eq!(next().await, NodeEvent::Answered);
        for _ in 0..4 {
            let event = next().await;
            assert!(matches!(event, NodeEvent::Missing(_)), "{event:?}");
        }
        let event = next().await;
        assert!(matches!(event, NodeEvent::Item(item) if item.id == "4"));
    };
    tokio::join!(listening, serving);
}
