//! Reads which proxies requests go through: `[http] proxy` and `no_proxy`, or the environment.

use std::net::IpAddr;

use resourcesync::uri::parse_uri;
use resyncd_core::hide_userinfo;
use resyncd_fetch::{Proxies, ProxyException};
use url::Url;

use super::environment::Environment;
use super::fault::{Parsed, Reason};
use super::table_reader::{Class, TableReader, text};
use super::value::{bad_host, parse_host};

impl TableReader<'_, '_> {
    /// Reads the proxy that a key names, and `no_proxy`.
    pub(super) fn proxies(&mut self, key: &str) -> Proxies {
        let parse = |text: &str| match text {
            "" | "off" => Ok(None),
            proxy => parse_proxy(proxy).map(Some),
        };
        let proxy = self.value(key, Class::Url, text("a URL", parse));
        let exceptions = self.list("no_proxy", parse_exception);
        if let Some(proxy) = proxy {
            return Proxies {
                http: Some(proxy.clone()),
                https: Some(proxy),
                exceptions,
                is_of_file: true,
            };
        }
        if self.has_text(key, "off") {
            return Proxies::default();
        }
        let found = proxies_of_environment(self.file.environment, exceptions);
        found.unwrap_or_else(|reason| {
            self.file.add(None, "http.proxy", reason);
            Proxies::default()
        })
    }
}

/// The proxies of the environment. A variable of a scheme takes precedence over `ALL_PROXY`, upper case over lower case.
fn proxies_of_environment(
    environment: &Environment,
    mut exceptions: Vec<ProxyException>,
) -> Parsed<Proxies> {
    let find = |name: &str| variable(environment, name);
    let proxy = |name: &str| {
        let Some((text, name)) = find(name).or_else(|| find("ALL_PROXY")) else {
            return Ok(None);
        };
        let hint = "set `proxy` in [http], or `proxy = \"off\"`";
        let bad = |reason: Reason| reason!("bad-url": "{name} of the environment: {}; {hint}", reason.message);
        parse_proxy(&text).map(Some).map_err(bad)
    };
    let (http, https) = (proxy("HTTP_PROXY")?, proxy("HTTPS_PROXY")?);
    // What is no host is none that is requested; the doubts of the configuration name it.
    let listed = listed_exceptions(environment).into_iter();
    exceptions.extend(listed.filter_map(|(_, parsed)| parsed.ok()));
    Ok(Proxies {
        http,
        https,
        exceptions,
        is_of_file: false,
    })
}

/// A variable of the environment, and its name: upper case takes precedence over lower case.
fn variable(environment: &Environment, name: &str) -> Option<(String, String)> {
    let names = [name.to_owned(), name.to_ascii_lowercase()];
    let mut found = names.into_iter();
    found.find_map(|name| Some((environment.get(&name)?, name)))
}

/// The entries of `NO_PROXY`, and what each is parsed to.
pub(super) fn listed_exceptions(
    environment: &Environment,
) -> Vec<(String, Parsed<ProxyException>)> {
    let listed = variable(environment, "NO_PROXY").map(|(text, _)| text);
    let listed = listed.unwrap_or_default();
    let entries = listed.split([',', ' ']).filter(|text| !text.is_empty());
    let entries = entries.map(|text| (text.to_owned(), parse_exception(text)));
    entries.collect()
}

/// Parses the URL of a proxy. Without a scheme it is http.
pub(super) fn parse_proxy(text: &str) -> Parsed<Url> {
    let complete = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let shown = hide_userinfo(&complete);
    let bad = |_| reason!("bad-url": "{shown:?} is not the URL of a proxy, such as http://proxy.example.net:3128");
    let url = parse_uri(&complete).map_err(bad)?;
    ensure!(url.scheme() == "http", "bad-url": "{shown:?} is not an HTTP proxy: only http:// can be used");
    let has_path = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    ensure!(!has_path, "bad-url": "{shown:?} has a path: a proxy has none");
    Ok(url)
}

/// Parses what is requested directly: `*`, a name, an address or a network, such as `10.0.0.0/8`.
pub(super) fn parse_exception(text: &str) -> Parsed<ProxyException> {
    let bad = || bad_host(text);
    let text = text.trim();
    if text == "*" {
        return Ok(ProxyException::Everything);
    }
    if text.contains('/') {
        let network = text.parse().map(ProxyException::Network);
        return network.map_err(|_| bad());
    }
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(ProxyException::Network(address.into()));
    }
    let name = text.trim_start_matches("*.").trim_start_matches('.');
    let host = parse_host(name.trim_end_matches('.')).map_err(|_| bad())?;
    Ok(match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => ProxyException::Host {
            host: name.to_owned(),
            port: port.parse().ok(),
        },
        _ => ProxyException::Host { host, port: None },
    })
}

#[cfg(test)]
mod tests {
    use resyncd_core::Redaction;

    use super::*;

