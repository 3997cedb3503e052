//! What the Source and the hub share: the listener, the HTTP client, and the links of a channel.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::serve::ListenerExt;
use reqwest::redirect::Policy;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::SampleError;

/// The longest request body that is read, in bytes: a notification that a Source submits.
const MAX_REQUEST_BODY: usize = 256 << 20;

/// A bound listener that is not served yet, so that documents can contain its address.
pub(super) struct SampleListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// Binds an address; port 0 chooses a free one.
pub(super) async fn bind(address: SocketAddr) -> Result<SampleListener, SampleError> {
    let listening = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(SampleListener { listener, address })
    };
    listening
        .await
        .map_err(|error| SampleError::Listen { address, error })
}

impl SampleListener {
    /// The bound address.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the last copy of the guard is dropped.
    pub(super) fn serve(self, router: Router) -> Arc<DropGuard> {
        let stop = CancellationToken::new();
        let listener = self.listener.tap_io(|stream| {
            // Otherwise a notification waits for the acknowledgement of the previous packet.
            let _ = stream.set_nodelay(true);
        });
        let router = router.layer(DefaultBodyLimit::max(MAX_REQUEST_BODY));
        let stopped = stop.clone().cancelled_owned();
        tokio::spawn(async move {
            let serving = axum::serve(listener, router).with_graceful_shutdown(stopped);
            if let Err(error) = serving.await {
                tracing::warn!(%error, "sample server failed");
            }
        });
        Arc::new(stop.drop_guard())
    }
}

/// A plain HTTP client without proxy, redirects and certificate authorities: all requests stay on this machine.
pub(super) fn client(timeout: Duration) -> Result<reqwest::Client, SampleError> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| SampleError::Client(error.to_string()))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(Policy::none())
        .timeout(timeout)
        .build()
        .map_err(|error| SampleError::Client(error.to_string()))
}

/// The value of the Link header of a topic and of what is sent on it (Change Notification, section 4.1).
pub(super) fn channel_links(topic: &str, hub: &str) -> String {
    format!("<{topic}>; rel=\"self\", <{hub}>; rel=\"hub\"")
}
