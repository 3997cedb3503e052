//! Reads `[xmpp]`: the account that the nodes of PubSub services are subscribed to with (ResourceSync 0.1, section 5.2.1).

use resourcesync::draft::MAX_JID_PART;
use resyncd_channels::{XmppAccount, XmppPassword};

use super::fault::Parsed;
use super::secret::{is_secret_given, read_secret};
use super::table_reader::{Class, TableReader, text};

/// Reads the table. Without an address there is no account.
pub(super) fn read_xmpp(section: &mut TableReader<'_, '_>) -> Option<XmppAccount> {
    let parse = text("an address such as \"resyncd@example.net\"", parse_jid);
    let address = section.value("jid", Class::Any, parse);
    let parse = text("a host, perhaps with a port", parse_server);
    let server = section.value("server", Class::Any, parse);
    let longest = XmppPassword::MAX_BYTES;
    let password = read_secret(section, "password", longest + 2, |text| {
        XmppPassword::new(text).ok_or_else(
            || reason!("bad-secret": "a password has 1 to {longest} visible ASCII characters"),
        )
    });
    let (user, domain) = address?;
    let Some(password) = password else {
        if !is_secret_given(section, "password") {
            reject!(section, "password_file", "bad-auth": "`jid` needs `password_file`, `password_credential` or `password`");
        }
        return None;
    };
    Some(XmppAccount {
        user,
        domain,
        password: password.value,
        server,
    })
}

/// Parses an address without a resource; `None`: an empty text.
fn parse_jid(text: &str) -> Parsed<Option<(String, String)>> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = || reason!("out-of-range": "{text:?} is not an address such as resyncd@example.net");
    let (user, domain) = text.split_once('@').ok_or_else(bad)?;
    let is_user = |c: char| c.is_ascii_graphic() && !"\"&'/:<>@".contains(c);
    let is_valid = !user.is_empty() && user.len() <= MAX_JID_PART && user.chars().all(is_user);
    let domain = domain.to_ascii_lowercase();
    if is_valid && is_host(&domain) {
        Ok(Some((user.to_ascii_lowercase(), domain)))
    } else {
        Err(bad())
    }
}

/// Parses a host with or without a port; `None`: an empty text.
fn parse_server(text: &str) -> Parsed<Option<(String, u16)>> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = || reason!("out-of-range": "{text:?} is not a host such as xmpp.example.net:5222");
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port))
            if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) =>
        {
            (host, port.parse().map_err(|_| bad())?)
        }
        _ => (text, XmppAccount::DEFAULT_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if (is_address || is_host(host)) && port > 0 {
        Ok(Some((host.to_owned(), port)))
    } else {
        Err(bad())
    }
}

fn is_host(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !text.is_empty() && text.len() <= MAX_JID_PART && text.chars().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_servers_are_parsed() {
        let jid = |user: &str, domain: &str| Some(Some((user.to_owned(), domain.to_owned())));
        for (text, expected) in [
            ("", Some(None)),
            ("Me@Example.NET", jid("me", "example.net")),
            ("a.b+c@localhost", jid("a.b+c", "localhost")),
            ("example.net", None),
            ("@example.net", None),
            ("me@", None),
            ("me@example.net/resource", None),
            ("me@you@example.net", None),
            ("me you@example.net", None),
        ] {
            assert_eq!(parse_jid(text).ok(), expected, "{text}");
        }
        let place = |host: &str, port| Some(Some((host.to_owned(), port)));
        for (text, expected) in [
            ("", Some(None)),
            ("xmpp.example.net", place("xmpp.example.net", 5222)),
            ("xmpp.example.net:5269", place("xmpp.example.net", 5269)),
            ("127.0.0.1:1", place("127.0.0.1", 1)),
            ("[::1]:5223", place("::1", 5223)),
            ("::1", place("::1", 5222)),
            ("host:0", None),
            ("host:port", None),
            ("https://host", None),
        ] {
            assert_eq!(parse_server(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn password_is_not_shown() {
        let password = XmppPassword::new("open sesame").unwrap();
        assert_eq!(password.expose(), "open sesame");
        assert!(!format!("{password:?}").contains("sesame"));
        for bad in ["", "pässword", "a\nb", &"x".repeat(1025)] {
            assert!(XmppPassword::new(bad).is_none(), "{bad}");
        }
    }
}
