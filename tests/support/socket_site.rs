//! A Source that serves documents and WebSockets at one address.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use resyncd::status::{ChannelStatus, SetStatus};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};
use url::Url;

use crate::support::site::{NAMESPACES, entry, urlset};
use crate::support::{Destination, soon};

/// The path of the channel for change notifications.
pub(crate) const CHANGES: &str = "/channels/change_notification_channel";
/// The path of the Source Description.
pub(crate) const DESCRIPTION: &str = "/.well-known/resourcesync";
/// The path of the channel for framework notifications.
pub(crate) const FRAMEWORK: &str = "/channels/framework_notification_channel";

/// A connection that was opened.
struct Open {
    path: String,
    authorization: Option<String>,
    messages: mpsc::UnboundedSender<Message>,
}

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, String>>,
    connections: Mutex<Vec<Open>>,
    /// The path and the `Authorization` of every request for a page.
    requests: Mutex<Vec<(String, Option<String>)>>,
    /// How many connections were opened, and how many of them have ended.
    counts: watch::Sender<(usize, usize)>,
    refuses: Mutex<bool>,
    /// The page that is not answered.
    held: watch::Sender<Option<&'static str>>,
}

/// The site, until it is dropped.
pub(crate) struct SocketSite {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl SocketSite {
    /// A site without pages.
    pub(crate) async fn start(host: Ipv4Addr) -> Self {
        Self::start_with(host, None).await
    }

