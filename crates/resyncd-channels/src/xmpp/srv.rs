//! Where the server of a domain is: its SRV records (RFC 6120, section 3.2.1; RFC 2782), which the name servers of the system are asked
//! for.
//!
//! Whoever answers for the DNS can state any address, and so the certificate of the domain is what proves the server.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::ResolveHosts;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{RData, RecordType};

use super::account::XmppAccount;

/// How long the name servers may take together.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(15);
/// How many aliases in a row are followed.
const MOST_ALIASES: usize = 8;
/// How many addresses are tried.
const MOST_ADDRESSES: usize = 8;

/// The hosts and ports of a domain's server, the one to try first at the beginning. Without records it is the domain itself; none if the
/// domain states that it has no server.
pub(super) async fn addresses_of(domain: &str) -> Vec<(String, u16)> {
    let mut records = Vec::new();
    if domain.parse::<IpAddr>().is_err()
        && domain.contains('.')
        && let Ok(resolver) = resolver_of_system()
    {
        let asking = tokio::time::timeout(LOOKUP_TIMEOUT, records_of(&resolver, domain));
        records = asking.await.unwrap_or_default();
    }
    if records.is_empty() {
        return vec![(domain.to_owned(), XmppAccount::DEFAULT_PORT)];
    }
    ordered(records, random_share)
}

/// The configuration of the system may change while this process runs: it is read each time.
fn resolver_of_system() -> Result<TokioResolver, NetError> {
    let mut builder = TokioResolver::builder_tokio()?;
    // That file has addresses only, and each of its lines that is not understood would be a line of the log.
    builder.options_mut().use_hosts_file = ResolveHosts::Never;
    builder.build()
}

/// The records of a domain; none where no name server has an answer.
async fn records_of(resolver: &TokioResolver, domain: &str) -> Vec<SRV> {
    // The dot at its end keeps the search domains of the system away from it.
    let mut name = format!("_xmpp-client._tcp.{domain}.");
    for _ in 0..=MOST_ALIASES {
        if let Ok(found) = resolver.srv_lookup(&name).await {
            let records = found.answers().iter();
            let records = records.filter_map(|record| match &record.data {
                RData::SRV(found) => Some(found.clone()),
                _ => None,
            });
            return records.collect();
        }
        // hickory-resolver 0.26 takes the target of a record for an alias, and so finds no records of a name that is an alias itself.
        let alias = resolver.lookup(&name, RecordType::CNAME).await.ok();
        let alias = alias.and_then(|found| match &found.answers().first()?.data {
            RData::CNAME(alias) => Some(alias.to_ascii()),
            _ => None,
        });
        match alias {
            Some(alias) => name = alias,
            None => break,
        }
    }
    Vec::new()
}

/// A random number from 0 to 1. Without random numbers any order of the servers is as good.
fn random_share() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

