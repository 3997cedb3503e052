//! The first look at a document: it is read to its end before anything is done with it, so that one that is cut short, or
//! is not what it should be, changes nothing.

use url::Url;

use super::EngineError;
use crate::clock;
use crate::fetch::FetchedDocument;
use crate::protocol::{Capability, Direction, Head, Oddities, Oddity, Root, SourceTime};
use crate::sync::latest_believed;

/// A list that an index names.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) uri: Url,
    pub(super) from: Option<SourceTime>,
    pub(super) until: Option<SourceTime>,
}

/// What a document is, and what it spans.
#[derive(Clone, Debug)]
pub(super) struct Survey {
    pub(super) head: Head,
    /// The newest time of its entries.
    pub(super) newest: Option<SourceTime>,
    /// Whether its newest entry comes first.
    pub(super) newest_first: bool,
    pub(super) oddities: Oddities,
    /// The lists of an index, in its order; empty for any other document.
    pub(super) children: Vec<Child>,
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
        let mut children = Vec::new();
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
                let (from, until) = (
                    entry.md.from.or(entry.md.at),
                    entry.md.until.or(entry.md.completed),
                );
                children.push(Child {
                    uri: entry.loc,
                    from,
                    until,
                });
            }
        }
        let (head, mut oddities) = (reader.head().clone(), reader.oddities().clone());
        oddities.add_several(Oddity::FutureTime, ahead);
        Ok(Self {
            head,
            newest,
            newest_first: direction.is_newest_first(),
            oddities,
            children,
        })
    }

    /// Whether it is an index of other lists.
    pub(super) fn is_index(&self) -> bool {
        self.head.root == Root::Sitemapindex || !self.children.is_empty()
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
