//! Documents that a scenario writes by hand: of forms that the simulated Source does not publish. They are served in place of what the
//! Source would answer at their paths, and the resources that they name are the Source's.

use std::collections::{BTreeMap, VecDeque};

use resourcesync::SourceTime;
use url::Url;

use super::documents::BASE;
use super::source::ResourceNo;
use super::world::World;

/// What is served at a path.
#[derive(Clone, Debug)]
pub(super) enum Page {
    Document {
        body: Vec<u8>,
        written: u64,
    },
    /// Each answer breaks off after so many bytes, and the next one may continue there.
    Pieces {
        body: Vec<u8>,
        length: usize,
    },
    Status(u16),
}

/// The pages, by their paths, those that take their places with the next requests, and the paths that were requested, in their order.
#[derive(Debug, Default)]
pub(super) struct Handwritten {
    pages: BTreeMap<String, Page>,
    later: BTreeMap<String, VecDeque<Page>>,
    requested: Vec<String>,
}

impl Handwritten {
    /// Answers a request: `None`: nothing is written there.
    pub(super) fn serve(&mut self, uri: &Url) -> Option<Page> {
        let path = uri.path().trim_start_matches('/');
        let page = self.pages.get(path).cloned()?;
        self.requested.push(path.to_owned());
        let later = self.later.get_mut(path).and_then(VecDeque::pop_front);
        if let Some(next) = later {
            self.pages.insert(path.to_owned(), next);
        }
        Some(page)
    }
}

impl World {
    /// Serves a document at a path from now on.
    pub(super) fn write(&self, path: &str, body: impl Into<Vec<u8>>) {
        let (body, written) = (body.into(), self.moment());
        self.write_page(path, Page::Document { body, written });
    }

    /// Serves documents at a path one after the other: each answers one request, and the last one all others.
    pub(super) fn write_in_turn<const N: usize>(&self, path: &str, bodies: [String; N]) {
        let written = self.moment();
        let pages = bodies.into_iter().map(|body| Page::Document {
            body: body.into(),
            written,
        });
        let mut pages: VecDeque<Page> = pages.collect();
        let first = pages.pop_front().unwrap();
        self.write_page(path, first);
        let mut scene = self.stage.scene();
        scene.handwritten.later.insert(path.to_owned(), pages);
    }

    /// Serves bytes at a path: the connection breaks off after each piece of that length.
    pub(super) fn write_pieces(&self, path: &str, body: impl Into<Vec<u8>>, length: usize) {
        let body = body.into();
        self.write_page(path, Page::Pieces { body, length });
    }

    /// Answers requests for a path with a status and nothing else.
    pub(super) fn write_status(&self, path: &str, status: u16) {
        self.write_page(path, Page::Status(status));
    }

    /// Serves a page at a path from now on, and returns what was served there.
    pub(super) fn write_page(&self, path: &str, page: Page) -> Option<Page> {
        let mut scene = self.stage.scene();
        scene.handwritten.pages.insert(path.to_owned(), page)
    }

    /// Serves nothing at a path any more but what the Source has there.
    pub(super) fn unwrite(&self, path: &str) {
        self.stage.scene().handwritten.pages.remove(path);
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
