//! The first look at a document: it is read to its end before anything is done with it, so that one that is cut short, or
//! is not what it should be, changes nothing.

use super::EngineError;
use crate::clock;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, Direction, Head, Oddities, Oddity, Root, SourceTime};
use crate::sync::latest_believed;

/// What a document is, and what it spans.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) head: Head,
    /// The newest time of its entries.
    pub(super) newest: Option<SourceTime>,
    /// Whether its newest entry comes first.
    pub(super) newest_first: bool,
    pub(super) oddities: Oddities,
    /// How many lists it names, if it is an index.
    pub(super) lists: u64,
    /// From when on the first of them tells.
    pub(super) lists_from: Option<SourceTime>,
}

impl Survey {
    /// Reads a document to its end. For a blocking thread. What is dated beyond `latest` does not count as its newest entry.
    pub(super) fn of(
        document: &mut FetchedDocument,
        latest: SourceTime,
    ) -> Result<Self, EngineError> {
        let mut reader = document.reader()?;
        let mut newest = None;
        let mut direction = Direction::default();
        let (mut lists, mut lists_from) = (0, None);
        let mut is_index = reader.head().root == Root::Sitemapindex;
        let mut entries = 0_u64;
        let mut ahead = 0;
        while let Some(entry) = reader.next_entry()? {
            direction.note(entry.changed_at());
            ahead += u64::from(entry.changed_at().is_some_and(|time| time > latest));
            newest = newest.max(entry.changed_at().filter(|&time| time <= latest));
            // An index that is served as a urlset: its entries are lists by their own word.
            if entries == 0 && !is_index {
                is_index = matches!(
                    entry.md.capability,
                    Some(Capability::ResourceList | Capability::ChangeList)
                );
            }
            entries += 1;
            if is_index {
                lists += 1;
                let from = entry.md.from.or(entry.md.at);
                lists_from = lists_from.into_iter().chain(from).min();
            }
        }
        let (head, mut oddities) = (reader.head().clone(), reader.oddities().clone());
        oddities.add_several(Oddity::FutureTime, ahead);
        Ok(Self {
            head,
            newest,
            newest_first: direction.is_newest_first(),
            oddities,
            lists,
            lists_from,
        })
    }

    /// Whether it is an index of other lists.
    pub(super) fn is_index(&self) -> bool {
        self.head.root == Root::Sitemapindex || self.lists > 0
    }
}

/// Surveys a document off the asynchronous threads.
pub(super) async fn survey(
    mut document: Box<FetchedDocument>,
) -> Result<(Box<FetchedDocument>, Survey), EngineError> {
    let latest = latest_believed(clock::now().wall);
    let surveying = tokio::task::spawn_blocking(move || {
        let survey = Survey::of(&mut document, latest)?;
        Ok::<_, EngineError>((document, survey))
    });
    surveying.await.map_err(|_| EngineError::Interrupted)?
}
