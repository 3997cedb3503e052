//! What a killed process leaves: the pending state was on disk before the request went out.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use resyncd::demo::{HubOptions, SampleSource};
use resyncd::protocol::HubUri;
use resyncd::protocol::websub::Mode;
use tempfile::TempDir;

use crate::support::{Operator, eventually, resources, soon};
use crate::{BareHub, client, verify, with_hub};

/// The program as it is installed, with a configuration for one Source.
pub(crate) struct Installed {
    folder: TempDir,
    pub(crate) operator: Operator,
    callback: SocketAddr,
}

impl Installed {
    pub(crate) fn new(source: &SampleSource, hub: Option<&HubUri>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (callback, status) = (free_address(), free_address());
        let hub = hub.map_or("", HubUri::as_str);
        let config = format!(
            "state_dir = \"state\"\n\
             [callback]\nlisten = \"{callback}\"\npublic_url = \"http://{callback}/hooks/\"\n\
             [status]\nlisten = \"{status}\"\n\
             [http]\nallow_private_addresses = true\n\
             [[source]]\nname = \"sample\"\nurl = \"{}\"\nmirror = \"mirror\"\nhub = \"{hub}\"\n",
            source.url()
        );
        std::fs::write(folder.path().join("config.toml"), config).unwrap();
        Self {
            folder,
            operator: Operator::new(status),
            callback,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, command: &str) -> Command {
        let mut resyncd = Command::new(env!("CARGO_BIN_EXE_resyncd"));
        resyncd
            .arg("--config")
            .arg(self.path("config.toml"))
            .arg(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        resyncd
    }

    /// Waits until hubs can call.
    async fn answers_hubs(&self) {
        let url = format!("http://{}/hooks/nobody", self.callback);
        eventually("hubs are answered", None, async || {
            let answer = client().get(&url).send().await;
            answer.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// An address that nobody listens on, and that is not given away again soon.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A process that does not outlive the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Ends it as a power cut would: without a word.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_a_killed_process_is_confirmed_by_the_next() {
    let hub = BareHub::start(None).await;
    let source = SampleSource::start(resources(3)).await.unwrap();
    let installed = Installed::new(&source, Some(&hub.uri));
    let first = Running::start(installed.command("run"));
    // The requests have been sent, and never will there be an answer.
    let forms = hub.wait_for_forms(2).await;
    first.kill();

    let _second = Running::start(installed.command("run"));
    installed.answers_hubs().await;
    for form in &forms {
        let fields: BTreeMap<_, _> = url::form_urlencoded::parse(form.as_bytes()).collect();
        let (callback, topic) = (&fields["hub.callback"], &fields["hub.topic"]);
        let forged = verify(callback, Mode::Unsubscribe, topic, Some("c"), None).await;
        assert_eq!(forged.0, 404, "nobody asked to unsubscribe");
        let late = verify(callback, Mode::Subscribe, topic, Some("late"), Some(600)).await;
        assert_eq!((late.0, late.2.as_str()), (200, "late"));
    }
    eventually("active", None, async || {
        let status = installed.operator.try_status().await;
        let channels = status.iter().flat_map(|status| &status.sources);
        let channels = channels
            .flat_map(|source| &source.sets)
            .flat_map(|set| &set.channels);
        match channels.filter(|channel| channel.state == "active").count() {
            2 => Ok(()),
            _ => Err(format!("{status:#?}")),
        }
    })
    .await;
    assert_eq!(hub.forms.borrow().len(), 2, "nothing was asked twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribe_without_a_daemon_answers_the_hubs_itself() {
    let source = SampleSource::start(with_hub(HubOptions::default()))
        .await
        .unwrap();
    let hub = source.hub().unwrap();
    let installed = Installed::new(&source, None);
    let daemon = Running::start(installed.command("run"));
    soon(
        "subscribed",
        eventually("two subscriptions", None, async || {
            match hub.subscriptions().len() {
                2 => Ok(()),
                other => Err(other.to_string()),
            }
        }),
    )
    .await;
    daemon.kill();
    let mut unsubscribe = installed.command("unsubscribe");
    let ended = tokio::task::spawn_blocking(move || unsubscribe.output());
    let ended = soon("ended", ended).await.unwrap().unwrap();
    let told = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{told}");
    assert_eq!(told.matches("confirmed").count(), 2, "{told}");
    assert_eq!(hub.counts().unsubscribed, 2);
}
