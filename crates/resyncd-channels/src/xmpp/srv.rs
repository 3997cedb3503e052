//! Where the server of a domain is: its SRV records (RFC 6120, section 3.2.1; RFC 2782).
//!
//! Whoever answers for the DNS can state any address, and so the certificate of the domain is what proves the server. An answer counts
//! only if it is to the question, and what it states is bounded.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use super::account::XmppAccount;

/// How long after its last time a name server is asked again: over UDP a question or an answer may be lost.
const AGAIN_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(1)];
/// How many aliases in a row are followed.
const MOST_ALIASES: usize = 8;
/// How long a name server may take.
const NAME_SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// How many name servers are asked.
const MOST_SERVERS: usize = 3;
/// How many addresses are tried.
const MOST_ADDRESSES: usize = 8;
/// The longest answer over UDP.
const LONGEST: usize = 4096;

/// A name or an address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerAddress {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The addresses of a domain's server, the one to try first at the beginning. Without records it is the domain itself; none if the
/// domain states that it has no server.
pub(super) async fn addresses_of(domain: &str) -> Vec<ServerAddress> {
    let itself = vec![ServerAddress {
        host: domain.to_owned(),
        port: XmppAccount::DEFAULT_PORT,
    }];
    if domain.parse::<IpAddr>().is_ok() || domain.starts_with('[') || !domain.contains('.') {
        return itself;
    }
    let text = tokio::fs::read_to_string("/etc/resolv.conf").await;
    for server in name_servers(&text.unwrap_or_default()) {
        let asking = tokio::time::timeout(NAME_SERVER_TIMEOUT, ask(server, domain, AGAIN_AFTER));
        if let Ok(Some(records)) = asking.await {
            return if records.is_empty() {
                itself
            } else {
                ordered(records, random_share)
            };
        }
    }
    itself
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SrvRecord {
    priority: u16,
    weight: u16,
    address: ServerAddress,
}

fn name_servers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let address = words.next().filter(|_| is_server)?;
        // A scope (`fe80::1%eth0`) can't be used here.
        Some(SocketAddr::new(address.parse().ok()?, 53))
    });
    addresses.take(MOST_SERVERS).collect()
}

