//! The walk from a document to what its indexes name. Their entries are read a block at a time while the lists that they name are
//! read: an index is never in memory as a whole, however many lists it names and however deep indexes are nested.

use std::collections::VecDeque;

use url::Url;

use super::summarized::SummarizedDocument;
use crate::clock;
use crate::engine::EngineError;
use crate::fetch::{FetchedDocument, OwnedReader};
use crate::protocol::{Capability, Entry, SourceTime};
use crate::sync::latest_source_time;

/// How deep indexes may be nested.
pub(in crate::engine) const MAX_DEPTH: usize = 4;
/// How many lists are read in one walk: an index of indexes could name them without end.
const MAX_LISTS: u64 = 1_000_000;
/// How many entries are read ahead, unless they are long.
const BLOCK: usize = 64;
/// How long what is read ahead may become, in bytes of its URIs.
const BLOCK_BYTES: usize = 64 << 10;

/// A list that an index names.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Child {
    pub(in crate::engine) uri: Url,
    pub(in crate::engine) from: Option<SourceTime>,
    pub(in crate::engine) until: Option<SourceTime>,
    /// When it was modified last, as the index states.
    pub(in crate::engine) modified: Option<SourceTime>,
}

impl From<Entry> for Child {
    fn from(entry: Entry) -> Self {
        let from = entry.md.from.or(entry.md.at);
        Self {
            from,
            until: entry.md.closed_at(latest_source_time(clock::now().wall)),
            modified: entry.lastmod.max(entry.md.at),
            uri: entry.loc,
        }
    }
}

/// The entries of a document, in its order, read a few at a time and off the asynchronous threads.
pub(in crate::engine) struct Entries {
    rest: Rest,
    block: VecDeque<Entry>,
}

enum Rest {
    Closed(Box<FetchedDocument>),
    Open(Box<OwnedReader>),
    Ended,
}

impl Entries {
    pub(in crate::engine) fn of(document: Box<FetchedDocument>) -> Self {
        Self {
            rest: Rest::Closed(document),
            block: VecDeque::new(),
        }
    }

    /// The next entry; `None` after the last one. Not cancel-safe: after a dropped call there is no further entry.
    pub(in crate::engine) async fn next(&mut self) -> Result<Option<Entry>, EngineError> {
        if self.block.is_empty() {
            let rest = std::mem::replace(&mut self.rest, Rest::Ended);
            if !matches!(rest, Rest::Ended) {
                let reading = tokio::task::spawn_blocking(move || rest.read_block());
                (self.rest, self.block) = reading.await.map_err(|_| EngineError::Interrupted)??;
            }
        }
        Ok(self.block.pop_front())
    }
}

impl Rest {
    fn read_block(self) -> Result<(Self, VecDeque<Entry>), EngineError> {
        let mut reader = match self {
            Self::Closed(document) => Box::new(document.into_reader()?),
            Self::Open(reader) => reader,
            Self::Ended => return Ok((Self::Ended, VecDeque::new())),
        };
        let (mut block, mut bytes) = (VecDeque::new(), 0);
        while block.len() < BLOCK && bytes < BLOCK_BYTES {
            let Some(entry) = reader.next_entry()? else {
                return Ok((Self::Ended, block));
            };
            bytes += entry.loc.as_str().len();
            block.push_back(entry);
        }
        Ok((Self::Open(reader), block))
    }
}

/// A walk through the documents of one capability: what an index names comes next, and also what the indexes within it name, in the
/// order of the documents.
pub(in crate::engine) struct DocumentWalk {
    capability: Capability,
    levels: Vec<Entries>,
    seen: u64,
}

impl DocumentWalk {
    pub(in crate::engine) fn of(capability: Capability) -> Self {
        Self {
            capability,
            levels: Vec::new(),
            seen: 0,
        }
    }

    /// The next document that an index names; `None` after the last one.
    pub(in crate::engine) async fn next(&mut self) -> Result<Option<Child>, EngineError> {
        while let Some(level) = self.levels.last_mut() {
            if let Some(entry) = level.next().await? {
                self.seen += 1;
                if self.seen > MAX_LISTS {
                    return Err(EngineError::TooManyLists);
                }
                return Ok(Some(entry.into()));
            }
            self.levels.pop();
        }
        Ok(None)
    }

    /// Enters a document that is offered, or came last. If it is an index, what it names comes next; else it is returned: its
    /// entries are the caller's.
    pub(in crate::engine) fn enter(
        &mut self,
        read: SummarizedDocument,
    ) -> Result<Option<SummarizedDocument>, EngineError> {
        read.expect(&self.capability)?;
        if !read.summary.is_index {
            return Ok(Some(read));
        }
        if self.levels.len() >= MAX_DEPTH {
            return Err(EngineError::NestedIndex);
        }
        self.levels.push(Entries::of(read.document));
        Ok(None)
    }
}
