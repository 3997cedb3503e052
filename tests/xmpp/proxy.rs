//! What is between the daemon and the server, and cuts them off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes on connections, for as long as the test runs.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    cuts: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    refused: AtomicU32,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let (cuts, cut) = watch::channel(());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.is_cut.load(SeqCst) {
                    shared.refused.fetch_add(1, SeqCst);
                    continue;
                }
                tokio::spawn(pass_on(client, server, cut.clone()));
            }
        });
        Self {
            address,
            state,
            cuts,
        }
    }

    /// Ends the connections, and refuses others.
    pub(crate) fn cut(&self) {
        self.state.is_cut.store(true, SeqCst);
        self.cuts.send_replace(());
    }

    pub(crate) fn mend(&self) {
        self.state.is_cut.store(false, SeqCst);
    }

    /// How many connections were refused.
    pub(crate) fn refused(&self) -> u32 {
        self.state.refused.load(SeqCst)
    }
}

async fn pass_on(mut client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<()>) {
    cut.mark_unchanged();
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.changed() => {}
    }
}
