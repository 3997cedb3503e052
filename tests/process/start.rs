//! Start and stop of the daemon, and errors at its start.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;

use resyncd_testkit::{SampleOptions, SampleSource};
use tokio::net::UnixDatagram;

use crate::support::process::{Home, command, preloadable, text};
use crate::support::{NAME, SET, client, free_address, resources, send, soon};

#[tokio::test(flavor = "multi_thread")]
async fn daemon_stops_cleanly_on_signals() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    for signal in ["TERM", "INT"] {
        let mut running = home.run();
        home.settled(&source).await;
        running.signal(signal);
        assert_eq!(running.wait_for_exit().await.code(), Some(0), "SIG{signal}");
    }
    assert_eq!(source.hub().unwrap().subscriptions().len(), 2);
    let left: Vec<_> = std::fs::read_dir(home.folder().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(left.contains(&"resyncd.db".to_owned()), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_gets_more_file_descriptors_than_a_shell_has() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    for (limits, expected) in [
        ("ulimit -S -n 256 && ulimit -H -n 512", "512"),
        ("ulimit -n 256", "256"),
    ] {
        let mut running = home.run_in_shell(&format!("{limits} && exec \"$0\" \"$@\""));
        home.settled(&source).await;
        let (_, metrics) = home.operator.get("/metrics").await;
        let line = format!("resyncd_process_max_fds {expected}\n");
        assert!(metrics.contains(&line), "{limits}: {metrics}");
        running.signal("TERM");
        assert_eq!(running.wait_for_exit().await.code(), Some(0));
    }
}

/// Otherwise one run in some ten thousand ends with SIGSEGV after everything is done.
#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout, reason = "the test reports what it can't check")]
async fn no_thread_is_detached_as_it_ends() {
    let source = SampleSource::start(resources(50)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let library = match preloadable("tests/process/detached.c", home.folder()) {
        Ok(library) => library,
        Err(why) => return println!("SKIPPED, no thread was watched: {why}"),
    };
    let preload = [("LD_PRELOAD", library.as_path())];
    let mut sync = command(&home.config);
    sync.arg("sync").envs(preload);
    let output = tokio::task::spawn_blocking(move || sync.output()).await;
    let output = output.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let running = home.run_with(preload);
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[test]
fn check_warns_of_passwords_that_everybody_can_read() {
    use std::os::unix::fs::PermissionsExt;
    const PROXY: &str = "proxy = \"http://me:s3cret@proxy.example:3128\"";
    for (url, http, mode, warns) in [
        ("http://me:s3cret@a.example/", "", 0o644, true),
        ("http://me:s3cret@a.example/", "", 0o640, false),
        ("http://a.example/", "", 0o644, false),
        ("http://a.example/", PROXY, 0o644, true),
        ("http://a.example/", PROXY, 0o640, false),
    ] {
        let home = Home::new(url, "");
        let config = std::fs::read_to_string(&home.config).unwrap();
        let config = config.replace("[http]\n", &format!("[http]\n{http}\n"));
        std::fs::write(&home.config, config).unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&home.config, permissions).unwrap();
        let output = home.run_command(&["check"]);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        assert_eq!(text(&output.stdout), "ok\n");
        assert_eq!(
            shown.contains("configuration-readable"),
            warns,
            "{url} {mode:o}: {shown}"
        );
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_folder_is_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let state = home.folder().join("state");
    let files = std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in files.chain([state.clone()]) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_never_share_a_state() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    let second = home.run_command(&["run"]);
    assert_eq!(second.status.code(), Some(1));
    let message = text(&second.stderr);
    assert!(
        message.contains("another resyncd is running") && message.contains("state-locked"),
        "{message}"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn port_in_use_is_reported() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let _listener = TcpListener::bind(home.status).unwrap();
    let output = home.run_command(&["run"]);
    assert_eq!(output.status.code(), Some(1));
    let message = text(&output.stderr);
    assert!(
        message.contains("[status]") && message.contains(&home.status.to_string()),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_configuration_faults_are_reported_and_nothing_starts() {
    let home = Home::new(
        "https://example.com/",
        "poll_interval = \"soon\"\ncolour = \"red\"",
    );
    for arguments in [&["check"], &["run"]] {
        let output = home.run_command(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stdout) + &text(&output.stderr);
        for part in [
            "config.toml:14",
            "poll_interval",
            "config.toml:15",
            "colour",
        ] {
            assert!(message.contains(part), "{arguments:?} {part}: {message}");
        }
    }
    let missing = command(&home.folder().join("nothing.toml"))
        .arg("check")
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        text(&missing.stdout).contains("nothing.toml")
            || text(&missing.stderr).contains("nothing.toml")
    );
    assert!(!home.folder().join("state").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_configuration_is_ok() {
    let home = Home::new("https://example.com/", "");
    let output = home.run_command(&["check"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "ok\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn source_that_is_unreachable_at_first_is_followed_later() {
    let address = free_address();
    let home = Home::new(&format!("http://{address}/"), "");
    let mut running = home.run();
    let status = home
        .until_status("failing", |status| status.sources[0].state == "failing")
        .await;
    let error = status.sources[0].error.as_ref().unwrap();
    assert!(
        !error.code.is_empty() && error.message.contains(&address.to_string()),
        "{error:?}"
    );
    let output = home.run_command(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains(&error.code), "{output:?}");

    let source = SampleSource::start(SampleOptions {
        listen: address,
        ..resources(3)
    })
    .await
    .unwrap();
    home.settled(&source).await;
    let status = home
        .until_status("ok", |status| status.sources[0].state == "ok")
        .await;
    assert!(status.sources[0].error.is_none());
    running.signal("TERM");
    assert_eq!(running.wait_for_exit().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_feed_are_served_while_the_source_is_unreachable() {
    let address = free_address();
    let options = SampleOptions {
        listen: address,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
    let uri = source.resource_uri(SET, "r0001.txt").to_string();
    drop(source);

    let _running = home.run();
    home.until("status available", |set| set.resources == 3)
        .await;
    let known = home.operator.resource(&uri).await.unwrap();
    assert_eq!(known["deleted"], false);
    assert_eq!(home.operator.changes(0).await.len(), 3);
    let page = || client().get(format!("http://{}/", home.status));
    assert_eq!(send(page).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_goes_to_standard_error_only() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let mut child = command(&home.config)
        .env("RUST_LOG", "info")
        .arg("run")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    home.settled(&source).await;
    crate::support::process::signal(&child, "TERM");
    assert_eq!(
        crate::support::process::wait_for_exit(&mut child)
            .await
            .code(),
        Some(0)
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "");
    let log = text(&output.stderr);
    for line in ["resyncd is running", "Resource List read", "stopped"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    let subscriptions = source.hub().unwrap().subscriptions();
    for subscription in subscriptions {
        assert!(!log.contains(&subscription.secret.unwrap()));
        assert!(!log.contains(&subscription.callback));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_cannot_be_used_is_named_as_the_cause() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    std::fs::write(&home.mirror, "a file").unwrap();
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stdout);
    assert!(
        message.contains("the mirror can't be used") && message.contains("must be a folder"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn state_of_a_newer_version_ends_the_daemon_for_good() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
    // The version of the schema in the header of the file (https://www.sqlite.org/fileformat2.html, section 1.3).
    let database = home.folder().join("state/resyncd.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    std::fs::write(&database, bytes).unwrap();
    let output = home.run_command(&["run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let message = text(&output.stderr);
    for part in ["newer-schema", "a newer resyncd", "install that version"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let unit = include_str!("../../systemd/resyncd.service");
    assert!(unit.contains("\nRestartPreventExitStatus=2 4\n"));
    let mut below_systemd = command(&home.config);
    let below_systemd = below_systemd.arg("run").env("NOTIFY_SOCKET", "/none");
    assert_eq!(below_systemd.output().unwrap().status.code(), Some(4));
    let output = home.run_command(&["sync"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn environment_is_checked_without_changing_it() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let check = || home.run_command(&["check", "--environment"]);
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    for part in [
        "ok    state_dir",
        "mirror",
        " free",
        "callback.listen",
        "/hooks/: leads here",
        "\nok\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!home.folder().join("state").exists());
    let listener = TcpListener::bind(home.status).unwrap();
    let output = check();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        text(&output.stdout).contains("FAIL  status.listen"),
        "{output:?}"
    );
    drop(listener);
    let running = home.run();
    home.settled(&source).await;
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    assert!(
        shown.contains("/hooks/: leads to the running daemon"),
        "{shown}"
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn public_url_that_leads_elsewhere_fails_the_check_of_the_environment() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let config = std::fs::read_to_string(&home.config).unwrap();
    let own = config.lines().find(|line| line.starts_with("public_url"));
    let set_url = |url: &str| {
        let other = format!("public_url = \"{url}\"");
        std::fs::write(&home.config, config.replace(own.unwrap(), &other)).unwrap();
    };
    let failing = |part: &str| {
        let output = home.run_command(&["check", "--environment"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let shown = text(&output.stdout);
        let line = shown
            .lines()
            .find(|line| line.contains("callback.public_url"));
        let line = line.unwrap();
        assert!(line.starts_with("FAIL ") && line.contains(part), "{shown}");
    };
    // The Source answers what it does not know with 404, as another program behind the proxy would.
    set_url(&source.url());
    failing("leads elsewhere (answered 404");
    let _running = home.run();
    home.until("in sync", |set| set.state == "in-sync").await;
    failing("leads elsewhere (answered 404");
    // Bound, so that no other test gets the port, and not listening.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    set_url(&format!("http://{}/", closed.local_addr().unwrap()));
    failing("can't be requested from here");
}

/// The configuration with another value of a key of a table.
fn with_key(config: &str, table: &str, key: &str, value: &str) -> String {
    let at = config.find(&format!("[{table}]")).unwrap();
    let (before, after) = config.split_at(at);
    let line = after.lines().find(|line| line.starts_with(key)).unwrap();
    let line = format!("{line}\n");
    before.to_owned() + &after.replacen(&line, value, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_of_other_programs_fail_the_check_of_the_environment() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let config = std::fs::read_to_string(&home.config).unwrap();
    let failing = |table: &str, address: SocketAddr| {
        let listen = format!("listen = \"{address}\"\n");
        std::fs::write(&home.config, with_key(&config, table, "listen", &listen)).unwrap();
        let output = home.run_command(&["check", "--environment"]);
        std::fs::write(&home.config, &config).unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let shown = text(&output.stdout);
        let line = format!("FAIL  {table}.listen {address}: another program listens there");
        assert!(shown.contains(&line), "{shown}");
    };
    // Another server, which has a path for checks as well.
    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = web.local_addr().unwrap();
    let router = axum::Router::new().fallback(async || "ok\n");
    tokio::spawn(async move { axum::serve(web, router).await });
    failing("status", address);
    // Also where the daemon is running.
    let running = home.run();
    home.settled(&source).await;
    failing("callback", address);
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn mirror_that_is_missing_fails_the_check_of_the_environment() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let running = home.run();
    home.settled(&source).await;
    assert_eq!(running.stop().await.code(), Some(0));
    let check = || home.run_command(&["check", "--environment"]);
    let output = check();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let aside = home.folder().join("aside");
    std::fs::rename(&home.mirror, &aside).unwrap();
    for is_there in [false, true] {
        if is_there {
            std::fs::create_dir(&home.mirror).unwrap();
        }
        let output = check();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let shown = text(&output.stdout);
        let line = format!("FAIL  source[{NAME}].mirror");
        let line = shown.lines().find(|it| it.starts_with(&line));
        assert!(line.is_some_and(|it| it.contains("mount")), "{shown}");
    }
    std::fs::remove_dir(&home.mirror).unwrap();
    std::fs::rename(&aside, &home.mirror).unwrap();
    assert_eq!(check().status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_listener_is_not_needed_without_a_public_url() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("listen = \"{}\"\n", other.local_addr().unwrap());
    let config = std::fs::read_to_string(&home.config).unwrap();
    let config = with_key(&config, "callback", "public_url", "");
    std::fs::write(
        &home.config,
        with_key(&config, "callback", "listen", &listen),
    )
    .unwrap();
    let output = home.run_command(&["check", "--environment"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!text(&output.stdout).contains("callback"), "{output:?}");
    let running = home.run();
    home.until("in sync", |set| set.state == "in-sync").await;
    assert_eq!(running.stop().await.code(), Some(0));
}

#[test]
fn check_warns_of_a_status_listener_that_others_reach() {
    for (listen, token, warns) in [
        ("0.0.0.0:8462", "", true),
        ("[2001:db8::1]:8462", "", true),
        ("0.0.0.0:8462", "token_file = \"token\"\n", false),
        ("[::1]:8462", "", false),
    ] {
        let home = Home::new("https://library.org/", "");
        std::fs::write(home.folder().join("token"), "t0ken-of-the-status\n").unwrap();
        let config = std::fs::read_to_string(&home.config).unwrap();
        let listen = format!("listen = \"{listen}\"\n{token}");
        std::fs::write(&home.config, with_key(&config, "status", "listen", &listen)).unwrap();
        let output = home.run_command(&["check"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let shown = text(&output.stderr);
        let is_warned = shown.contains("status.listen") && shown.contains("[status-exposed]");
        assert_eq!(is_warned, warns, "{listen}: {shown}");
    }
}

#[test]
fn check_warns_of_what_can_hardly_be_meant() {
    let home = Home::new("https://example.com/", "poll_interval = \"1ms\"");
    let output = home.run_command(&["check"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "ok\n");
    let warnings = text(&output.stderr);
    for part in [
        "warning: ",
        "config.toml:11: ",
        "[placeholder]",
        "[very-short]",
    ] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
}

#[test]
fn configuration_is_shown_with_its_defaults() {
    let home = Home::new("https://me:s3cret@library.org/", "");
    let output = home.run_command(&["config", "--effective"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout);
    assert!(shown.contains("timeout = \"60s\"  # default"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
    assert_eq!(home.run_command(&["config"]).status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_refuses_to_write_to_the_state_of_another_user() {
    let source = SampleSource::start(resources(1)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let state = home.folder().join("state");
    std::fs::create_dir(&state).unwrap();
    if std::os::unix::fs::chown(&state, Some(4_000_000), None).is_err() {
        println!("skipped: not root");
        return;
    }
    for arguments in [&["sync"][..], &["audit", "--repair"]] {
        let output = home.run_command(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let message = text(&output.stderr);
        for part in ["[another-user]", "sudo -u '#4000000' ", arguments[0]] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
    let output = home.run_command(&["unsubscribe"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("[another-user]"));
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0);
    // A comparison alone writes nothing.
    assert_ne!(home.run_command(&["audit"]).status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn service_manager_is_notified() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    let path = home.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let variables = [
        ("NOTIFY_SOCKET", path.as_path()),
        ("WATCHDOG_USEC", Path::new("2000000")),
    ];
    let running = home.run_with(variables);
    let until = async |wanted: &str| {
        let mut received = vec![0; 4096];
        loop {
            let length = soon(wanted, socket.recv(&mut received)).await.unwrap();
            if text(&received[..length]).contains(wanted) {
                return;
            }
        }
    };
    until("STATUS=opening the database").await;
    until("READY=1").await;
    until("WATCHDOG=1").await;
    until("STATUS=1 Source, 1 of 1 set in sync, 0 pending").await;
    until("WATCHDOG=1").await;
    let stopping = until("STOPPING=1");
    let (status, ()) = tokio::join!(running.stop(), stopping);
    assert_eq!(status.code(), Some(0));
}
