use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use resyncd_core::{NewsFilter, ResourceUri};
use resyncd_packages::Package;
use tokio::task::JoinSet;
use url::Url;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{DocumentChanges, NeededMembers, ingest_changes};
use crate::clock;
use crate::engine::apply::executor::Executor;
use crate::engine::apply::stepping::has_offers;
use crate::engine::set::entry_batches::EntrySource;
use crate::engine::set::package_files::OpenedPackage;
use crate::engine::tests::{NAME, TestSource};
use crate::status::StatusError;
use crate::store::{DeletionRules, DocumentEnd, Origin, Store};

/// More than the blocking threads.
const SETS: usize = 5;
const BLOCKING_THREADS: usize = 2;
const MORE_THAN_A_BATCH: usize = 1100;

#[test]
fn package_of_which_less_than_half_is_needed_is_not_fetched() {
    for (needed, of, are_few) in [
        (0, 0, true),
        (0, 9, true),
        (1, 1, false),
        (1, 3, true),
        (2, 4, false),
        (4, 9, true),
        (5, 9, false),
    ] {
        let members = NeededMembers { needed, of };
        assert_eq!(members.are_few(), are_few, "{needed} of {of}");
    }
}

#[test]
fn sets_that_wait_for_the_executor_leave_it_the_blocking_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(180);
    let ingested = runtime.block_on(async { tokio::time::timeout(limit, ingest_all()).await });
    // Threads that block forever are left behind.
    runtime.shutdown_background();
    let published = ingested.expect("blocking threads wait for each other");
    assert_eq!(published, (0..SETS).map(content_of).collect::<Vec<_>>());
}

fn content_of(number: usize) -> String {
    format!("content {number}")
}

fn resource(number: usize) -> ResourceUri {
    ResourceUri::parse(&format!("https://example.org/{number}")).unwrap()
}

/// A package with resources, each of a second of its own: those of one time are one batch.
fn package(numbers: Range<usize>) -> OpenedPackage {
    let mut entries = String::new();
    let mut zip = ZipWriter::new(tempfile::tempfile().unwrap());
    for number in numbers {
        let (uri, content) = (resource(number), content_of(number));
        entries += &format!(
            r#"<url><loc>{}</loc><rs:md change="created" datetime="2026-01-01T00:{:02}:{:02}Z" path="/{number}" length="{}"/></url>"#,
            uri.as_str(),
            number / 60,
            number % 60,
            content.len(),
        );
        let name = number.to_string();
        zip.start_file(name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    let manifest = format!(
        r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
            <rs:md capability="changedump-manifest"/>{entries}</urlset>"#
    );
    let options = SimpleFileOptions::default();
    zip.start_file("manifest.xml", options).unwrap();
    zip.write_all(manifest.as_bytes()).unwrap();
    OpenedPackage {
        package: Package::open(zip.finish().unwrap(), &std::env::temp_dir(), None).unwrap(),
        uri: Url::parse("https://example.org/dump.zip").unwrap(),
        manifest: None,
    }
}

fn changes() -> DocumentChanges {
    DocumentChanges {
        origin: Origin::ChangeDump,
        newest_first: false,
        filter: NewsFilter::everything(),
        end: DocumentEnd::new(DeletionRules {
            max_share: 1.0,
            of_absence: false,
            holds_all: false,
        }),
    }
}

/// Nobody waits for the disk in a single run.
#[tokio::test]
async fn members_that_cannot_be_written_end_the_package_of_a_single_run() {
    let entry_point = Url::parse("https://example.org/").unwrap();
    let source = TestSource::new(&entry_point, |client| client);
    let context = &source.context;
    assert!(!context.subscribes);
    let now = clock::now();
    let full = StatusError::new("disk-full", "no space", now.wall);
    (context.runtime_status).note_disk_error(NAME, None, full, now.mono);
    let set = source.store.begin_set(NAME, &entry_point).await.unwrap().id;
    let entries = EntrySource::Package(package(0..MORE_THAN_A_BATCH));
    let error = ingest_changes(context, set, entries, changes()).await;
    let error = error.err().unwrap();
    assert_eq!(error.code(), "mirror-unusable");
    assert_eq!(pending(&source.store).await, SETS, "the tasks stay");
    assert!(!has_offers(&context.members));
}

/// Ingests a package for each set while no task is executed yet, then executes the tasks. Returns what was published.
async fn ingest_all() -> Vec<String> {
    let entry_point = Url::parse("https://example.org/").unwrap();
    let source = TestSource::new(&entry_point, |client| client);
    let (store, context, mirror) = (&source.store, &source.context, &source.mirror);

    let mut ingesting = JoinSet::new();
    for number in 0..SETS {
        let context = Arc::clone(context);
        let set = entry_point.join(&format!("set{number}")).unwrap();
        let set = store.begin_set(NAME, &set).await.unwrap().id;
        let entries = EntrySource::Package(package(number..number + 1));
        ingesting.spawn(async move {
            ingest_changes(&context, set, entries, changes())
                .await
                .unwrap()
        });
    }
    // Each set waits for the executor now.
    while pending(store).await < SETS {
        tokio::task::yield_now().await;
    }
    let executor = Executor::new(Arc::clone(context), Arc::clone(mirror), false).run();
    let executor = tokio::spawn(executor);
    for result in ingesting.join_all().await {
        assert_eq!(result.tasks, 1);
    }
    assert!(!has_offers(&context.members), "offers are withdrawn");
    context.stop.cancel();
    executor.await.unwrap().unwrap();
    let file = |number| context.source.mirror.join(format!("example.org/{number}"));
    let published = (0..SETS).map(|number| std::fs::read_to_string(file(number)).unwrap());
    published.collect()
}

/// How many of the resources have a task.
async fn pending(store: &Arc<Store>) -> usize {
    let resources = (0..SETS).map(resource).collect();
    let tasks = store.tasks_of(NAME, clock::now().wall, resources);
    let tasks = tasks.await.unwrap().into_iter();
    tasks.count()
}
