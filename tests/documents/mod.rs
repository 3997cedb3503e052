//! Documents as real Sources write them: each is read, a daemon that follows such a Source becomes in sync with the correct
//! files, and each oddity is reported with a stable code.
//!
//! | oddity | tests |
//! |---|---|
//! | the namespace of `rs` without its last slash | [`entry_points`]: `namespace_…` |
//! | a plain sitemap at the well-known URI; `.wellknown` | [`entry_points`]: `plain_sitemap_…`, `misspelt_well_known_…` |
//! | an HTML link to the Source Description | [`entry_points`]: `page_that_links_…` |
//! | `up` that skips a level, points down, or is missing | [`entry_points`]: `up_…`, `missing_up_…` |
//! | no `index` in the lists of an index | [`lists`] and [`changes`]: `index_…` |
//! | a capability listed twice, one of them of another kind | [`entry_points`]: `capability_listed_twice_…` |
//! | a capability misspelt | [`entry_points`]: `misspelt_capabilities_…`, `reading` |
//! | the URI of a list changes at each publication | [`entry_points`]: `list_with_a_new_uri_…` |
//! | a Change List newest first, grouped by kind, in random order | [`changes`]: `order_…` |
//! | a Change List without `from`, without times; an index with `at` | [`changes`]: `change_list_without_…`, `index_of_change_lists_…` |
//! | a Resource List without `at`, or with `from` | [`lists`]: `resource_list_without_at_…`, `resource_list_with_from_…` |
//! | times with day precision, without zone, with a space, with an offset, local | [`times`], and the tests of `resourcesync::datetime` |
//! | two `rs:md`; `md` before `ln` and `loc` | [`lists`]: `elements_in_any_order_…`, `reading` |
//! | digests in other encodings, several, unknown ones | [`lists`]: `digests_…`, `reading` |
//! | white space and raw spaces in `loc`, `describedBy`, relative URIs | [`lists`]: `loc_…`, `reading` |
//! | an index with the root `urlset`; indexes of indexes | [`lists`] and [`changes`]: `index_…` |
//! | an index as a `urlset` whose entries have only `at` | [`lists`]: `index_as_a_urlset_without_capabilities_…` |
//! | an index many levels deep, one that names itself, `sitemap` without `loc` | [`lists`]: `index_many_levels_deep_…`, `index_nested_too_deeply_…`, `unreadable_entry_of_an_index_…` |
//! | an index with dead parts; robots.txt with several sitemaps | tests/destination, `sitemaps`: `missing_sitemap_of_an_index_…`, `dead_sitemap_of_robots_txt_…` |
//! | packages in a Change List | [`changes`]: `packages_in_a_change_list_…` |
//! | a Change Set as the entry point; a last `<urlset>` in place of `</urlset>` | [`entry_points`]: `change_set_of_the_draft_…`, `draft` |
//! | a Source below a path | `fetch::discovery`: `well_known_document_below_…` |
//! | links `index` and `up` to nothing | [`changes`]: `dead_index_…`, [`entry_points`]: `dead_up_link_…` |
//! | `describedby`; channels over `xmpp:` | [`entry_points`]: `describing_documents_…` |
//! | more than 50,000 entries | [`lists`]: `oversized_list_…` |
//! | gzip stated by the name or by the header alone | [`lists`]: `gzip_…` |
//! | dumps: member paths, manifests without `change`, `changelist` for a Change Dump | `reading`: `manifests_…`, `change_dump_…`; for packages see tests/destination |
//! | a list in pages (`rel="next"`) | tests/destination: `pages` |
//! | a change listed after later ones; two notifications of one interval | tests/destination: `late`; by day: [`changes`]: `change_that_appears_late_…` |
//! | a window that moves on, deletions last | [`changes`]: `window_of_changes_…` |
//! | a home page as `resourcelist`, entries without capability, a package in a Capability List | [`entry_points`]: `entries_of_other_kinds_…`, `home_page_…` |
//! | robots.txt in UTF-16, `Sitemap:` without a space | [`entry_points`]: `robots_txt_in_utf16_…` |
//! | entries with a URI alone | tests/destination: `undated` |
//! | packages whose manifest is only linked as `contents` | tests/destination: `dumps`, `change_dumps` (`contents`) |
//! | `at` that is the time of writing, without `from` | tests/destination: `change_lists::time_at_which_a_list_was_written_…` |
//! | no digest and no length | [`lists`]: `newer_lastmod_…` |
//! | `lastmod` that is the time of the request | [`lists`]: `times_of_requests_…` |
//! | stylesheets, comments, other vocabularies | [`lists`]: `foreign_markup_…` |
//! | a no-break space between attributes; a bare `&`; a Latin-1 byte; another encoding than the declared one | [`damage`]: `damaged_…`, `latin1_…` |
//! | no Sitemap namespace, Google's 0.84, `http://sitemaps.org/` | [`damage`]: `sitemap_without_namespace_…`, and the tests of `resourcesync::reader` |
//! | `<sitemap>` entries in a `urlset` | [`damage`]: `sitemap_entries_…` |
//! | text sitemaps, RSS and Atom | [`damage`]: `text_sitemap_…`, `feed_…` |
//! | `file:`, `ftp:`, `mailto:` in `loc` | [`damage`]: `resources_elsewhere_…` |
//! | `hash=""`, `length=""`; `until` before `from`; zero dates | [`damage`]: `empty_values_…` |
//! | an HTML page in place of a document, or of a resource | [`damage`]: `page_in_place_…`, [`representations`]: `page_in_place_…` |
//! | a representation by its type; a coded one | [`representations`] |
//! | oddities are logged once and shown in the status | [`oddities`] |
//!
//! `reading` and `draft`, and the examples of the specifications, are with the reader: crates/resourcesync/tests/documents.

mod changes;
mod damage;
mod entry_points;
mod lists;
mod oddities;
mod representations;
mod site;
mod times;