/// The addresses in the order in which they are tried: by priority, and among those of one priority by chance, in which each is the
/// first as often as its weight says. `spread`: a number from 0 to 1.
fn ordered(records: Vec<SRV>, spread: impl Fn() -> f64) -> Vec<(String, u16)> {
    // How long each waits for an event that is as frequent as its weight says: the first one is of each as often as its share.
    let wait = |record: SRV| (-spread().ln() / (f64::from(record.weight) + 0.1), record);
    let mut waiting: Vec<_> = records.into_iter().map(wait).collect();
    waiting.sort_by(|(a, of_a), (b, of_b)| {
        let by_priority = of_a.priority.cmp(&of_b.priority);
        by_priority.then(a.total_cmp(b))
    });
    let records = waiting.into_iter().map(|(_, record)| record);
    let addresses = records.filter(|record| !record.target.is_root());
    let addresses = addresses.map(|record| {
        let host = record.target.to_ascii();
        (host.trim_end_matches('.').to_owned(), record.port)
    });
    addresses.take(MOST_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::CNAME;
    use hickory_resolver::proto::rr::{Name, Record};
    use tokio::net::UdpSocket;

    use super::*;

    fn srv(priority: u16, weight: u16, host: &str) -> SRV {
        SRV::new(priority, weight, 5269, Name::from_ascii(host).unwrap())
    }

    /// What is found at a name server that answers like this.
    async fn found(answer: impl Fn(&mut Message)) -> Vec<SRV> {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let mut udp = ConnectionConfig::udp();
        udp.port = address.port();
        let server_config = NameServerConfig::new(address.ip(), true, vec![udp]);
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server_config]);
        let provider = TokioRuntimeProvider::default();
        let resolver = TokioResolver::builder_with_config(config, provider);
        let resolver = resolver.build().unwrap();
        let serving = async {
            loop {
                let mut question = [0; 512];
                let (length, from) = server.recv_from(&mut question).await.unwrap();
                let question = Message::from_vec(&question[..length]).unwrap();
                let mut reply = question.into_response();
                answer(&mut reply);
                server
                    .send_to(&reply.to_vec().unwrap(), from)
                    .await
                    .unwrap();
            }
        };
        tokio::select! {
            found = records_of(&resolver, "example.org") => found,
            () = serving => unreachable!("it serves on"),
        }
    }

    #[tokio::test]
    async fn records_are_asked_of_a_name_server() {
        let name = || Name::from_ascii("_xmpp-client._tcp.example.org.").unwrap();
        let other = || Name::from_ascii("other.example.net.").unwrap();
        let right = [srv(1, 2, "xmpp.example.org.")];
        let record = |name: Name| Record::from_rdata(name, 60, RData::SRV(right[0].clone()));
        let with = found(|reply| {
            reply.add_answer(record(name()));
        });
        assert_eq!(with.await, right);
        let of_alias = found(|reply| {
            let asked = reply.queries[0].clone();
            if *asked.name() == name() {
                let alias = RData::CNAME(CNAME(other()));
                reply.add_answer(Record::from_rdata(name(), 60, alias));
            }
            if asked.query_type() == RecordType::SRV {
                reply.add_answer(record(other()));
            }
        });
        assert_eq!(of_alias.await, right);
        let in_circles = found(|reply| {
            let alias = RData::CNAME(CNAME(name()));
            reply.add_answer(Record::from_rdata(name(), 60, alias));
        });
        assert_eq!(in_circles.await, []);
        for code in [ResponseCode::NXDomain, ResponseCode::ServFail] {
            let failed = found(|reply| reply.metadata.response_code = code);
            assert_eq!(failed.await, [], "{code}");
        }
    }

    #[test]
    fn addresses_are_ordered_by_priority_and_chance() {
        let hosts = |records: &[SRV], spread: f64| -> Vec<String> {
            let addresses = ordered(records.to_vec(), || spread);
            addresses.into_iter().map(|(host, _)| host).collect()
        };
        let mut records = vec![srv(20, 0, "later."), srv(10, 10, "a."), srv(10, 30, "b.")];
        assert_eq!(hosts(&records, 0.5), ["b", "a", "later"]);
        let times = 4000;
        let first_of = |_| ordered(records.clone(), random_share).swap_remove(0).0;
        let firsts = (0..times).map(first_of);
        let of_b = firsts.filter(|host| host == "b").count();
        assert!(
            (2700..3300).contains(&of_b),
            "three of four, and not {of_b} of {times}"
        );
        // The most important ones are left, wherever they stand.
        records.extend((0..20).map(|_| srv(30, 0, "last.")));
        let addresses = hosts(&records, 0.5);
        assert_eq!(addresses[0], "b");
        assert_eq!(addresses.len(), MOST_ADDRESSES);
        assert!(hosts(&[srv(0, 0, ".")], 0.5).is_empty());
    }

    #[tokio::test]
    async fn name_without_domain_is_its_own_address() {
        for domain in ["localhost", "127.0.0.1", "::1"] {
            let expected = (domain.to_owned(), 5222);
            assert_eq!(addresses_of(domain).await, [expected]);
        }
    }
}