/// Asks a name server, and again after these pauses. `None`: it does not answer, or not with certainty.
async fn ask(
    server: SocketAddr,
    domain: &str,
    again_after: [Duration; 2],
) -> Option<Vec<SrvRecord>> {
    let (id, question) = question(domain)?;
    let any: IpAddr = if server.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    let socket = UdpSocket::bind((any, 0)).await.ok()?;
    socket.connect(server).await.ok()?;
    socket.send(&question).await.ok()?;
    let answering = async {
        let mut answer = [0; LONGEST];
        loop {
            let length = socket.recv(&mut answer).await.ok()?;
            match records_of(&answer[..length], id, domain) {
                SrvPacket::Records(records) => return Some(records),
                SrvPacket::Truncated => return ask_by_tcp(server, &question, id, domain).await,
                SrvPacket::Failed => return None,
                SrvPacket::Foreign => {}
            }
        }
    };
    let asking_again = async {
        for pause in again_after {
            tokio::time::sleep(pause).await;
            // What fails here counts as lost, too.
            let _ = socket.send(&question).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        answer = answering => answer,
        () = asking_again => None,
    }
}

/// A random number from 0 to 1. Without random numbers any order of the servers is as good.
fn random_share() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

async fn ask_by_tcp(
    server: SocketAddr,
    question: &[u8],
    id: u16,
    domain: &str,
) -> Option<Vec<SrvRecord>> {
    let mut stream = TcpStream::connect(server).await.ok()?;
    let length = u16::try_from(question.len()).ok()?;
    let framed = [&length.to_be_bytes(), question].concat();
    stream.write_all(&framed).await.ok()?;
    let length = stream.read_u16().await.ok()?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.ok()?;
    match records_of(&answer, id, domain) {
        SrvPacket::Records(records) => Some(records),
        _ => None,
    }
}

fn name_of(domain: &str) -> String {
    format!("_xmpp-client._tcp.{domain}")
}

/// A question that nobody can foresee.
fn question(domain: &str) -> Option<(u16, Vec<u8>)> {
    let id = (getrandom::u32().ok()? & 0xffff) as u16;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = name_of(domain);
    let name = Name::new(&name).ok()?;
    let question = Question::new(name, TYPE::SRV.into(), CLASS::IN.into(), false);
    packet.questions.push(question);
    Some((id, packet.build_bytes_vec().ok()?))
}

/// What a packet is.
#[derive(Debug, PartialEq, Eq)]
enum SrvPacket {
    Records(Vec<SrvRecord>),
    Truncated,
    /// The server can't answer.
    Failed,
    /// It is no answer to the question.
    Foreign,
}

fn records_of(bytes: &[u8], id: u16, domain: &str) -> SrvPacket {
    let Ok(packet) = Packet::parse(bytes) else {
        return SrvPacket::Foreign;
    };
    let wanted = name_of(domain);
    let is_wanted = |name: &Name<'_>| name.to_string().eq_ignore_ascii_case(&wanted);
    let is_answer = packet.id() == id && packet.has_flags(PacketFlag::RESPONSE);
    if !is_answer
        || !packet
            .questions
            .iter()
            .all(|question| is_wanted(&question.qname))
    {
        return SrvPacket::Foreign;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return SrvPacket::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError | RCODE::NameError => {}
        _ => return SrvPacket::Failed,
    }
    let owner = owner_of(&packet, wanted);
    let is_owner = |name: &Name<'_>| name.to_string().eq_ignore_ascii_case(&owner);
    let records = packet
        .answers
        .iter()
        .filter_map(|record| match &record.rdata {
            RData::SRV(found) if is_owner(&record.name) => Some(SrvRecord {
                priority: found.priority,
                weight: found.weight,
                address: ServerAddress {
                    host: found.target.to_string(),
                    port: found.port,
                },
            }),
            _ => None,
        });
    SrvPacket::Records(records.collect())
}

/// The name that has the records: the one that was asked for, or what it is an alias of.
fn owner_of(packet: &Packet<'_>, wanted: String) -> String {
    let mut owner = wanted;
    for _ in 0..MOST_ALIASES {
        let mut answers = packet.answers.iter();
        let alias = answers.find_map(|record| match &record.rdata {
            RData::CNAME(other) if record.name.to_string().eq_ignore_ascii_case(&owner) => {
                Some(other.0.to_string())
            }
            _ => None,
        });
        match alias {
            Some(alias) => owner = alias,
            None => break,
        }
    }
    owner
}

/// The addresses in the order in which they are tried: by priority, and among those of one priority by chance according to their
/// weights. `spread`: a number from 0 to 1.
fn ordered(mut records: Vec<SrvRecord>, spread: impl Fn() -> f64) -> Vec<ServerAddress> {
    let mut addresses = Vec::new();
    while let Some(first) = records.iter().map(|record| record.priority).min() {
        let (mut equal, others): (Vec<_>, Vec<_>) = records
            .into_iter()
            .partition(|record| record.priority == first);
        records = others;
        while !equal.is_empty() {
            let weights = equal.iter().map(|record| f64::from(record.weight) + 0.1);
            let mut left = weights.sum::<f64>() * spread();
            let chosen = equal.iter().position(|record| {
                left -= f64::from(record.weight) + 0.1;
                left <= 0.0
            });
            addresses.push(equal.swap_remove(chosen.unwrap_or(0)).address);
        }
    }
    // "." states that there is no server.
    addresses.retain(|address| !address.host.trim_end_matches('.').is_empty());
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

#[cfg(test)]
mod tests {
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{CNAME, SRV};

    use super::*;

    fn record(priority: u16, weight: u16, host: &str) -> SrvRecord {
        SrvRecord {
            priority,
            weight,
            address: ServerAddress {
                host: host.to_owned(),
                port: 5222,
            },
        }
    }

    /// An answer to a question, with this record.
    fn answer(question: &[u8], target: &str) -> Packet<'static> {
        let asked = Packet::parse(question).unwrap();
        let mut packet = Packet::new_reply(asked.id());
        let question = asked.questions[0].clone().into_owned();
        let data = SRV {
            priority: 1,
            weight: 2,
            port: 5269,
            target: Name::new(target).unwrap().into_owned(),
        };
        let name = question.qname.clone();
        packet.questions.push(question);
        let data = RData::SRV(data);
        packet
            .answers
            .push(ResourceRecord::new(name, CLASS::IN, 60, data));
        packet
    }

    #[tokio::test]
    async fn records_are_asked_of_a_name_server() {
        let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let again_after = [Duration::ZERO; 2];
        let serving = async {
            let mut question = [0; 512];
            let (length, from) = server.recv_from(&mut question).await.unwrap();
            let question = &question[..length];
            // The question may be lost, and its repetition.
            for _ in again_after {
                server.recv_from(&mut [0; 512]).await.unwrap();
            }
            // What is no answer to the question counts for nothing.
            server.send_to(b"no DNS", from).await.unwrap();
            let mut other = answer(question, "evil.example.org");
            other.set_id(other.id().wrapping_add(1));
            let other = other.build_bytes_vec().unwrap();
            server.send_to(&other, from).await.unwrap();
            let right = answer(question, "xmpp.example.org").build_bytes_vec();
            server.send_to(&right.unwrap(), from).await.unwrap();
        };
        let asking = ask(address, "example.org", again_after);
        let both = async { tokio::join!(asking, serving) };
        // The limit only ends a test that would hang.
        let both = tokio::time::timeout(Duration::from_secs(180), both);
        let (found, ()) = both.await.expect("the question is not repeated");
        let expected = SrvRecord {
            priority: 1,
            weight: 2,
            address: ServerAddress {
                host: "xmpp.example.org".to_owned(),
                port: 5269,
            },
        };
        assert_eq!(found.unwrap(), [expected]);
    }

    #[test]
    fn addresses_are_ordered_by_priority_and_chance() {
        let records = || {
            vec![
                record(20, 0, "later"),
                record(10, 10, "a"),
                record(10, 30, "b"),
            ]
        };
        for (spread, expected) in [(0.0, ["a", "b", "later"]), (0.9, ["b", "a", "later"])] {
            let addresses = ordered(records(), || spread);
            let hosts: Vec<&str> = addresses
                .iter()
                .map(|address| address.host.as_str())
                .collect();
            assert_eq!(hosts, expected);
        }
        // The most important ones are left, wherever they stand.
        let mut many: Vec<SrvRecord> = (0..20).map(|_| record(9, 0, "last")).collect();
        many.push(record(1, 0, "first"));
        let addresses = ordered(many, || 0.5);
        assert_eq!(addresses[0].host, "first");
        assert_eq!(addresses.len(), MOST_ADDRESSES);
        assert_eq!(ordered(vec![record(0, 0, ".")], || 0.5), []);
        assert_eq!(ordered(vec![record(0, 0, "")], || 0.5), []);
    }

    #[test]
    fn records_of_an_alias_count_and_those_of_another_name_do_not() {
        let (id, question) = question("example.org").unwrap();
        let of_other = |alias: Option<&'static str>| {
            let mut packet = answer(&question, "xmpp.example.net");
            packet.answers[0].name = Name::new("other.example.net").unwrap();
            if let Some(alias) = alias {
                let name = Name::new("_xmpp-client._tcp.EXAMPLE.org").unwrap();
                let data = RData::CNAME(CNAME(Name::new(alias).unwrap()));
                let record = ResourceRecord::new(name.into_owned(), CLASS::IN, 60, data);
                packet.answers.push(record);
            }
            records_of(&packet.build_bytes_vec().unwrap(), id, "example.org")
        };
        for (alias, expected) in [
            (None, 0),
            (Some("other.example.net"), 1),
            (Some("third.example.net"), 0),
            // A circle.
            (Some("_xmpp-client._tcp.example.org"), 0),
        ] {
            let SrvPacket::Records(records) = of_other(alias) else {
                panic!("{alias:?}");
            };
            assert_eq!(records.len(), expected, "{alias:?}");
        }
    }

    #[test]
    fn name_servers_are_those_of_the_system() {
        let text = "# c\nsearch example.org\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver\t::1 # local\n";
        let found: Vec<String> = name_servers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[::1]:53"]);
    }

    #[tokio::test]
    async fn name_without_domain_is_its_own_address() {
        for domain in ["localhost", "127.0.0.1", "::1"] {
            let expected = ServerAddress {
                host: domain.to_owned(),
                port: 5222,
            };
            assert_eq!(addresses_of(domain).await, [expected]);
        }
    }
}
