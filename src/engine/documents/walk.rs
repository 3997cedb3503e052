//! The walk from a document to what its indexes name, in the order of the indexes, or the oldest first. In their order their entries
//! are read a block at a time while the lists that they name are read: then an index is never in memory as a whole, however many
//! lists it names and however deep indexes are nested. Lists that are sorted are in memory, within a limit.
//!
//! A document may also be a page of a longer one, and name the page after it (`rel="next"`, RFC 8288): the pages come one after
//! the other, after what the document itself names.
//!
//! Invariant: no index is entered twice. One that names itself, or an index above it, ends nothing: that entry is skipped.

use std::collections::{HashSet, VecDeque};

use resourcesync::{Capability, Entry, Link, SourceTime};
use resyncd_core::{Selection, latest_source_time};
use resyncd_fetch::{FetchedDocument, OwnedReader};
use url::Url;

use super::summarized::SummarizedDocument;
use crate::clock;
use crate::engine::EngineError;

/// How deep indexes may be nested.
const MAX_DEPTH: usize = 16;
/// How many indexes are entered in one walk: their URIs are in memory.
const MAX_INDEXES: usize = 10_000;
/// How many indexes that were named again are reported by their URIs.
const MAX_REPEATED: usize = 3;
/// How many pages a list may have.
const MAX_PAGES: usize = 10_000;
/// How many lists are read in one walk: an index of indexes could name them without end.
const MAX_LISTS: u64 = 1_000_000;
/// How much memory the lists may take that are sorted by their age, and the URIs of pages, in bytes: enough for the 50,000 lists
/// of one index.
const MAX_BYTES: usize = 16 << 20;
/// How many entries are read ahead, unless they are long.
const BLOCK: usize = 64;
/// How long what is read ahead may become, in bytes of its URIs.
const BLOCK_BYTES: usize = 64 << 10;

/// A list that an index names, or a page of a list.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) uri: Url,
    pub(crate) from: Option<SourceTime>,
    pub(crate) until: Option<SourceTime>,
    /// When it was modified last, as the index states.
    pub(crate) modified: Option<SourceTime>,
    /// What the index states of what it names; `None`: nothing.
    contents: Option<Box<Contents>>,
    /// Whether the page before has led here, and no index.
    pub(crate) is_page: bool,
    /// Whether it is a page that has led to itself.
    repeats: bool,
}

/// What an index states of the resources that one of its lists names.
#[derive(Clone, Debug)]
struct Contents {
    media_type: Option<String>,
    links: Vec<Link>,
}

impl Contents {
    fn of(entry: &Entry) -> Option<Box<Self>> {
        let is_about_resources = |link: &&Link| link.is("collection") || link.is("profile");
        let links: Vec<Link> = entry
            .links
            .iter()
            .filter(is_about_resources)
            .cloned()
            .collect();
        let media_type = entry.md.content.media_type.clone();
        let states_any = media_type.is_some() || !links.is_empty();
        states_any.then(|| Box::new(Self { media_type, links }))
    }

    fn bytes(&self) -> usize {
        let media_type = self.media_type.as_ref().map_or(0, String::len);
        let of_link = |link: &Link| size_of::<Link>() + link.href.as_str().len();
        size_of::<Self>() + media_type + self.links.iter().map(of_link).sum::<usize>()
    }
}

impl From<&Entry> for Child {
    fn from(entry: &Entry) -> Self {
        let from = entry.md.from.or(entry.md.at);
        Self {
            from,
            until: entry.md.closed_at(latest_source_time(clock::now().wall)),
            modified: entry.lastmod.max(entry.md.at),
            uri: entry.loc.clone(),
            contents: Contents::of(entry),
            is_page: false,
            repeats: false,
        }
    }
}

impl Child {
    fn page(uri: Url, repeats: bool) -> Self {
        Self {
            uri,
            from: None,
            until: None,
            modified: None,
            contents: None,
            is_page: true,
            repeats,
        }
    }

    /// Rejects a page that was read before as one of the same list: the pages that should follow are unknown.
    pub(crate) fn expect_new(&self) -> Result<(), EngineError> {
        if self.repeats {
            return Err(EngineError::RepeatedPage(self.uri.to_string()));
        }
        Ok(())
    }

