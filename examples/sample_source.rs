//! The sample Source as a program, with an external hub. Scripts change it by control requests.
//!
//! | request | what it does |
//! |---|---|
//! | `POST /control/create?name=N` | creates a resource; the request's body is its content |
//! | `POST /control/update?name=N` | replaces its content by the request's body |
//! | `POST /control/delete?name=N` | deletes it |
//! | `POST /control/publish` | makes the notification of these changes and pings the hub |
//!
//! It prints two lines, `source URL` and `control URL`, when it is ready.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use clap::Parser;
use resyncd_core::HubUri;
use resyncd_testkit::{ChannelHub, SampleOptions, SampleSource, Submission};
use serde::Deserialize;
use tokio::net::TcpListener;

const SET: &str = "set1";

/// A sample ResourceSync Source that is changed over HTTP and pings an external hub.
#[derive(Parser)]
struct Arguments {
    /// Address of the Source; port 0 chooses a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address for the control requests.
    #[arg(long, default_value = "127.0.0.1:0")]
    control: SocketAddr,
    /// The hub of its channels; it is pinged with hub.mode=publish to fetch the topic.
    #[arg(long)]
    hub: Option<String>,
    /// Number of resources at the start.
    #[arg(long, default_value_t = 10)]
    set_size: usize,
    /// Adds resources with related ones, and a metadata record.
    #[arg(long)]
    related: bool,
    /// Length of each resource, in bytes.
    #[arg(long, default_value_t = 1000)]
    resource_size: usize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let hub = match &arguments.hub {
        Some(hub) => ChannelHub::External {
            hub: HubUri::parse(hub)?,
            submission: Submission::Ping,
        },
        None => ChannelHub::None,
    };
    let source = SampleSource::start(SampleOptions {
        listen: arguments.listen,
        sets: vec![SET.to_owned()],
        resources_per_set: arguments.set_size,
        resource_size: arguments.resource_size,
        metadata: arguments.related,
        related: arguments.related,
        hub,
        ..SampleOptions::default()
    })
    .await?;
    let listener = TcpListener::bind(arguments.control).await?;
    announce(&source, listener.local_addr()?);
    axum::serve(listener, control(source)).await?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "scripts read the addresses")]
fn announce(source: &SampleSource, control: SocketAddr) {
    println!("source {}", source.url());
    println!("control http://{control}/control");
}

fn control(source: SampleSource) -> Router {
    Router::new()
        .route("/control/create", post(create))
        .route("/control/update", post(update))
        .route("/control/delete", post(delete))
        .route("/control/publish", post(publish))
        .with_state(source)
}

/// The resource of a request.
#[derive(Deserialize)]
struct ResourceName {
    name: String,
}

async fn create(
    State(source): State<SampleSource>,
    Query(query): Query<ResourceName>,
    body: Bytes,
) {
    source.create(SET, &query.name, body);
}

async fn update(
    State(source): State<SampleSource>,
    Query(query): Query<ResourceName>,
    body: Bytes,
) {
    source.update(SET, &query.name, body);
}

async fn delete(State(source): State<SampleSource>, Query(query): Query<ResourceName>) {
    source.delete(SET, &query.name);
}

async fn publish(State(source): State<SampleSource>) -> (StatusCode, String) {
    match source.notify_and_publish(SET).await {
        Ok(notification) => (
            StatusCode::OK,
            format!("{} changes\n", notification.entries),
        ),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error}\n")),
    }
}
