//! Disks that refuse what they are given, for the mirror or for the state. The refusing is done by a limit on the length of
//! files, which a parent may set on its child at any time, and needs no rights for.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use resyncd::demo::{DumpOptions, SampleOptions, SampleSource};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::process::{Home, Running};
use crate::support::{SET, eventually, resources};

const MIB: usize = 1 << 20;

/// A daemon whose writes may be refused: without the trap, its first one too long would be its last.
fn run(home: &Home) -> Running {
    home.run_by("trap '' XFSZ; exec \"$0\" \"$@\"")
}

/// Has no file of a process grow beyond so many bytes; `None`: as long as it likes.
fn limit(process: &Running, longest: Option<usize>) {
    let limit = Rlimit {
        current: longest.map(|longest| longest as u64),
        maximum: None,
    };
    let process = Pid::from_raw(i32::try_from(process.id()).unwrap());
    prlimit(process, Resource::Fsize, limit).unwrap();
}

async fn until_ready(home: &Home, wanted: u16) -> String {
    eventually(
        &format!("/readyz answers {wanted}"),
        None,
        async || match home.operator.get("/readyz").await {
            (status, body) if status.as_u16() == wanted => Ok(body),
            answer => Err(format!("{answer:?}")),
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_whose_disk_refuses_waits_and_everything_else_goes_on() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let other = SampleSource::start(resources(3)).await.unwrap();
    let more = format!(
        "[[source]]\nname = \"other\"\nurl = \"{}\"\nmirror = \"other\"\nreorder_window = \"300ms\"",
        other.url()
    );
    let home = Home::new(&source.url(), &more);
    let running = home.run_by("trap '' XFSZ; exec \"$0\" \"$@\" 2>\"${2%/*}/log\"");
    home.settled(&source).await;
    until_ready(&home, 200).await;

    // More than the database and its log ever have here.
    limit(&running, Some(16 * MIB));
    source.update(SET, "r0001.txt", "long ".repeat(4 * MIB));
    source.update(SET, "r0002.txt", "short");
    source.notify_and_publish(SET).await.unwrap();
    let refusal = until_ready(&home, 503).await;
    assert!(
        refusal.contains("\"io\"") && refusal.contains("sample"),
        "{refusal}"
    );
    let set = home
        .until("one waits", |set| set.pending == 1 && set.error.is_some())
        .await;
    assert_eq!((set.state.as_str(), set.failed), ("catching-up", 0));
    assert_eq!(set.error.unwrap().code, "io");
    other.update(SET, "r0001.txt", "elsewhere");
    other.notify_and_publish(SET).await.unwrap();
    source.update(SET, "r0000.txt", "beside it");
    source.notify_and_publish(SET).await.unwrap();
    let mirrored = |mirror: &str, url: String, name: &str| {
        let path = format!(
            "{mirror}/{}{SET}/res/{name}",
            url.trim_start_matches("http://")
        );
        std::fs::read(home.folder().join(path)).unwrap()
    };
    eventually("everything else goes on", None, async || {
        let found = [
            mirrored("other", other.url(), "r0001.txt"),
            mirrored("mirror", source.url(), "r0000.txt"),
            mirrored("mirror", source.url(), "r0002.txt"),
        ];
        let wanted: [&[u8]; 3] = [b"elsewhere", b"beside it", b"short"];
        if found.each_ref().map(Vec::as_slice) == wanted {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    assert!(
        mirrored("mirror", source.url(), "r0001.txt").len() < MIB,
        "the old bytes stay"
    );
    until_ready(&home, 503).await;

    limit(&running, None);
    home.settled(&source).await;
    until_ready(&home, 200).await;
    assert_eq!(running.stop().await.code(), Some(0));
    let log = std::fs::read_to_string(home.folder().join("log")).unwrap();
    let told = log.matches("mirror can't be written; tasks wait").count();
    assert_eq!(told, 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_can_t_be_written_puts_hubs_off_and_recovers() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = run(&home);
    home.settled(&source).await;

    limit(&running, Some(0));
    source.freeze_change_list(SET, true);
    source.update(SET, "r0001.txt", "put off");
    let notification = source.notify(SET);
    let deliveries = source.publish(&notification).await.unwrap();
    assert_eq!(deliveries[0].status, Some(503), "{deliveries:?}");
    let refusal = until_ready(&home, 503).await;
    assert!(refusal.contains("\"code\":\"database\""), "{refusal}");
    assert_eq!(
        home.set().await.unwrap().state,
        "in-sync",
        "who only asks is answered"
    );
    assert_eq!(home.operator.get("/healthz").await.0, 200);
    assert_eq!(home.operator.changes(0).await.len(), 3);

    limit(&running, None);
    // Nobody has anything to write meanwhile: it is tried out.
    until_ready(&home, 200).await;
    let deliveries = source.publish(&notification).await.unwrap();
    assert!(deliveries[0].is_accepted(), "{deliveries:?}");
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_is_refused_in_the_midst_of_work_loses_nothing() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = run(&home);
    home.settled(&source).await;
    source.freeze_change_list(SET, true);
    for round in 0..6 {
        for number in 0..10 {
            source.create(SET, &format!("n{round}-{number}.txt"), "new");
        }
        let notification = source.notify(SET);
        let publishing = source.publish(&notification);
        let refusing = async {
            // Each time at another moment of the work.
            tokio::time::sleep(std::time::Duration::from_millis(3 * round)).await;
            limit(&running, Some(0));
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            limit(&running, None);
        };
        let (deliveries, ()) = tokio::join!(publishing, refusing);
        if !deliveries.unwrap()[0].is_accepted() {
            assert!(source.publish(&notification).await.unwrap()[0].is_accepted());
        }
    }
    home.settled(&source).await;
    let set = home.set().await.unwrap();
    assert!(set.gaps.is_empty(), "{:?}", set.gaps);
    let lines = home.operator.changes(0).await;
    let told = lines.iter().filter(|line| line.uri.contains("/n"));
    assert_eq!(told.count(), 60, "each is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn package_that_finds_no_room_is_told_and_waited_for() {
    let source = SampleSource::start(SampleOptions {
        resource_list: false,
        dumps: DumpOptions {
            resource_dump: true,
            ..DumpOptions::default()
        },
        ..resources(3)
    })
    .await
    .unwrap();
    // What can't be packed any smaller.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    let noise: Vec<u8> = noise.take(5 * MIB).collect();
    source.create(SET, "long.bin", noise);
    source.refresh_resource_dump(SET);
    let home = Home::new(&source.url(), "");
    let running = home.run_by("trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" \"$@\"");
    home.until_status("it answers", |_| true).await;
    let refusal = until_ready(&home, 503).await;
    assert!(
        refusal.contains("\"io\"") && refusal.contains("sample"),
        "{refusal}"
    );
    limit(&running, None);
    home.settled(&source).await;
    until_ready(&home, 200).await;
}

/// On a file system that is as small as a test needs it, where somebody with the rights for it has mounted one and says so:
/// the home of the daemon is all in there.
#[tokio::test(flavor = "multi_thread")]
async fn full_file_system_is_waited_for() {
    let Some(disk) = std::env::var_os("RESYNCD_SMALL_DISK") else {
        println!("skipped: RESYNCD_SMALL_DISK names no small file system");
        return;
    };
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::below(disk.as_ref(), &source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let ballast = home.folder().join("ballast");
    assert!(fill(&ballast) < 64 * MIB, "not a small file system");
    source.freeze_change_list(SET, true);
    source.update(SET, "r0001.txt", "long ".repeat(MIB));
    let notification = source.notify(SET);
    let deliveries = source.publish(&notification).await.unwrap();
    let refusal = until_ready(&home, 503).await;
    assert!(refusal.contains("\"disk-full\""), "{refusal}");
    assert_eq!(home.set().await.unwrap().resources, 3);
    std::fs::remove_file(&ballast).unwrap();
    if !deliveries[0].is_accepted() {
        assert!(source.publish(&notification).await.unwrap()[0].is_accepted());
    }
    home.settled(&source).await;
    until_ready(&home, 200).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

/// Writes until nothing more goes in; answers how much did.
fn fill(path: &Path) -> usize {
    let mut file = File::create(path).unwrap();
    let (mut filled, mut piece) = (0, MIB);
    while piece > 0 && filled < 64 * MIB {
        match file.write(&vec![0; piece]) {
            Ok(written) => filled += written,
            Err(_) => piece /= 4,
        }
    }
    filled
}