    /// Whether the index states that nothing is selected of what it names.
    pub(crate) fn is_ruled_out(&self, selection: &Selection) -> bool {
        let contents = self.contents.as_ref();
        contents.is_some_and(|it| selection.rules_out_part(it.media_type.as_deref(), &it.links))
    }

    fn bytes(&self) -> usize {
        let contents = self.contents.as_ref().map_or(0, |it| it.bytes());
        size_of::<Self>() + self.uri.as_str().len() + contents
    }
}

/// The entries of a document, in its order, read a few at a time and off the asynchronous threads.
pub(crate) struct Entries {
    /// Where the document was fetched from.
    uri: Url,
    rest: Rest,
    block: VecDeque<Entry>,
}

enum Rest {
    Closed(Box<FetchedDocument>),
    Open(Box<OwnedReader>),
    Ended,
}

impl Entries {
    pub(crate) fn of(document: Box<FetchedDocument>) -> Self {
        Self {
            uri: document.url().clone(),
            rest: Rest::Closed(document),
            block: VecDeque::new(),
        }
    }

    /// The next entry; `None` after the last one. Not cancel-safe: after a dropped call there is no further entry.
    pub(crate) async fn next(&mut self) -> Result<Option<Entry>, EngineError> {
        if self.block.is_empty() {
            let rest = std::mem::replace(&mut self.rest, Rest::Ended);
            if !matches!(rest, Rest::Ended) {
                let reading = tokio::task::spawn_blocking(move || rest.read_block());
                (self.rest, self.block) = reading
                    .await
                    .map_err(|error| EngineError::of_join(&error, &self.uri))??;
            }
        }
        Ok(self.block.pop_front())
    }

    /// The next entries, as far as they were read ahead.
    fn known(&self) -> impl Iterator<Item = &Entry> {
        self.block.iter()
    }