    /// The same behind TLS.
    pub(crate) async fn start_with(host: Ipv4Addr, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, tls) = (Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(&shared, stream).await,
                        Some(tls) => {
                            // The client may not trust its certificate.
                            if let Ok(stream) = tls.accept(stream).await {
                                serve_socket(&shared, stream).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            shared,
            server,
        }
    }

    /// A Source of one set with these resources and both channels. Each resource is its own name, and changes are stated by nothing
    /// but notifications.
    pub(crate) async fn of(names: &[&str]) -> Self {
        let site = Self::start(Ipv4Addr::LOCALHOST).await;
        let channels = [
            (CHANGES, "change-notification"),
            (FRAMEWORK, "framework-notification"),
        ];
        let channels = channels.map(|(path, kind)| (site.socket(path), kind));
        site.offer(&[], &channels);
        for name in names {
            site.put(name, &name[1..]);
        }
        site.list(names);
        site
    }

    /// Writes the Source Description, and a Capability List of the Resource List, these documents and these channels.
    pub(crate) fn offer(&self, documents: &[(&str, &str)], channels: &[(String, &str)]) {
        let capability = |kind: &str| format!(r#"<rs:md capability="{kind}"/>"#);
        let list = entry(&self.url("/caps.xml"), &capability("capabilitylist"));
        self.put(DESCRIPTION, &urlset("description", "", &list));
        let documents = documents.iter().chain(&[("/list.xml", "resourcelist")]);
        let documents = documents.map(|(path, kind)| entry(&self.url(path), &capability(kind)));
        let channels = channels
            .iter()
            .map(|(uri, kind)| entry(uri, &capability(kind)));
        let offers: String = documents.chain(channels).collect();
        self.put("/caps.xml", &urlset("capabilitylist", "", &offers));
    }

    /// Writes the Resource List.
    pub(crate) fn list(&self, names: &[&str]) {
        let lastmod = "<lastmod>2023-01-01T00:00:00Z</lastmod>";
        let entries: String = names
            .iter()
            .map(|name| entry(&self.url(name), lastmod))
            .collect();
        self.put("/list.xml", &urlset("resourcelist", "", &entries));
    }

    /// Writes a Change List of these changes: path, kind and time of 2024.
    pub(crate) fn list_changes(&self, changes: &[(&str, &str, &str)]) {
        let entries: String = changes
            .iter()
            .map(|(path, kind, time)| self.change(path, kind, time))
            .collect();
        self.put("/changes.xml", &urlset("changelist", "", &entries));
    }

    /// An entry of a change, as in example 4.1.
    pub(crate) fn change(&self, path: &str, kind: &str, time: &str) -> String {
        let md = format!("<lastmod>2024-{time}Z</lastmod><rs:md change=\"{kind}\"/>");
        entry(&self.url(path), &md)
    }

    /// A framework notification of a document of that kind.
    pub(crate) fn framework(&self, path: &str, kind: &str) -> String {
        let md = format!("<rs:md change=\"updated\" capability=\"{kind}\"/>");
        self.notification(&entry(&self.url(path), &md))
    }

    /// A notification of these entries: nothing states what it is, as in example 4.1.
    pub(crate) fn notification(&self, entries: &str) -> String {
        let up = self.url("/caps.xml");
        format!("<urlset {NAMESPACES}><rs:ln rel=\"up\" href=\"{up}\"/>{entries}</urlset>")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The URI of a WebSocket.
    pub(crate) fn socket(&self, path: &str) -> String {
        format!("ws://{}{path}", self.address)
    }

    pub(crate) fn put(&self, path: &str, body: &str) {
        let mut pages = self.shared.pages.lock().unwrap();
        pages.insert(path.to_owned(), body.to_owned());
    }

    pub(crate) fn remove(&self, path: &str) {
        self.shared.pages.lock().unwrap().remove(path);
    }

    /// Lets requests for a page wait, until it is `None` or another one.
    pub(crate) fn hold(&self, path: Option<&'static str>) {
        self.shared.held.send_replace(path);
    }

    /// Whether to answer requests for WebSockets with 403.
    pub(crate) fn refuse(&self, refuses: bool) {
        *self.shared.refuses.lock().unwrap() = refuses;
    }

    /// Sends a message over every connection to a path.
    pub(crate) fn send(&self, path: &str, message: impl Into<Message>) {
        let message = message.into();
        let connections = self.shared.connections.lock().unwrap();
        let mut sent = false;
        for open in connections.iter().filter(|open| open.path == path) {
            sent |= open.messages.send(message.clone()).is_ok();
        }
        assert!(sent, "there is a connection to {path}");
    }

    /// Ends every connection without a word.
    pub(crate) fn drop_connections(&self) {
        self.shared.connections.lock().unwrap().clear();
    }

    /// Waits until so many connections were opened since the start.
    pub(crate) async fn until_opened(&self, number: usize) {
        let mut counts = self.shared.counts.subscribe();
        let opened = counts.wait_for(|(opened, _)| *opened >= number);
        soon("connections are opened", opened).await.unwrap();
    }

    /// Waits until every connection has ended.
    pub(crate) async fn until_ended(&self) {
        let mut counts = self.shared.counts.subscribe();
        let ended = counts.wait_for(|(opened, ended)| opened == ended);
        soon("connections have ended", ended).await.unwrap();
    }

    /// How many connections were opened since the start.
    pub(crate) fn opened(&self) -> usize {
        self.shared.counts.borrow().0
    }

    /// The `Authorization` of the open connections to a path.
    pub(crate) fn authorizations_of(&self, path: &str) -> Vec<Option<String>> {
        let connections = self.shared.connections.lock().unwrap();
        let of_path = connections.iter().filter(|open| open.path == path);
        of_path.map(|open| open.authorization.clone()).collect()
    }

    /// The `Authorization` of every request for a page.
    pub(crate) fn authorizations(&self) -> Vec<Option<String>> {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().map(|(_, header)| header.clone()).collect()
    }

    /// How often a page was requested.
    pub(crate) fn requests_of(&self, path: &str) -> usize {
        let requests = self.shared.requests.lock().unwrap();
        requests.iter().filter(|(of, _)| of == path).count()
    }
}

impl Drop for SocketSite {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers one request.
async fn serve(shared: &Arc<Shared>, mut stream: TcpStream) {
    let head = head_of(&stream).await;
    let lower = head.to_ascii_lowercase();
    if lower.contains("upgrade: websocket") {
        return serve_socket(shared, stream).await;
    }
    let mut read = vec![0; head.len()];
    stream.read_exact(&mut read).await.unwrap();
    let authorization = lower
        .lines()
        .find_map(|line| line.strip_prefix("authorization: "));
    let authorization = authorization.map(str::to_owned);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let request = (path.to_owned(), authorization);
    shared.requests.lock().unwrap().push(request);
    let mut held = shared.held.subscribe();
    held.wait_for(|held| *held != Some(path)).await.unwrap();
    let page = shared.pages.lock().unwrap().get(path).cloned();
    let (status, body) = match page {
        Some(page) => ("200 OK", page),
        None => ("404 Not Found", String::new()),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // The client may be gone.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The head of a request, which is not taken from the stream.
async fn head_of(stream: &TcpStream) -> String {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let length = stream.peek(&mut bytes).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        match text.find("\r\n\r\n") {
            Some(end) => return text[..end + 4].to_owned(),
            None if length == 0 => return String::new(),
            None => tokio::task::yield_now().await,
        }
    }
}

#[allow(clippy::result_large_err, reason = "the crate's type")]
async fn serve_socket<S: AsyncRead + AsyncWrite + Unpin>(shared: &Arc<Shared>, stream: S) {
    let (messages, received) = mpsc::unbounded_channel();
    let refuses = *shared.refuses.lock().unwrap();
    let accepting = accept_hdr_async(stream, |request: &Request, response: Response| {
        if refuses {
            let mut refusal = ErrorResponse::new(None);
            *refusal.status_mut() = 403.try_into().unwrap();
            return Err(refusal);
        }
        // Before the answer: to the client the connection is open as soon as that comes.
        let header = request.headers().get("authorization");
        shared.connections.lock().unwrap().push(Open {
            path: request.uri().path().to_owned(),
            authorization: header.map(|header| header.to_str().unwrap().to_owned()),
            messages,
        });
        shared.counts.send_modify(|(opened, _)| *opened += 1);
        Ok(response)
    });
    let accepted = accepting.await;
    if refuses {
        return;
    }
    if let Ok(socket) = accepted {
        send_all(socket, received).await;
    }
    shared.counts.send_modify(|(_, ended)| *ended += 1);
}

/// Sends messages, and reads what comes, until either side ends the connection.
async fn send_all<S: AsyncRead + AsyncWrite + Unpin>(
    socket: WebSocketStream<S>,
    mut messages: mpsc::UnboundedReceiver<Message>,
) {
    use futures_util::{SinkExt, StreamExt};
    let (mut sink, mut stream) = socket.split();
    let sending = async {
        while let Some(message) = messages.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
    };
    let reading = async { while let Some(Ok(_)) = stream.next().await {} };
    tokio::select! {
        () = sending => {}
        () = reading => {}
    }
}

/// A daemon that follows such a site.
pub(crate) struct Follower {
    pub(crate) site: SocketSite,
    pub(crate) destination: Destination,
}

impl Follower {
    pub(crate) async fn start(site: SocketSite) -> Self {
        Self::start_with(site, |_| {}).await
    }

    pub(crate) async fn start_with(
        site: SocketSite,
        change: impl FnOnce(&mut resyncd::config::Config),
    ) -> Self {
        let url = Url::parse(&site.url("/")).unwrap();
        let destination = Destination::start(url, change).await;
        Self { site, destination }
    }

    /// Waits until the status of the set satisfies a condition.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&SetStatus) -> bool) -> SetStatus {
        self.destination.until(what, wanted).await
    }

    /// Waits until the channel for change notifications satisfies a condition.
    pub(crate) async fn until_channel(
        &self,
        what: &str,
        wanted: impl Fn(&ChannelStatus) -> bool,
    ) -> ChannelStatus {
        let set = self.until(what, |set| changes_of(set).is_some_and(&wanted));
        changes_of(&set.await).unwrap().clone()
    }

    /// Waits until the set is in sync, and so many channels are active.
    pub(crate) async fn settled(&self, channels: usize) {
        self.until("in sync, with active channels", |set| {
            let active = set.channels.iter().filter(|it| it.state == "active");
            set.state == "in-sync" && active.count() == channels
        })
        .await;
    }

    /// Waits until the mirror has exactly these files.
    pub(crate) async fn until_mirrored(&self, expected: &[(&str, &str)]) {
        let host = self.site.address.to_string();
        self.destination.until_mirrored(&host, expected).await;
    }
}

fn changes_of(set: &SetStatus) -> Option<&ChannelStatus> {
    let mut channels = set.channels.iter();
    channels.find(|channel| channel.kind == "change-notification")
}
