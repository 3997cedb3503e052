//! Notifications: how one is parsed, and which of its changes are news.

use std::io::Read;

use flate2::read::GzDecoder;
use resourcesync::diagnostics::TextPosition;
use resourcesync::entries::EntryOrder;
use resourcesync::media_type::GZIP_MAGIC;
use resourcesync::uri::BaseUri;
use resourcesync::{Capability, Document, DocumentReader, Entry, Oddities, ReadError, Root};
use resyncd_core::{NewsFilter, Transport};
use resyncd_fetch::{FetchError, SizeLimit};
use url::Url;

use super::entry_batches::NewsSelection;
use super::untrusted::{Claim, UntrustedNames};
use crate::engine::EngineError;
use crate::engine::context::SourceContext;
use crate::store::{Change, DeliveryOutcome, SetId};

/// The most entries of a notification. A longer one is rejected, and the set is polled.
const MAX_ENTRIES: usize = 50_000;
/// The most entries of a notification that anybody may have made: each of them is a request.
const MAX_ENTRIES_OF_ANYBODY: usize = 1000;
/// The most bytes of such a notification once it is decompressed.
const MAX_UNZIPPED_OF_ANYBODY: u64 = 1 << 20;

/// How much a notification may state.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotificationBounds {
    unzipped: u64,
    entries: usize,
}

impl NotificationBounds {
    /// The bounds of what comes over a transport, and has at most `limit` bytes.
    pub(super) fn of(transport: Transport, limit: u64) -> Self {
        if transport.has_known_sender() {
            Self {
                unzipped: limit,
                entries: MAX_ENTRIES,
            }
        } else {
            Self {
                unzipped: limit.min(MAX_UNZIPPED_OF_ANYBODY),
                entries: MAX_ENTRIES_OF_ANYBODY,
            }
        }
    }
}

/// A change notification that was read.
pub(super) struct ReadNotification {
    pub(super) outcome: DeliveryOutcome,
    /// Those that are news: the oldest first, and then those that appeared late or are overtaken.
    pub(super) changes: Vec<Change>,
    pub(super) oddities: Oddities,
    /// The changes that are left to a poll.
    pub(super) left: LeftChanges,
}

/// How many changes of a notification are left to a poll, because its sender may not speak for the Source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftChanges {
    /// Of resources that are not known to be the Source's.
    pub(super) foreign: u64,
    /// All of them.
    pub(super) all: u64,
}

/// Who has sent a notification.
pub(super) struct Sender {
    /// What it names, if the sender may not speak for the Source.
    pub(super) untrusted: Option<UntrustedNames>,
    pub(super) capability_list: Url,
    pub(super) left: LeftChanges,
}

impl Sender {
    /// Whether a change counts; marks it if its sender may not speak for the Source.
    pub(super) fn may_state(&mut self, context: &SourceContext, change: &mut Change) -> bool {
        let Some(names) = &self.untrusted else {
            return true;
        };
        let claim = names.claim(context, &self.capability_list, &change.uri);
        if claim == Claim::Asked {
            names.mark(change);
        } else {
            self.left.all += 1;
            self.left.foreign += u64::from(claim == Claim::Foreign);
        }
        claim == Claim::Asked
    }
}

impl ReadNotification {
    /// What of a document is news. `covered`: its outcome if nothing but its interval counts. For a blocking thread.
    pub(super) fn of(
        context: &SourceContext,
        set: SetId,
        sender: Sender,
        document: Document,
        filter: &NewsFilter,
        covered: DeliveryOutcome,
    ) -> Result<Self, EngineError> {
        let is_dated = is_dated(&document);
        let mut entries = document.entries;
        let order: EntryOrder = entries.iter().map(Entry::changed_at).collect();
        if order.is_newest_first() {
            entries.reverse();
        }
        let mut news = NewsSelection::of(set, filter.clone(), false, Some(sender));
        let (mut entries, mut changes) = (entries.into_iter(), Vec::new());
        loop {
            let batch = news.read(context, &mut || Ok(entries.next()))?;
            changes.extend(batch.changes.into_iter().map(|(change, _)| change));
            if batch.is_last {
                break;
            }
        }
        Ok(Self {
            outcome: match covered {
                DeliveryOutcome::Applied if !is_dated => DeliveryOutcome::Undated,
                // The interval was covered, but not by all that happened in it.
                DeliveryOutcome::Duplicate if news.has_late => DeliveryOutcome::Applied,
                outcome => outcome,
            },
            changes,
            oddities: document.oddities,
            left: news.sender.map(|sender| sender.left).unwrap_or_default(),
        })
    }
}

