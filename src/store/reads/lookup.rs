//! Look-ups of single records and of lists of them.

use std::collections::HashSet;
use std::sync::Arc;

use resyncd_core::{Coverage, Gap, ResourceUri, TopicUri};
use url::Url;

use crate::clock;
use crate::store::gap_history::ClosedGap;
use crate::store::ids::{ChannelId, ResourceId, SetId};
use crate::store::named::NamedSoFar;
use crate::store::query_threads::Lane;
use crate::store::tables::channel::{self, ChannelRecord};
use crate::store::tables::document::{self, DocumentRecord};
use crate::store::tables::dump::{self, DumpProgress};
use crate::store::tables::dump_package::{self, PackageRecord};
use crate::store::tables::feed::{self, FeedEntry};
use crate::store::tables::inbox::{self, Delivery};
use crate::store::tables::relation::RelationKind;
use crate::store::tables::resource::{self, ResourceView};
use crate::store::tables::source_set::{self, SetRecord};
use crate::store::tables::{coverage, gap, linked, package_file, relation};
use crate::store::{Store, StoreError};

impl Store {
    /// The sets of a Source that are followed.
    pub async fn sets(self: &Arc<Self>, source: &str) -> Result<Vec<SetRecord>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(source_set::followed(sql, &source)?))
            .await
    }

    /// The coverage and the gaps of a set.
    pub async fn progress(
        self: &Arc<Self>,
        set: SetId,
    ) -> Result<(Coverage, Vec<Gap>), StoreError> {
        let (coverage, gaps) = self
            .read(move |sql| Ok((coverage::of_set(sql, set)?, gap::of_set(sql, set)?)))
            .await?;
        // A worker begins with them: those of an earlier process, or of an earlier worker.
        self.gap_history.note(set, &gaps, clock::now().wall);
        Ok((coverage, gaps))
    }

    /// The gaps of a set that were closed since the start: the newest ones, oldest first. `open`: the gaps that the caller has read, which
    /// may be closed meanwhile.
    pub fn closed_gaps(&self, set: SetId, open: &[Gap]) -> Vec<ClosedGap> {
        self.gap_history.closed(set, open)
    }

    /// The stored validators of a document.
    pub async fn document(
        self: &Arc<Self>,
        set: SetId,
        uri: &Url,
    ) -> Result<Option<DocumentRecord>, StoreError> {
        let uri = uri.to_string();
        self.read(move |sql| Ok(document::get(sql, set, &uri)?))
            .await
    }

    /// The channels of a set, also those that were left.
    pub async fn channels(self: &Arc<Self>, set: SetId) -> Result<Vec<ChannelRecord>, StoreError> {
        self.read(move |sql| Ok(channel::of_set(sql, set)?)).await
    }

    /// The channel of that row.
    pub async fn channel(
        self: &Arc<Self>,
        id: ChannelId,
    ) -> Result<Option<ChannelRecord>, StoreError> {
        self.read(move |sql| Ok(channel::get(sql, id)?)).await
    }

    /// The channel whose callback ends in that token.
    pub async fn channel_by_token(
        self: &Arc<Self>,
        token: &str,
    ) -> Result<Option<ChannelRecord>, StoreError> {
        let token = token.to_owned();
        self.read_in(Lane::Lookups, move |sql| {
            Ok(channel::by_token(sql, &token)?)
        })
        .await
    }

    /// Whether a URI is the topic of another channel than this one, or the Capability List of another set than its own. For a caller on a
    /// blocking thread.
    pub fn names_another(
        &self,
        channel: &ChannelRecord,
        uri: &TopicUri,
    ) -> Result<bool, StoreError> {
        self.read_blocking(|sql| {
            Ok(channel::is_topic_of_another(sql, channel.id, uri)?
                || source_set::is_list_of_another(sql, channel.set, uri.url())?)
        })
    }

    /// The next deliveries of a set after the one of that id, in the order of arrival.
    pub async fn deliveries(
        self: &Arc<Self>,
        set: SetId,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(move |sql| Ok(inbox::after(sql, set, after, limit)?))
            .await
    }

    /// A delivery in the inbox.
    pub async fn delivery(self: &Arc<Self>, id: i64) -> Result<Option<Delivery>, StoreError> {
        self.read(move |sql| Ok(inbox::get(sql, id)?)).await
    }

    /// A resource that was applied at least once, with what names it as metadata or as described.
    pub async fn resource(
        self: &Arc<Self>,
        uri: &ResourceUri,
    ) -> Result<Option<ResourceView>, StoreError> {
        let uri = uri.clone();
        self.read_in(Lane::Lookups, move |sql| {
            let Some(mut view) = resource::view(sql, &uri)? else {
                return Ok(None);
            };
            view.named_by = relation::named_by(sql, &view.source, &uri)?;
            Ok(Some(view))
        })
        .await
    }

    /// The resources that state a URI as that of which they are representations, and the label of their Source; empty: there are none.
    pub async fn alternates_of(
        self: &Arc<Self>,
        uri: &ResourceUri,
    ) -> Result<(String, Vec<String>), StoreError> {
        let uri = uri.clone();
        self.read_in(Lane::Lookups, move |sql| {
            let Some(source) = relation::source_of_alternates(sql, &uri)? else {
                return Ok(Default::default());
            };
            let named = relation::named_by(sql, &source, &uri)?.into_iter();
            let alternates = named.filter(|(kind, _)| *kind == RelationKind::AlternateOf);
            Ok((source, alternates.map(|(_, uri)| uri).collect()))
        })
        .await
    }

    /// Whether the entry of another resource names one as to be fetched.
    pub async fn is_linked(self: &Arc<Self>, resource: ResourceId) -> Result<bool, StoreError> {
        self.read(move |sql| Ok(linked::is_named(sql, resource)?))
            .await
    }

    /// The applied changes after a sequence number of the feed, oldest first.
    ///
    /// # Errors
    /// [`StoreError::FeedTrimmed`] if entries after that number were removed; [`StoreError::BeyondFeed`] if there was never an entry
    /// of that number.
    pub async fn feed(
        self: &Arc<Self>,
        since: i64,
        limit: usize,
    ) -> Result<Vec<FeedEntry>, StoreError> {
        self.feed_with(since, limit, false).await
    }

    /// As [`feed`](Self::feed). `links`: also the entries of resources of which only the links are others.
    pub async fn feed_with(
        self: &Arc<Self>,
        since: i64,
        limit: usize,
        links: bool,
    ) -> Result<Vec<FeedEntry>, StoreError> {
        let unreadable = Arc::clone(&self.unreadable);
        self.read_in(Lane::Reports, move |sql| {
            if let Some(oldest) = feed::trimmed(sql)?.filter(|&oldest| since < oldest) {
                return Err(StoreError::FeedTrimmed { oldest });
            }
            let last = feed::last_number(sql)?;
            if since > last {
                return Err(StoreError::BeyondFeed { last });
            }
            Ok(feed::after(sql, since, limit, links, &unreadable)?)
        })
        .await
    }

    /// The Resource Dump of a set whose reading has begun and not ended.
    pub async fn dump_in_progress(
        self: &Arc<Self>,
        set: SetId,
    ) -> Result<Option<DumpProgress>, StoreError> {
        self.read(move |sql| Ok(dump::in_progress(sql, set)?)).await
    }

    /// A package of the current Resource Dump, if it was read completely in that version: what it names is named again.
    pub async fn package(
        self: &Arc<Self>,
        set: SetId,
        uri: &str,
        version: &str,
        named: &NamedSoFar,
    ) -> Result<Option<PackageRecord>, StoreError> {
        let (uri, version, named) = (uri.to_owned(), version.to_owned(), named.clone());
        self.read(move |sql| {
            let known = dump_package::get(sql, set, &uri)?;
            let known = known.filter(|(record, _)| record.version == version);
            Ok(known.map(|(record, names)| {
                named.add(&names);
                record
            }))
        })
        .await
    }

    /// The names of the package files that any set of a Source needs.
    pub async fn package_files(
        self: &Arc<Self>,
        source: &str,
    ) -> Result<HashSet<String>, StoreError> {
        let source = source.to_owned();
        self.read(move |sql| Ok(package_file::of_source(sql, &source)?))
            .await
    }
}
