//! A server that does what a test tells it, on loopback.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

use crate::support::soon;
use crate::support::xmpp_end::{SM, XmppEnd};
use crate::xmpp::prosody::PASSWORD;

/// A connection. It ends when it is dropped.
pub(crate) type Session = XmppEnd<TcpStream>;

/// The server.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    /// The same socket. It does not block, and needs no event of the runtime to see what has come.
    backlog: std::net::TcpListener,
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let backlog = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        backlog.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(backlog.try_clone().unwrap()).unwrap();
        Self {
            address: backlog.local_addr().unwrap(),
            listener,
            backlog,
        }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> Session {
        let accepted = soon("a connection", self.listener.accept()).await;
        XmppEnd::over(accepted.unwrap().0, "localhost")
    }

    /// The next connection, logged in. The server offers these features.
    pub(crate) async fn log_in(&self, features: &str) -> Session {
        let mut session = self.accept().await;
        session.log_in(PASSWORD, features).await;
        session
    }

    /// The next connection, which has subscribed to the node and asked for the newest items.
    pub(crate) async fn subscribed(&self, features: &str, newest: &str) -> Session {
        let mut session = self.log_in(features).await;
        session.bind().await;
        if features == SM {
            session.manage().await;
        }
        session.subscribe().await;
        let id = session.request("max_items='50'").await;
        session.answer(&id, newest).await;
        session
    }

    /// Ends each connection at once until something has happened, also those that have come by then and were not accepted.
    pub(crate) async fn refusing<T>(&self, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        let done = loop {
            tokio::select! {
                done = &mut until => break done,
                _ = self.listener.accept() => {}
            }
        };
        while self.backlog.accept().is_ok() {}
        done
    }
}
