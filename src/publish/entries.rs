//! What a document states of a resource and of a change.

use resourcesync::{ChangeKind, ContentInfo, Digest, Entry, Link, Oddities, SourceTime};
use url::Url;

use super::uris::SiteUris;
use crate::store::{PublishedChange, PublishedResource};

/// How entries are made.
#[derive(Clone, Debug)]
pub(super) struct EntryForm {
    pub(super) uris: SiteUris,
    /// Whether the files are served, too: otherwise the entries name the originals.
    pub(super) content: bool,
    /// Whether the Source is a folder: its resources have no originals.
    pub(super) is_folder: bool,
}

/// The relations whose targets are named as they are published, if they are.
const REWRITTEN: [&str; 3] = ["collection", "describedby", "describes"];

impl EntryForm {
    /// The entry of a resource that the mirror has.
    pub(super) fn resource(&self, resource: &PublishedResource) -> Entry {
        let view = &resource.view;
        let mut entry = Entry::new(self.loc(&view.source, view.path.as_deref(), view.uri.url()));
        entry.lastmod = view.lastmod.or(view.applied_at.map(SourceTime::from));
        entry.md.content = ContentInfo {
            length: view.length,
            media_type: view.media_type.clone(),
            hashes: Digest::parse_hashes(&view.hashes, &mut Oddities::default()),
        };
        entry.md.encoding.clone_from(&view.encoding);
        entry.links = self.links(resource, &entry.md.content);
        entry
    }

    /// The entry of a change; `None`: there was never a file.
    pub(super) fn change(&self, source: &str, change: &PublishedChange) -> Option<Entry> {
        let row = &change.row;
        let at = SourceTime::from(row.at);
        let kind = match row.change.as_str() {
            "created" => ChangeKind::Created,
            "deleted" => ChangeKind::Deleted,
            _ => ChangeKind::Updated,
        };
        let mut entry = match &change.resource {
            Some(resource) if kind != ChangeKind::Deleted => self.resource(resource),
            _ => {
                let uri = resourcesync::uri::parse_uri(&row.uri).ok()?;
                let mut entry = Entry::new(self.loc(source, row.path.as_deref(), &uri));
                entry.lastmod = Some(at);
                entry.links.extend(self.original(&uri));
                entry
            }
        };
        entry.md.change = Some(kind);
        entry.md.datetime = Some(at);
        Some(entry)
    }

    fn loc(&self, source: &str, path: Option<&str>, original: &Url) -> Url {
        match path {
            Some(path) if self.content => self.uris.file(source, path),
            _ => original.clone(),
        }
    }

    fn links(&self, resource: &PublishedResource, content: &ContentInfo) -> Vec<Link> {
        let view = &resource.view;
        let mut links = view.links.clone();
        for (link, target) in links.iter_mut().zip(&resource.targets) {
            let is_rewritten = REWRITTEN.iter().any(|rel| link.is(rel));
            if let Some(path) = target.as_ref().filter(|_| is_rewritten && self.content) {
                link.href = self.uris.file(&view.source, path);
            }
        }
        // A link to the first original is passed on: there is one, however often it was republished.
        if !links.iter().any(|link| link.is("via")) {
            links.extend(self.original(view.uri.url()).map(|via| Link {
                modified: view.lastmod,
                content: content.clone(),
                ..via
            }));
        }
        links
    }

    /// The link to the original, if it is elsewhere.
    fn original(&self, uri: &Url) -> Option<Link> {
        let is_elsewhere = self.content && !self.is_folder;
        is_elsewhere.then(|| Link::new("via", uri.clone()))
    }
}
