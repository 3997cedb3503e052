//! Hostile input and failures: the threats, and the tests that nothing is lost and no attack succeeds.
//!
//! | threat | tests |
//! |---|---|
//! | entities and document types: billion laughs, external entities, UTF-16, wherever a document is read | [`entities`]; `resourcesync::reader` `rejections` |
//! | documents of another kind: pages, feeds, other roots, namespaces, capabilities, a second root, nothing | [`documents`]: `documents_of_another_kind_…`, `empty_list_without_…`; tests/destination `documents` |
//! | truncated documents | [`documents`]: `truncated_documents_…`; at every byte: `resourcesync::reader` `rejections`; of dumps: tests/destination `dumps` |
//! | depth, attributes, one huge text, tag, comment or entry | [`bombs`]: `large_document_takes_no_memory`; `resourcesync::reader` `rejections` |
//! | endless documents, gzip that unpacks to a gibibyte, also twice | [`bombs`]: `endless_document_…`, `large_document_…`; `fetch::spool` |
//! | a few bytes that stand for long URIs: relative references, redirects, links of headers and pages | [`growth`]: `relative_references_…`, `uris_up_to_…`; `resourcesync::uri`; `fetch::discovery` `limits`; `fetch::client` |
//! | documents that take more time than their length: hubs, links, oddities | [`growth`]: `reading_takes_…`; `fetch::discovery` `limits` |
//! | patches that take more time than their length | [`patches`]; the tests of crates/resyncd-patches |
//! | Source Descriptions and Capability Lists that list millions of documents | `fetch::discovery` `limits` |
//! | resources and sets without end, which fill the database | tests/destination `limits`; `store::tests` `trim` |
//! | changes without end of a few resources, with many links, which fill the database | [`feed`]; `store::tx` `compact_feed` |
//! | notifications that are bombs or have too many entries | [`bombs`]: `notification_that_is_a_bomb_…` |
//! | ZIP: bombs, nested bombs, members that overlap, are encrypted, too many, of a false length, or named `../` | `resyncd_packages::tests` `hostile` and `names`; fuzz body `package` |
//! | input that makes the program panic | `engine::set::inbox`: `delivery_that_panics_…`, `…_rejected_in_the_end`; `engine::source::worker`; `engine::channels::websub`; `engine::one_shot`; `engine::apply` `executor` and `publisher`; `store::query_threads` |
//! | arbitrary bytes | tests/fuzzing.rs and fuzz/, which has a README |
//! | URIs that can't be parsed again, wherever they come from | [`unstable_uris`]; `resourcesync::uri`; `store::tables` `round_trips`; fuzz body `stored_uri` |
//! | URIs that lead out of the mirror or share a path | [`uris`]; [`paths`]: `malicious_uris_…`; `resyncd_mirror::mirror_path`; tests/destination `paths` |
//! | deep paths, which use up the inodes | [`paths`]: `deep_paths_…`; [`disks`]: `last_inodes_…` |
//! | symlinks and pipes planted in the mirror | [`paths`]: `planted_symlinks_…`; the tests of `resyncd_mirror` |
//! | deletion of all resources, however it is announced | [`deletions`]: `deletion_of_all_…`; tests/destination `deletions`, `dumps`, `change_dumps` |
//! | deletion of all resources, one by one | [`deletions`]: `many_deletions_…`; `store::tests` `deletion_guard` |
//! | empty lists, indexes, dumps and packages | [`empty_lists`] |
//! | slow and silent peers | [`floods`]: `thousand_silent_peers_…`; [`peers`]: `stalled_peers_…`, `stalled_short_…`; `http::delivery_budget` |
//! | deliveries that are truncated, never end, or exceed the inbox | [`peers`]: `truncated_delivery_…`, `endless_delivery_…`; tests/destination `full_inbox_…` |
//! | WebSockets: endless messages, frames of gigabytes, floods of pings, servers that are gone, private addresses, credentials | tests/websocket `hostile`; `resyncd_channels::websocket`; `resyncd_core::channel` `connection` |
//! | many hosts that never answer | [`unresponsive_hosts`]; over HTTP/2: `engine::apply::executor`; tests/process `http2` |
//! | a host that refuses every request for a resource | [`refusals`]; `fetch::host_limit` |
//! | hosts without end, and long texts with which they end connections | `fetch::permits`; `fetch::error` |
//! | work that occupies every thread, packages without end | [`threads`]: `listeners_answer_…`; `engine::package_permits`; `store::query_threads`; `engine::set::ingest` |
//! | ten times the load | [`floods`]: `tenfold_overload_…` |
//! | no file descriptors left | [`floods`]: `listeners_survive_…` |
//! | replays of a signed notification | [`replays`], and the tests of `store::delivered` |
//! | notifications without a signature or with a wrong one | tests/websub `deliveries` |
//! | a hub that makes up content, digests, times, resources or deletions | [`hubs`]; `store::tests` `hub_claims`, `deletion_guard` |
//! | verifications that were not requested, and forged denials | tests/websub `verifying`, and the tests of `resyncd_core::lease` |
//! | forged requests to unsubscribe | tests/websub `verifying` and `endings` |
//! | leases of a second, denials without end | the tests of `resyncd_core::lease` and `resyncd_core::channel`; tests/websub `leases` |
//! | intervals that are inverted, empty or impossible | [`intervals`]: `impossible_interval_…`; tests/destination `hints`; of packages: `own_change_dumps` |
//! | Change Sets that name each other in a ring, or without end | [`draft`] |
//! | changes that are dated in the far future or past | [`intervals`]: `change_dated_…`, `resource_list_entry_dated_…`, `deletion_dated_…` |
//! | stale documents | [`stale_documents`]; tests/process `audit` |
//! | changes that are withheld for ever | [`stale_documents`]: `source_that_publishes_nothing_…` |
//! | a hub that names resources without TLS | [`hubs`]: `nothing_is_requested_without_tls_…` |
//! | requests to the hosts of others: hubs, topics, documents, resources | [`third_parties`]; `fetch::third_parties`; `resyncd_core::channel` `choice` |
//! | many names of one address | [`third_parties`]: `names_that_resolve_…`; `fetch::third_parties` |
//! | ports of other protocols | [`third_parties`]: `ports_of_other_protocols_…`; `fetch::third_parties` |
//! | thousands of new connections a second | [`floods`]: `churn_…`; `http::connection_slots` |
//! | the system clock is set | tests/clock.rs, and the tests of `resyncd_core::lease` and `store::tests` `tasks` |
//! | the mirror's disk is full, read-only, broken, over quota | [`disks`]: `mirror_on_a_failing_disk_…`, `full_file_system_…`; each call in turn: `resyncd_mirror::tests` `disk_faults` |
//! | packages that do not fit on the disk | [`disks`]: `package_that_…` |
//! | the state can't be written | [`disks`]: `unwritable_state_…`, `state_writes_…`, `daemon_is_not_ready_…` |
//! | other users who read the state or the configuration | tests/process/start.rs: `state_folder_…`, `check_warns_…` |
//! | two daemons on one mirror or one state | [`rebuilding`]: `two_daemons_…`; tests/process/start.rs |
//! | the database is lost | [`rebuilding`]: `intact_files_…`, `without_digests_…`, `symlink_…` |
//! | the database is damaged | [`corruption`]; `store::tests` `corruption`, `opening` |
//! | another process locks the database | [`rebuilding`]: `database_locked_…` |
//! | one step of a poll fails in the database | [`retries`] |
//! | lists of an index that are withheld while they are fetched ahead, when the reading fails or the process is killed | [`lists_ahead`] |
//! | a kill at any step of the work | [`every_step`]: `kill_at_any_step_…` |
//! | a loss of power at any step of the work, also where the Source then reverts | [`power_loss`] |
//! | a kill between a rename and its commit, and a Source that reverts the change | [`reverts`]; at any step: [`every_step`]: `…_that_the_source_reverts_…` |
//! | the same where links name what is fetched: in the end the mirror has what entries list and link to | [`linked_steps`]; at any step: [`every_step`]: `…_of_following_links_…` |
//! | failure of any step of the work, of the mirror or of the database | [`every_step`]: `failure_of_any_step_…` |
//! | web pages that request the status endpoint | [`foreign_pages`]: `foreign_web_pages_…`, `every_answer_…`; `http::host_origin_guard` |
//! | event streams that occupy the status endpoint; requests without its token | [`foreign_pages`]: `event_streams_…`, `status_endpoint_requires_…` |
//! | failures, deliveries and denials that fill the journal | [`logs`]: `floods_…`; `cli::log_throttle` |
//! | untrusted text in the log and the status | [`logs`]; the tests of `status` |
//! | metrics that a Source forges, or multiplies without end | the tests of `metrics`; tests/destination `metrics` |
//! | resources at private addresses, or at those that a provider answers itself | [`private_addresses`]: `resources_at_…`; `fetch::guard` |
//! | mirrors (`rel="duplicate"`) and originals (`rel="via"`) at private addresses | [`private_addresses`]: `duplicates_at_…`, `originals_at_…` |
//! | redirects to private addresses | [`private_addresses`]: `redirects_to_…`, `hub_requests_…` |
//! | Capability Lists, hubs, indexes, `up` and `describedby` at private addresses | [`private_addresses`]: `sets_hubs_and_indexes_…` |
//! | pages, `up` and robots.txt that link to private addresses | [`private_addresses`]: `discovery_does_not_follow_…` |
//! | names that resolve to another address the next time | the tests of `fetch::guard` |
//! | redirect loops | [`redirects`] |
//! | redirects from https to http | the tests of `fetch::client`; tests/websub/tls.rs |
//! | passwords of the configuration, sent elsewhere or shown | [`credentials`]: `passwords_…`, `password_is_sent_again_…` |
//! | bearer tokens, headers and certificates of `[source.auth]`, sent elsewhere or shown | [`source_auth`] |
//! | names that a proxy resolves, private addresses behind it | [`proxies`]; `config::proxies`; `fetch::guard` |
//! | answers that repeat passwords, tokens and secrets of the request | [`credentials`]: `echoed_secrets_…`; `protocol::redaction` |
//! | passwords in documents, sent or shown | [`credentials`]: `passwords_are_sent_to_…` |
//! | false lengths, truncated and endless documents, resources and packages | [`bodies`]: `oversized_and_truncated_…`, `download_stops_…` |
//! | endless responses of hubs, topics and pages | [`bodies`]: `endless_responses_…` |
//! | slow bodies | [`bodies`]: `trickling_content_…`, `trickling_document_…`, `unneeded_bodies_…`, `slow_source_…`; the tests of `fetch::package_download` |

mod bodies;
mod bombs;
mod corruption;
mod credentials;
mod cycle;
mod deletions;
mod disks;
mod documents;
mod draft;
mod empty_lists;
mod entities;
mod entry_points;
mod every_step;
mod feed;
mod floods;
mod foreign_pages;
mod growth;
mod hubs;
mod intervals;
mod linked;
mod linked_steps;
mod lists_ahead;
mod logs;
mod lossy_disk;
mod patches;
mod paths;
mod peers;
mod power_loss;
mod private_addresses;
mod proxies;
mod rebuilding;
mod redirects;
mod refusals;
mod replays;
mod retries;
mod reverts;
mod sets;
mod source_auth;
mod stale_documents;
mod third_parties;
mod threads;
mod tls_site;
mod traced;
mod unresponsive_hosts;
mod unstable_uris;
mod uris;
mod versions;

use tokio::sync::RwLock;

/// Tests that open thousands of connections lock it for writing and run alone; CPU-heavy tests lock it for reading.
static PROCESSOR: RwLock<()> = RwLock::const_new(());
