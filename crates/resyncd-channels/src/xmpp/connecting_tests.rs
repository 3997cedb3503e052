//! To which address a session is opened, and whether it needs TLS there.

use super::*;

fn account(domain: &str, server: Option<&str>) -> XmppAccount {
    XmppAccount {
        user: "me".to_owned(),
        domain: domain.to_owned(),
        password: XmppPassword::new("pencil").unwrap(),
        server: server.map(|host| (host.to_owned(), 5222)),
    }
}

#[test]
fn only_what_can_mean_nothing_but_this_machine_needs_no_tls() {
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    let elsewhere: IpAddr = "192.0.2.1".parse().unwrap();
    for (domain, server, address, expected) in [
        ("example.org", Some("127.0.0.1"), here, Security::Loopback),
        ("example.org", Some("127.8.8.8"), here, Security::Loopback),
        ("example.org", Some("::1"), here, Security::Loopback),
        ("example.org", Some("LocalHost"), here, Security::Loopback),
        ("localhost", None, here, Security::Loopback),
        // Whoever answers for the DNS has chosen the address.
        ("example.org", None, here, Security::Required),
        (
            "example.org",
            Some("xmpp.example.org"),
            here,
            Security::Required,
        ),
        ("example.org", Some("127.1"), here, Security::Required),
        (
            "localhost",
            Some("xmpp.example.org"),
            here,
            Security::Required,
        ),
        ("localhost", None, elsewhere, Security::Required),
        (
            "example.org",
            Some("192.0.2.1"),
            elsewhere,
            Security::Required,
        ),
    ] {
        let found = security_of(&account(domain, server), address);
        assert_eq!(found, expected, "{domain} {server:?} {address}");
    }
}

#[tokio::test(start_paused = true)]
async fn address_that_does_not_answer_holds_up_the_next_one_for_a_while_only() {
    let silent: SocketAddr = "192.0.2.1:5222".parse().unwrap();
    let closed: SocketAddr = "192.0.2.2:5222".parse().unwrap();
    let open: SocketAddr = "192.0.2.3:5222".parse().unwrap();
    let connect = |address: SocketAddr| async move {
        match address {
            _ if address == silent => std::future::pending().await,
            _ if address == closed => Err(io::ErrorKind::ConnectionRefused.into()),
            _ => Ok("connected"),
        }
    };
    // As long as a client has by default.
    let limit = Duration::from_secs(60);
    let trying = first_of([silent, closed, open].into_iter(), connect);
    let found = tokio::time::timeout(limit, trying).await.unwrap();
    assert_eq!(found.unwrap(), ("connected", open));
    let trying = first_of([closed, silent].into_iter(), connect);
    let found = tokio::time::timeout(limit, trying).await.unwrap();
    assert_eq!(found.unwrap_err().kind(), io::ErrorKind::TimedOut);
}
