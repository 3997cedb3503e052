//! Documents that a scenario writes by hand: of forms that the simulated Source does not publish. They are served in place of what the
//! Source would answer at their paths, and the resources that they name are the Source's.

use std::collections::BTreeMap;

use url::Url;

use super::documents::BASE;
use super::source::ResourceNo;
use super::world::World;
use crate::protocol::SourceTime;

/// What is served at a path.
#[derive(Clone, Debug)]
pub(super) enum Page {
    Document { body: Vec<u8>, written: u64 },
    Status(u16),
}

/// The pages, by their paths, and the paths that were requested, in their order.
#[derive(Debug, Default)]
pub(super) struct Handwritten {
    pages: BTreeMap<String, Page>,
    requested: Vec<String>,
}

impl Handwritten {
    /// Answers a request: `None`: nothing is written there.
    pub(super) fn serve(&mut self, uri: &Url) -> Option<Page> {
        let path = uri.path().trim_start_matches('/');
        let page = self.pages.get(path).cloned()?;
        self.requested.push(path.to_owned());
        Some(page)
    }
}

impl World {
    /// Serves a document at a path from now on.
    pub(super) fn write(&self, path: &str, body: impl Into<Vec<u8>>) {
        let mut scene = self.stage.scene();
        let (body, written) = (body.into(), scene.moment);
        let page = Page::Document { body, written };
        scene.handwritten.pages.insert(path.to_owned(), page);
    }

    /// Answers requests for a path with a status and nothing else.
    pub(super) fn write_status(&self, path: &str, status: u16) {
        let mut scene = self.stage.scene();
        let page = Page::Status(status);
        scene.handwritten.pages.insert(path.to_owned(), page);
    }

    /// The handwritten pages that were requested since this was asked last.
    pub(super) fn take_requested(&self) -> Vec<String> {
        std::mem::take(&mut self.stage.scene().handwritten.requested)
    }

    /// The Source's time now.
    pub(super) fn now(&self) -> SourceTime {
        let scene = self.stage.scene();
        scene.source.stamp(scene.moment)
    }

    /// When a resource was changed last.
    pub(super) fn changed_at(&self, resource: ResourceNo) -> SourceTime {
        let scene = self.stage.scene();
        scene.source.last_change(resource).unwrap().at
    }
}

/// The URI of a path.
pub(super) fn uri(path: &str) -> Url {
    Url::parse(BASE).unwrap().join(path).unwrap()
}