    /// The proxy for a URL in an environment.
    fn found(variables: &[(&str, &str)], url: &str) -> String {
        let environment = Environment::of(variables);
        let proxies = proxies_of_environment(&environment, Vec::new()).unwrap();
        let proxy = proxies.of(&Url::parse(url).unwrap());
        proxy.map_or_else(|| "direct".to_owned(), Url::to_string)
    }

    #[test]
    fn environment_names_the_proxy_of_each_scheme() {
        const BOTH: &[(&str, &str)] = &[
            ("HTTP_PROXY", "http://plain.example:3128"),
            ("https_proxy", "tunnel.example:3128"),
        ];
        for (variables, url, expected) in [
            (&[][..], "http://a.org/", "direct"),
            (BOTH, "http://a.org/", "http://plain.example:3128/"),
            (BOTH, "https://a.org/", "http://tunnel.example:3128/"),
            (&[("HTTPS_PROXY", "p:1")], "http://a.org/", "direct"),
            (&[("HTTPS_PROXY", "")], "https://a.org/", "direct"),
            (&[("ALL_PROXY", "p:1")], "http://a.org/", "http://p:1/"),
            (
                &[("all_proxy", "p:1"), ("HTTPS_PROXY", "q:1")],
                "https://a.org/",
                "http://q:1/",
            ),
            (
                &[("HTTPS_PROXY", "p:1"), ("https_proxy", "q:1")],
                "https://a.org/",
                "http://p:1/",
            ),
        ] {
            assert_eq!(found(variables, url), expected, "{variables:?} {url}");
        }
        for bad in [
            "https://p.example",
            "socks5://p.example",
            "http://p/x",
            "a b",
        ] {
            let environment = Environment::of(&[("HTTPS_PROXY", bad)]);
            let fault = proxies_of_environment(&environment, Vec::new()).unwrap_err();
            assert!(fault.message.contains("HTTPS_PROXY"), "{fault:?}");
        }
    }

    #[test]
    fn exceptions_and_this_machine_are_requested_directly() {
        for (exceptions, url, is_direct) in [
            ("", "http://a.org/", false),
            ("*", "http://a.org/", true),
            ("a.org", "http://a.org/", true),
            ("A.org.", "http://sub.a.org./", true),
            (".a.org", "http://a.org/", true),
            ("*.a.org", "http://sub.a.org/", true),
            ("a.org", "http://nota.org/", false),
            ("sub.a.org", "http://a.org/", false),
            ("b.org, a.org", "http://a.org/", true),
            ("b.org a.org", "http://a.org/", true),
            ("a.org:8080", "http://a.org/", false),
            ("a.org:8080", "http://a.org:8080/", true),
            ("a.org:443", "https://a.org/", true),
            ("10.0.0.0/8", "http://10.1.2.3/", true),
            ("10.0.0.0/8", "http://11.1.2.3/", false),
            ("10.0.0.0/33", "http://10.0.0.1/", false),
            ("192.0.2.7", "http://192.0.2.7/", true),
            ("2001:db8::/32", "http://[2001:db8::7]/", true),
            ("[2001:db8::7]", "http://[2001:db8::7]/", true),
            ("2001:db8::7", "http://[2001:db8::8]/", false),
            ("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", true),
            ("", "http://127.0.0.1:8080/", true),
            ("", "http://[::1]/", true),
            ("", "http://localhost/", true),
            ("", "http://a.localhost./", true),
            ("", "http://notlocalhost/", false),
        ] {
            let found = found(&[("ALL_PROXY", "p:1"), ("NO_PROXY", exceptions)], url);
            assert_eq!(found == "direct", is_direct, "{exceptions} {url}");
        }
    }

    fn at(proxy: Url) -> Proxies {
        Proxies {
            http: Some(proxy),
            is_of_file: true,
            ..Proxies::default()
        }
    }

    #[test]
    fn passwords_of_proxies_are_not_shown() {
        let proxy = parse_proxy("http://me:s3cr%40t@p.example:3128").unwrap();
        let proxies = at(proxy);
        let shown = format!("{proxies:?}");
        assert!(
            shown.contains("p.example") && !shown.contains("s3cr"),
            "{shown}"
        );
        let redaction = proxies.added_to(Redaction::default());
        assert_eq!(redaction.redact("sent s3cr@t"), "sent [redacted]");
        let fault = parse_proxy("ftp://me:s3cr%40t@p.example").unwrap_err();
        assert!(!fault.message.contains("s3cr"), "{fault:?}");
        let fault = parse_exception("http://me:s3cr@p.example/").unwrap_err();
        assert!(!fault.message.contains("s3cr"), "{fault:?}");
        // A token in place of the user name.
        let proxies = at(parse_proxy("http://t0ken@p.example").unwrap());
        let redaction = proxies.added_to(Redaction::default());
        assert_eq!(redaction.redact("sent t0ken"), "sent [redacted]");
        assert!(proxies.has_password_in_file());
    }
}
