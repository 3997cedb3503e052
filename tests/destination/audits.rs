//! Audits that the daemon makes: by itself, and when a person asks for one.

use std::fs;
use std::time::Duration;

use resyncd::status::{AuditStatus, SourceStatus};

use crate::support::{NAME, Rig, SET, eventually, path_of, resources};

async fn source(rig: &Rig) -> SourceStatus {
    let status = rig.operator.status().await;
    status.sources.into_iter().next().unwrap()
}

/// Asks for an audit, and waits for its result.
async fn audited(rig: &Rig, query: &str) -> AuditStatus {
    let before = source(rig).await.audit.and_then(|audit| audit.began_at);
    let path = format!("/sources/{NAME}/audit{query}");
    let (status, body) = rig.operator.post(&path).await;
    assert_eq!(status.as_u16(), 202, "{body}");
    eventually("the audit", None, async || {
        let audit = source(rig).await.audit.unwrap_or_default();
        if audit.began_at.is_some() && audit.began_at != before {
            Ok(audit)
        } else {
            Err(format!("{audit:?}"))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn findings_wait_for_a_person_and_are_repaired_while_the_daemon_runs() {
    let mut rig = Rig::start(resources(20)).await;
    rig.settled().await;
    let right = audited(&rig, "").await;
    assert_eq!((right.in_sync, right.compared), (true, 20), "{right:?}");
    assert!(right.ended_at.is_some() && right.next_at.is_none());
    assert!(source(&rig).await.attention.is_empty());

    let mirror = rig.config.sources[0].mirror.clone();
    let folder = path_of(&rig.source.resource_uri(SET, "x"));
    let folder = mirror.join(folder).parent().unwrap().to_owned();
    let file = |name: &str| folder.join(name);
    let before = fs::read(file("r0001.txt")).unwrap();
    fs::write(file("r0001.txt"), vec![b'x'; before.len()]).unwrap();
    fs::remove_file(file("r0002.txt")).unwrap();
    fs::write(file("of-nobody.txt"), "x").unwrap();
    let found = audited(&rig, "").await;
    assert_eq!((found.in_sync, found.whole), (false, true));
    assert_eq!((found.altered, found.missing, found.extra), (1, 1, 1));
    let attention = source(&rig).await.attention;
    let codes: Vec<_> = attention.iter().map(|it| it.code.as_str()).collect();
    assert_eq!(codes, ["audit-findings"]);
    // Nothing was changed.
    assert!(!file("r0002.txt").exists() && file("of-nobody.txt").exists());

    let mended = audited(&rig, "?repair=true&delete_extra=true").await;
    assert_eq!((mended.in_sync, mended.repaired), (true, 3), "{mended:?}");
    assert_eq!(fs::read(file("r0001.txt")).unwrap(), before);
    assert!(file("r0002.txt").exists() && !file("of-nobody.txt").exists());
    assert!(source(&rig).await.attention.is_empty());
    // The Source is followed as before, also after a restart, which knows the result.
    let last = rig.operator.last_change().await;
    rig.source.update(SET, "r0003.txt", "news");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_in_feed(last, "r0003.txt").await;
    rig.stop_daemon().await;
    rig.start_daemon().await;
    assert_eq!(source(&rig).await.audit, Some(mended));
    let unknown = rig.operator.post("/sources/unknown/audit").await.0;
    assert_eq!(unknown.as_u16(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_audits_by_itself() {
    let rig = Rig::start_with(resources(3), |config| {
        config.sources[0].audit_every = Some(Duration::from_secs(1));
    })
    .await;
    rig.settled().await;
    let audit = eventually("an audit", None, async || {
        let audit = source(&rig).await.audit.unwrap_or_default();
        if audit.compared == 3 {
            Ok(audit)
        } else {
            Err(format!("{audit:?}"))
        }
    })
    .await;
    assert!(audit.in_sync && audit.next_at > audit.began_at, "{audit:?}");
}
