//! A server that is not ours, and a client that publishes with it.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::xmpp_end::{PUBSUB, XmppEnd};
use crate::support::{eventually, free_address, soon};

/// The password of every account.
pub(crate) const PASSWORD: &str = "pencil and paper";

/// The server, for as long as the test runs. Its data survive a restart.
pub(crate) struct Prosody {
    pub(crate) address: SocketAddr,
    folder: TempDir,
    process: Option<Child>,
}

impl Prosody {
    /// Starts it; `None`: it is not installed.
    #[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
    pub(crate) async fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join("prosody").is_file()) {
            let is_needed = std::env::var_os("RESYNCD_NEEDS_PROSODY").is_some();
            assert!(!is_needed, "prosody is not installed (apt install prosody)");
            println!("SKIPPED: prosody is not installed");
            return None;
        }
        let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
        let path = folder.path().display().to_string();
        let port = address.port();
        let config = format!(
            r#"
            run_as_root = true
            pidfile = "{path}/prosody.pid"
            data_path = "{path}/data"
            certificates = "{path}"
            log = {{ info = "{path}/log" }}
            interfaces = {{ "127.0.0.1" }}
            c2s_ports = {{ {port} }}
            modules_enabled = {{ "roster", "saslauth", "disco", "ping", "smacks" }}
            modules_disabled = {{ "s2s" }}
            c2s_require_encryption = false
            allow_unencrypted_plain_auth = true
            authentication = "internal_plain"
            VirtualHost "localhost"
            Component "pubsub.localhost" "pubsub"
                admins = {{ "publisher@localhost" }}
            "#
        );
        fs::write(folder.path().join("prosody.cfg.lua"), config).unwrap();
        let accounts = folder.path().join("data/localhost/accounts");
        fs::create_dir_all(&accounts).unwrap();
        for user in ["publisher", "resyncd", "evil"] {
            let account = format!("return {{ [\"password\"] = \"{PASSWORD}\"; }};\n");
            fs::write(accounts.join(format!("{user}.dat")), account).unwrap();
        }
        let mut server = Self {
            address,
            folder,
            process: None,
        };
        server.start_again().await;
        Some(server)
    }

    pub(crate) async fn start_again(&mut self) {
        let config = self.folder.path().join("prosody.cfg.lua");
        let process = Command::new("prosody")
            .args(["--config".as_ref(), config.as_os_str(), "-F".as_ref()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(process.unwrap());
        let (address, log) = (self.address, self.folder.path().join("log"));
        eventually(
            "prosody accepts connections",
            None,
            async || match TcpStream::connect(address).await {
                Ok(_) => Ok(()),
                Err(error) => {
                    let log = fs::read_to_string(&log).unwrap_or_default();
                    Err(format!("{error}: {log}"))
                }
            },
        )
        .await;
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// A client of this user.
    pub(crate) async fn client(&self, user: &str) -> Publisher {
        soon("logged in", Publisher::log_in(self.address, user)).await
    }
}

impl Drop for Prosody {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A client that knows just enough to publish.
pub(crate) struct Publisher {
    end: XmppEnd<TcpStream>,
    requests: u32,
}

impl Publisher {
    async fn log_in(address: SocketAddr, user: &str) -> Self {
        use base64::Engine as _;
        let plain = format!("\0{user}\0{PASSWORD}");
        let plain = base64::engine::general_purpose::STANDARD.encode(plain);
        let mut client = Self {
            end: XmppEnd::over(TcpStream::connect(address).await.unwrap(), "localhost"),
            requests: 0,
        };
        client.begin().await;
        client
            .send(&format!(
                "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>"
            ))
            .await;
        client.end.until("<success").await;
        client.end.until(">").await;
        client.begin().await;
        client
            .request(
                "",
                "set",
                "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>",
            )
            .await;
        client
    }

    async fn begin(&mut self) {
        self.send(
            "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'>",
        )
        .await;
        self.end.until("</stream:features>").await;
    }

    pub(crate) async fn send(&mut self, text: &str) {
        assert!(self.end.send(text).await, "the server has gone");
    }

    /// Sends a request and returns the answer.
    pub(crate) async fn request(&mut self, to: &str, kind: &str, content: &str) -> String {
        self.requests += 1;
        let (id, to) = (
            self.requests,
            if to.is_empty() {
                String::new()
            } else {
                format!(" to='{to}'")
            },
        );
        self.send(&format!("<iq type='{kind}' id='q{id}'{to}>{content}</iq>"))
            .await;
        // Answers have no elements of that name inside; an empty one ends at once.
        let before = self.end.until("<iq ").await;
        let tag = self.end.until(">").await;
        assert!(tag.contains(&format!("q{id}")), "{before}{tag}");
        if tag.ends_with("/>") {
            return tag;
        }
        tag + &self.end.until("</iq>").await
    }

    /// Makes a node that retains so many items.
    pub(crate) async fn create(&mut self, node: &str, items: u32) {
        let field =
            |name: &str, value: &str| format!("<field var='{name}'><value>{value}</value></field>");
        let fields = [
            field("FORM_TYPE", "http://jabber.org/protocol/pubsub#node_config"),
            field("pubsub#persist_items", "1"),
            field("pubsub#max_items", &items.to_string()),
        ];
        let answer = self
            .request(
                "pubsub.localhost",
                "set",
                &format!(
                    "<pubsub xmlns='{PUBSUB}'><create node='{node}'/><configure><x xmlns='jabber:x:data' type='submit'>{}</x></configure></pubsub>",
                    fields.concat()
                ),
            )
            .await;
        assert!(answer.contains("result"), "{answer}");
    }

    /// Publishes an item.
    pub(crate) async fn publish(&mut self, node: &str, id: &str, document: &str) {
        let form = format!("<publish node='{node}'><item id='{id}'>{document}</item></publish>");
        let answer = self
            .request(
                "pubsub.localhost",
                "set",
                &format!("<pubsub xmlns='{PUBSUB}'>{form}</pubsub>"),
            )
            .await;
        assert!(answer.contains("result"), "{answer}");
    }

    /// The subscriptions of a node, as the owner sees them.
    pub(crate) async fn subscriptions(&mut self, node: &str) -> String {
        let form =
            format!("<pubsub xmlns='{PUBSUB}#owner'><subscriptions node='{node}'/></pubsub>");
        self.request("pubsub.localhost", "get", &form).await
    }
}