    /// Whether there may be entries after those.
    fn has_unknown(&self) -> bool {
        !matches!(self.rest, Rest::Ended)
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

/// A walk through the documents of one capability: what an index names comes next, and also what the indexes within it name, before
/// what the outer one names next.
pub(crate) struct DocumentWalk {
    capability: Capability,
    levels: Vec<Level>,
    /// The URLs of the indexes that were entered.
    entered: HashSet<Url>,
    /// The first indexes that were named again after they had been entered.
    repeated: Vec<Url>,
    seen: u64,
    /// How much memory the sorted levels take, in bytes.
    bytes: usize,
}

/// What is left of an index.
enum Level {
    InOrder(Entries),
    /// The oldest last.
    OldestFirst(Vec<Child>),
    Pages(DocumentPages),
}

/// The pages of one document.
struct DocumentPages {
    next: Option<Child>,
    /// Those that were named so far.
    named: HashSet<Url>,
    /// How much memory their URIs take, in bytes.
    bytes: usize,
}

/// What an index names, the oldest first; where it states no times, in its order. What is fully covered is left out: also returns up to
/// where that reaches.
pub(crate) async fn lists_to_read(
    index: Box<FetchedDocument>,
    is_fully_covered: impl Fn(&Child) -> bool,
) -> Result<(Vec<Child>, Option<SourceTime>), EngineError> {
    let (mut children, mut bytes, mut covered_until) = (Vec::new(), 0, None);
    let mut entries = Entries::of(index);
    while let Some(entry) = entries.next().await? {
        let child = Child::from(&entry);
        if is_fully_covered(&child) {
            covered_until = child.until.max(covered_until);
            continue;
        }
        bytes += child.bytes();
        if bytes > MAX_BYTES {
            return Err(EngineError::TooManyLists);
        }
        children.push(child);
    }
    children.sort_by_key(|child| child.from.or(child.until).or(child.modified));
    Ok((children, covered_until))
}

impl DocumentWalk {
    pub(crate) fn of(capability: Capability) -> Self {
        Self {
            capability,
            levels: Vec::new(),
            entered: HashSet::new(),
            repeated: Vec::new(),
            seen: 0,
            bytes: 0,
        }
    }

    /// The next document that an index names; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Child>, EngineError> {
        while let Some(level) = self.levels.last_mut() {
            let next = match level {
                Level::InOrder(entries) => entries.next().await?.as_ref().map(Child::from),
                Level::OldestFirst(children) => children.pop().inspect(|next| {
                    self.bytes -= next.bytes();
                }),
                Level::Pages(pages) => pages.next.take(),
            };
            let Some(next) = next else {
                self.levels.pop();
                continue;
            };
            self.seen += 1;
            if self.seen > MAX_LISTS {
                return Err(EngineError::TooManyLists);
            }
            if next.is_page || !self.is_repeated(&next.uri) {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// The next documents, the first few, as far as they are known by now. The one that came last may name others, which come before
    /// them.
    pub(crate) fn upcoming(&self, most: usize) -> Vec<Child> {
        let mut upcoming = Vec::new();
        for level in self.levels.iter().rev() {
            let known: Box<dyn Iterator<Item = Child>> = match level {
                Level::InOrder(entries) => Box::new(entries.known().map(Child::from)),
                Level::OldestFirst(children) => Box::new(children.iter().rev().cloned()),
                Level::Pages(pages) => Box::new(pages.next.iter().cloned()),
            };
            let is_new = |child: &Child| {
                !child.repeats && (child.is_page || !self.entered.contains(&child.uri))
            };
            upcoming.extend(known.filter(is_new).take(most - upcoming.len()));
            let is_known = match level {
                Level::InOrder(entries) => !entries.has_unknown(),
                Level::OldestFirst(_) => true,
                Level::Pages(pages) => pages.next.is_none(),
            };
            if upcoming.len() == most || !is_known {
                break;
            }
        }
        upcoming
    }

    /// The indexes that were named again after they had been entered, as in a ring; the first ones.
    pub(crate) fn repeated(&self) -> &[Url] {
        &self.repeated
    }

    /// Whether that index was entered before; records it if so.
    fn is_repeated(&mut self, uri: &Url) -> bool {
        let is_repeated = self.entered.contains(uri);
        if is_repeated && self.repeated.len() < MAX_REPEATED && !self.repeated.contains(uri) {
            self.repeated.push(uri.clone());
        }
        is_repeated
    }

    /// Enters a document that is offered, or came last. If it is an index, what it names comes next, in its order; else it is
    /// returned: its entries are the caller's.
    pub(crate) fn enter(
        &mut self,
        read: SummarizedDocument,
    ) -> Result<Option<SummarizedDocument>, EngineError> {
        if !self.is_index(&read)? {
            self.follow_page_of(&read)?;
            return Ok(Some(read));
        }
        if !self.is_repeated(read.document.url()) {
            self.enter_index(&read)?;
            self.levels.push(Level::InOrder(Entries::of(read.document)));
        }
        Ok(None)
    }

    /// As [`enter`](Self::enter), but the oldest of what an index names comes first, and nothing that is fully covered. Also returns up to
    /// where the covered ones reach. An index that is too long for the memory of the walk is an error.
    pub(crate) async fn enter_oldest_first(
        &mut self,
        read: SummarizedDocument,
        is_fully_covered: impl Fn(&Child) -> bool,
    ) -> Result<(Option<SummarizedDocument>, Option<SourceTime>), EngineError> {
        if !self.is_index(&read)? {
            self.follow_page_of(&read)?;
            return Ok((Some(read), None));
        }
        if self.is_repeated(read.document.url()) {
            return Ok((None, None));
        }
        self.enter_index(&read)?;
        let (children, covered_until) = lists_to_read(read.document, is_fully_covered).await?;
        self.push(children)?;
        Ok((None, covered_until))
    }

    fn is_index(&self, read: &SummarizedDocument) -> Result<bool, EngineError> {
        read.expect(&self.capability)?;
        let is_empty = read.summary.is_index && read.summary.entries == 0;
        let is_snapshot = matches!(
            self.capability,
            Capability::ResourceList | Capability::ResourceDump
        );
        if is_empty && is_snapshot {
            return Err(EngineError::EmptyIndex(read.document.url().to_string()));
        }
        Ok(read.summary.is_index)
    }

    /// Lets a page come next. `page`: the page that names it, which came last or is where the walk begins.
    pub(crate) fn follow(&mut self, page: &Url, next: &Url) -> Result<(), EngineError> {
        let mut pages = match self.levels.pop() {
            Some(Level::Pages(pages)) if pages.next.is_none() => pages,
            other => {
                self.levels.extend(other);
                DocumentPages {
                    next: None,
                    named: HashSet::from([page.clone()]),
                    bytes: page.as_str().len(),
                }
            }
        };
        pages.bytes += size_of::<Url>() + next.as_str().len();
        if pages.bytes > MAX_BYTES || pages.named.len() > MAX_PAGES {
            return Err(EngineError::TooManyLists);
        }
        let repeats = !pages.named.insert(next.clone());
        pages.next = Some(Child::page(next.clone(), repeats));
        self.levels.push(Level::Pages(pages));
        Ok(())
    }

    /// Lets the page after a document come next, if it names one.
    fn follow_page_of(&mut self, read: &SummarizedDocument) -> Result<(), EngineError> {
        match read.next_page() {
            Some(next) => self.follow(read.document.url(), next),
            None => Ok(()),
        }
    }

    fn enter_index(&mut self, read: &SummarizedDocument) -> Result<(), EngineError> {
        let url = read.document.url();
        let is_index = |level: &&Level| !matches!(level, Level::Pages(_));
        if self.levels.iter().filter(is_index).count() >= MAX_DEPTH {
            return Err(EngineError::NestedIndex(url.to_string()));
        }
        if self.entered.len() >= MAX_INDEXES {
            return Err(EngineError::TooManyLists);
        }
        self.entered.insert(url.clone());
        self.follow_page_of(read)
    }

    /// Lets these lists of an index come next.
    pub(crate) fn push(&mut self, mut children: Vec<Child>) -> Result<(), EngineError> {
        let bytes = self.bytes + children.iter().map(Child::bytes).sum::<usize>();
        if bytes > MAX_BYTES {
            return Err(EngineError::TooManyLists);
        }
        self.bytes = bytes;
        children.reverse();
        self.levels.push(Level::OldestFirst(children));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use resourcesync::DocumentReader;

    use super::*;

    fn uri(name: &str) -> Url {
        Url::parse(&format!("https://example.org/{name}")).unwrap()
    }

    /// An index of which these entries were read ahead, and the rest is this.
    fn index(names: &[&str], rest: Rest) -> Level {
        Level::InOrder(Entries {
            uri: uri("index"),
            rest,
            block: names.iter().map(|name| Entry::new(uri(name))).collect(),
        })
    }

    /// Checks which documents come next, of so many at most.
    fn check(walk: &DocumentWalk, most: usize, expected: &[&str]) {
        let upcoming: Vec<Url> = walk.upcoming(most).into_iter().map(|it| it.uri).collect();
        let expected: Vec<Url> = expected.iter().map(|name| uri(name)).collect();
        assert_eq!(upcoming, expected);
    }

    #[test]
    fn upcoming_documents_are_known_as_far_as_their_indexes_are_read() {
        let list: Box<dyn BufRead + Send> = Box::new(
            &br#"<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"></sitemapindex>"#[..],
        );
        let unread = Box::new(DocumentReader::open(list, &uri("index")).unwrap());
        let outer = || index(&["y", "z"], Rest::Ended);
        for (inner, expected) in [
            (index(&["a", "b"], Rest::Ended), &["a", "b", "y"][..]),
            (index(&["a", "b"], Rest::Open(unread)), &["a", "b"][..]),
            (index(&[], Rest::Ended), &["y", "z"][..]),
        ] {
            let mut walk = DocumentWalk::of(Capability::ResourceList);
            walk.levels = vec![outer(), inner];
            check(&walk, 3, expected);
            // An index that was entered is skipped.
            walk.entered.insert(uri(expected[0]));
            let again = walk.upcoming(1).pop().map(|it| it.uri);
            assert_eq!(again, Some(uri(expected[1])));
        }
    }

    #[tokio::test]
    async fn upcoming_documents_are_known_up_to_a_page_that_may_name_another() {
        let mut walk = DocumentWalk::of(Capability::ChangeList);
        let children = ["a", "b", "c"].map(|name| Child::from(&Entry::new(uri(name))));
        walk.push(children.to_vec()).unwrap();
        check(&walk, 2, &["a", "b"]);
        assert_eq!(walk.next().await.unwrap().unwrap().uri, uri("a"));
        check(&walk, 2, &["b", "c"]);
        check(&walk, 9, &["b", "c"]);
        walk.follow(&uri("a"), &uri("a2")).unwrap();
        check(&walk, 2, &["a2"]);
        assert_eq!(walk.next().await.unwrap().unwrap().uri, uri("a2"));
        check(&walk, 2, &["b", "c"]);
        // A page that leads back is an error, and not requested.
        walk.follow(&uri("a2"), &uri("a")).unwrap();
        check(&walk, 2, &[]);
    }
}
