//! Work that occupies every thread of the runtime for blocking work: parsing, hashing, packages.

use std::sync::mpsc;

use reqwest::StatusCode;

use crate::support::{Rig, SET, client, eventually, resources, send};

/// How many threads for blocking work there are; the daemon has 512.
const BLOCKING_THREADS: usize = 2;

#[test]
fn listeners_answer_while_all_threads_for_blocking_work_are_occupied() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rig = Rig::start(resources(3)).await;
        rig.settled().await;
        let before = rig.channel().await.received;

        let (mut releases, mut occupied) = (Vec::new(), Vec::new());
        for _ in 0..BLOCKING_THREADS {
            let (release, released) = mpsc::channel::<()>();
            releases.push(release);
            occupied.push(tokio::task::spawn_blocking(move || {
                let _ = released.recv();
            }));
        }
        for path in ["/healthz", "/readyz", "/status", "/changes", "/"] {
            let (status, body) = rig.operator.get(path).await;
            assert_eq!(status, StatusCode::OK, "{path}: {body}");
        }
        let callback = rig.config.callback.listen;
        let unknown = || client().get(format!("http://{callback}/hooks/unknown"));
        assert_eq!(send(unknown).await.status(), StatusCode::NOT_FOUND);
        // A delivery is stored and acknowledged.
        rig.source.create(SET, "new", "new");
        rig.source.notify_and_publish(SET).await.unwrap();
        eventually("the notification is received", None, async || {
            let received = rig.channel().await.received;
            (received > before)
                .then_some(())
                .ok_or(format!("{received}"))
        })
        .await;

        drop(releases);
        for thread in occupied {
            thread.await.unwrap();
        }
        rig.until_mirrored().await;
        rig.stop_daemon().await;
    });
}
