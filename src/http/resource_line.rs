//! What `GET /resource` and `GET /resources` state of a resource.

use resourcesync::{Digest, Link};
use serde::Serialize;
use utoipa::ToSchema;

use crate::status::rfc3339;
use crate::store::{RelationKind, ResourceView};

/// What is known of a URI.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum KnownResource {
    Resource(Box<ResourceLine>),
    Generic(GenericResource),
}

/// A URI that no list names, of which representations are mirrored.
#[derive(Serialize, ToSchema)]
pub(super) struct GenericResource {
    pub(super) uri: String,
    pub(super) source: String,
    pub(super) alternates: Vec<String>,
}

/// A resource as it was applied last.
#[derive(Serialize, ToSchema)]
pub(super) struct ResourceLine {
    uri: String,
    source: String,
    set: String,
    path: Option<String>,
    /// The URL of the file, in an object store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    length: Option<u64>,
    #[serde(rename = "type")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    hash: Option<String>,
    lastmod: Option<String>,
    changed_at: Option<String>,
    applied_at: Option<String>,
    deleted: bool,
    /// What it describes, as its links state or those of the other; the same for the metadata that describes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    describes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    describedby: Vec<String>,
    /// Its representations, as its links state or those of the others; the same for the resources that it is one of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternates: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alternate_of: Vec<String>,
    /// The original of a republished resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    via: Vec<String>,
    links: Vec<LinkLine>,
}

#[derive(Serialize, ToSchema)]
struct LinkLine {
    rel: String,
    href: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl From<Link> for LinkLine {
    fn from(link: Link) -> Self {
        let hashes: Vec<String> = link.content.hashes.iter().map(Digest::to_string).collect();
        Self {
            rel: link.rel,
            href: link.href.to_string(),
            pri: link.pri,
            modified: link.modified.map(|time| time.to_string()),
            length: link.content.length,
            media_type: link.content.media_type,
            encoding: link.encoding,
            hash: Some(hashes.join(" ")).filter(|hashes| !hashes.is_empty()),
            path: link.path,
        }
    }
}

/// The targets of the links of a relation.
fn targets<'a>(view: &'a ResourceView, rel: &'a str) -> impl Iterator<Item = String> + 'a {
    let links = view.links.iter().filter(move |link| link.is(rel));
    links.map(|link| link.href.to_string())
}

/// The targets of the links of a relation, and the resources that state the reverse, each once.
fn related(view: &ResourceView, rel: &str, reverse: RelationKind) -> Vec<String> {
    let own = targets(view, rel);
    let named_by = view.named_by.iter().filter(|(kind, _)| *kind == reverse);
    let mut all: Vec<String> = Vec::new();
    for uri in own.chain(named_by.map(|(_, uri)| uri.clone())) {
        if !all.contains(&uri) {
            all.push(uri);
        }
    }
    all
}

impl From<ResourceView> for ResourceLine {
    fn from(view: ResourceView) -> Self {
        Self {
            describes: related(&view, "describes", RelationKind::DescribedBy),
            describedby: related(&view, "describedby", RelationKind::Describes),
            alternates: related(&view, "alternate", RelationKind::AlternateOf),
            alternate_of: related(&view, "canonical", RelationKind::Alternate),
            via: targets(&view, "via").collect(),
            uri: view.uri.to_string(),
            source: view.source,
            set: view.set,
            path: view.path,
            url: None,
            length: view.length,
            media_type: view.media_type,
            encoding: view.encoding,
            hash: Some(view.hashes).filter(|hashes| !hashes.is_empty()),
            lastmod: view.lastmod.map(|time| time.to_string()),
            changed_at: view.changed_at.map(|time| time.to_string()),
            applied_at: view.applied_at.map(rfc3339),
            deleted: view.deleted,
            links: view.links.into_iter().map(LinkLine::from).collect(),
        }
    }
}
