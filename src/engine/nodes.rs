//! What this node asks of the others that work on one database: the status of what they follow, and what an operator requests of them.
//!
//! A request goes through the database, and is answered there: nodes need not reach each other. It is one to the status listener of the
//! other node, without its guards, as the one that has received it has checked the caller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::attention;
use super::lifecycle::Engine;
use super::operations::store_failed;
use super::status_view::MOST_HOSTS;
use crate::clock;
use crate::status::{SourceStatus, Status, StatusError, rfc3339};
use crate::store::{Holder, Store, StoreError};

/// How long another node may take to state its status.
const STATUS_TIME: Duration = Duration::from_secs(5);

/// The nodes that follow Sources, by the names of these.
type Holders = BTreeMap<String, Holder>;

/// A request to another node.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeRequest {
    /// The method of HTTP.
    pub method: String,
    /// The path with its query.
    pub uri: String,
    /// Some of its headers.
    pub headers: Vec<(String, String)>,
}

/// Its answer.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// The status of HTTP.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
}

/// Has another node answer a request.
///
/// # Errors
/// [`StoreError::NoAnswer`] after that time; an error of the database.
pub async fn ask_node(
    store: &Arc<Store>,
    node: &Holder,
    request: &NodeRequest,
    limit: Duration,
) -> Result<NodeAnswer, StoreError> {
    let no_answer = |_| StoreError::NoAnswer(node.name.clone());
    let request = serde_json::to_string(request).map_err(no_answer)?;
    let answer = store.ask(node, request, limit).await?;
    serde_json::from_str(&answer).map_err(no_answer)
}

impl Engine {
    /// The current status: of what other nodes follow as they state it. What one that does not answer follows is shown as far as the
    /// database has it.
    pub async fn status(&self) -> Result<Status, StatusError> {
        let (mut status, holders) = self.status_with_holders(|_| true).await?;
        let missing = self.join_status(&mut status, &holders, "").await;
        let now = clock::now().wall;
        let missing = missing.iter().map(|node| attention::of_node(node, now));
        status.attention.extend(missing);
        Ok(status)
    }

    /// The status of what this node follows. `is_short`: of that, what fails or waits for a person.
    pub async fn own_status(&self, is_short: bool) -> Result<Status, StatusError> {
        let (mut status, _) = self.status_with_holders(|name| self.held.has(name)).await?;
        if is_short {
            retain_notable(&mut status);
        }
        Ok(status)
    }

    /// What fails or waits for a person, of all Sources; `None`: it is not known of all, as nodes come or go.
    pub(super) async fn notable_status(&self) -> Result<Option<Status>, StatusError> {
        let own = |name: &str| self.held.has(name);
        let (mut status, holders) = self.status_with_holders(own).await?;
        retain_notable(&mut status);
        let missing = self
            .join_status(&mut status, &holders, "&notable=true")
            .await;
        let contexts = self.sources.contexts();
        let is_followed = |name: &str| self.held.has(name) || holders.contains_key(name);
        let is_whole = missing.is_empty() && contexts.iter().all(|it| is_followed(it.name()));
        Ok(is_whole.then_some(status))
    }

    async fn status_with_holders(
        &self,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(Status, Holders), StatusError> {
        let status = self.status_of(is_wanted).await;
        let mut status = status.map_err(|error| error.status_error())?;
        let holders = self.store.holders().await.map_err(store_failed)?;
        let now = clock::now().wall;
        for source in &mut status.sources {
            if let Some(holder) = holders.get(&source.name) {
                source.node = Some(holder.name.clone());
                source.node_since = Some(rfc3339(now - holder.age));
            }
        }
        Ok((status, holders))
    }

    /// Replaces what other nodes follow by what they state, and adds what of them waits for a person. Returns those that do not answer.
    async fn join_status(
        &self,
        status: &mut Status,
        holders: &Holders,
        query: &str,
    ) -> BTreeSet<String> {
        let others = holders.values().filter(|holder| !holder.is_own);
        let others: BTreeMap<&str, &Holder> = others.map(|it| (&*it.id, it)).collect();
        let request = NodeRequest {
            method: "GET".to_owned(),
            uri: format!("/status?held=true{query}"),
            headers: Vec::new(),
        };
        let asking = others.values().map(|node| async {
            let answer = ask_node(&self.store, node, &request, STATUS_TIME).await;
            let stated = answer.ok().filter(|answer| answer.status == 200);
            let stated =
                stated.and_then(|answer| serde_json::from_str::<Status>(&answer.body).ok());
            (node.name.clone(), stated)
        });
        let mut missing = BTreeSet::new();
        let mut sources: BTreeMap<String, SourceStatus> = BTreeMap::new();
        for (node, stated) in join_all(asking).await {
            let Some(stated) = stated else {
                missing.insert(node);
                continue;
            };
            for mut found in stated.attention {
                if !status
                    .attention
                    .iter()
                    .any(|known| known.code == found.code)
                {
                    found.message = format!("{node}: {}", found.message);
                    status.attention.push(found);
                }
            }
            for (code, count) in stated.refused {
                *status.refused.entry(code).or_default() += count;
            }
            status.hosts.extend(stated.hosts);
            sources.extend(stated.sources.into_iter().map(|it| (it.name.clone(), it)));
        }
        status.hosts.truncate(MOST_HOSTS);
        for known in &mut status.sources {
            if let Some(stated) = sources.remove(&known.name) {
                *known = stated;
            }
        }
        status.sources.extend(sources.into_values());
        missing
    }
}

/// Leaves what fails or waits for a person.
fn retain_notable(status: &mut Status) {
    status.sources.retain(|source| {
        let mut states = source
            .sets
            .iter()
            .map(|set| &set.state)
            .chain([&source.state]);
        states.any(|state| state == "failing") || source.attentions().next().is_some()
    });
}
