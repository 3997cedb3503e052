//! `demo`: sample Source and daemon in one process.

use std::io::{self, BufRead, BufReader};
use std::process::Stdio;

use crate::support::process::{program, signal, wait_for_exit};

#[tokio::test(flavor = "multi_thread")]
async fn demo_follows_its_own_source_until_a_signal() {
    for name in ["INT", "TERM"] {
        check_demo(name).await;
    }
}

async fn check_demo(stopping: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut child = program()
        .args(["demo", "--changes-per-second", "20"])
        // It stays on this machine.
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The pipe ends the wait if the process does.
    let is_pushed = |line: io::Result<String>| line.unwrap().contains("(notification)");
    assert!(lines.by_ref().any(is_pushed), "nothing was pushed");
    let second = program()
        .arg("demo")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1), "one demo per folder");
    signal(&child, stopping);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(wait_for_exit(&mut child).await.code(), Some(0));
    assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:?}");
    let has = |beginning: &str| rest.iter().any(|line| line.starts_with(beginning));
    assert!(has("audit: in sync: "), "{rest:?}");
    let tally = rest.iter().find(|line| line.contains(" changes applied: "));
    assert!(
        tally.is_some_and(|tally| tally.contains(" by notification")),
        "{rest:?}"
    );
    assert!(folder.path().join("resyncd-demo/mirror").is_dir());
}

#[test]
fn invalid_pace_is_a_usage_error() {
    let folder = tempfile::tempdir().unwrap();
    for pace in ["0", "-1", "nonsense"] {
        let output = program()
            .args(["demo", &format!("--changes-per-second={pace}")])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{pace}");
    }
}