/// Whether a notification states a time that no other one has.
pub(super) fn is_dated(document: &Document) -> bool {
    let is_dated = |entry: &Entry| entry.md.datetime.is_some() || entry.expires.is_some();
    document.head.md.until.is_some() || document.entries.iter().all(is_dated)
}

/// Parses the body of a delivery of that kind. What it refers to is relative to `base`: its topic, over HTTP. For a blocking thread.
/// Whether it is compressed is seen by its bytes: some hubs leave a body compressed, others label one so that is not.
pub(super) fn parse_delivery(
    body: &[u8],
    base: BaseUri<'_>,
    kind: &Capability,
    bounds: NotificationBounds,
) -> Result<Document, EngineError> {
    let document = if body.starts_with(&GZIP_MAGIC) {
        let plain = unzip(body, bounds.unzipped).map_err(|error| EngineError::Fetch {
            uri: format!("a notification of {}", base.uri),
            error,
        })?;
        parse_entries(&plain, base, bounds.entries)?
    } else {
        parse_entries(body, base, bounds.entries)?
    };
    let is_expected = match &document.head.md.capability {
        // The authors' own publisher labels its notifications so.
        Some(Capability::ChangeList) => *kind == Capability::ChangeNotification,
        Some(stated) => stated == kind,
        None => true,
    };
    match &document.head.md.capability {
        Some(found) if !is_expected => Err(EngineError::WrongCapability {
            document: format!("a notification of {}", base.uri),
            wanted: kind.clone(),
            found: found.clone(),
        }),
        _ if document.head.root != Root::Urlset => Err(ReadError::WrongRoot {
            at: TextPosition::BEGIN,
            name: "sitemapindex".to_owned(),
        }
        .into()),
        _ => Ok(document),
    }
}

/// Parses a notification of a limited number of entries, at most as many as a document may have (sitemaps.org): they are all in memory
/// at once.
fn parse_entries(bytes: &[u8], base: BaseUri<'_>, most: usize) -> Result<Document, EngineError> {
    let mut reader = DocumentReader::open(bytes, base)?;
    let mut entries = Vec::new();
    while let Some(entry) = reader.next_entry()? {
        if entries.len() == most {
            return Err(EngineError::TooManyEntries(most));
        }
        entries.push(entry);
    }
    Ok(Document {
        head: reader.head().clone(),
        oddities: reader.oddities().clone(),
        entries,
    })
}

/// Decompresses a delivery, up to `limit` bytes: a few bytes may become a great many.
fn unzip(body: &[u8], limit: u64) -> Result<Vec<u8>, FetchError> {
    let mut plain = Vec::new();
    GzDecoder::new(body)
        .take(limit.saturating_add(1))
        .read_to_end(&mut plain)
        .map_err(|error| FetchError::BadGzip(error.to_string()))?;
    if plain.len() as u64 > limit {
        return Err(FetchError::TooLarge(SizeLimit::notification(limit)));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use resourcesync::{Head, write_document};

    use super::*;

    #[test]
    fn notification_on_a_long_topic_takes_little_memory() {
        let kind = Capability::ChangeNotification;
        let head = Head::new(Root::Urlset, kind.clone());
        let text = String::from_utf8(write_document(&head, &[])).unwrap();
        let entry = "<url><loc>?</loc><md xmlns=\"http://www.openarchives.org/rs/terms/\" change=\"created\"/></url>";
        let text = text.replace("</urlset>", &format!("{}</urlset>", entry.repeat(40_000)));
        let topic = |length: usize| {
            let topic = format!("http://example.org/{}", "t".repeat(length));
            Url::parse(&topic).unwrap()
        };
        let bounds = NotificationBounds::of(Transport::Websub, 8 << 20);
        let parse = |topic: &Url| parse_delivery(text.as_bytes(), topic.into(), &kind, bounds);
        // Each of them would be longer than a URI may be.
        let longest = parse(&topic(60_000)).unwrap();
        assert_eq!(longest.entries.len(), 0);
        assert_eq!(longest.oddities.bad_entries(), 40_000);
        // All of them together would have 320 MB.
        let error = parse(&topic(8000)).unwrap_err();
        assert_eq!(error.code(), "uri-expansion");
        assert_eq!(parse(&topic(100)).unwrap().entries.len(), 40_000);
    }

    #[test]
    fn limit_of_a_delivery_holds_after_decompression() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&[b' '; 1000]).unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(unzip(&body, 1000), Ok(vec![b' '; 1000]));
        let limit = SizeLimit::notification(999);
        assert_eq!(unzip(&body, 999), Err(FetchError::TooLarge(limit)));
        let cut = unzip(&body[..body.len() - 9], 1000);
        assert_eq!(cut.unwrap_err().code(), "bad-gzip");
    }
}
