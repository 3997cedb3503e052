//! `status`: prints the status of the running daemon.

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use resyncd_core::{one_line, visible_json};
use serde_json::Value;

use super::colours::Colours;
use super::daemon_client::{DaemonAddress, DaemonClient, DaemonError};
use super::daemon_requests::print_failure;
use super::exit_status::{FAILED, FAULTS, OK};
use super::output::{self, print_as_is};
use super::status_text::status_text;
use super::stop_signals::StopSignals;
use crate::config::Config;
use crate::status::{SetStatus, SourceStatus, Status};

/// Moves to the beginning of the screen of a terminal, and clears it from there.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArguments {
    /// Names of Sources, of which all details are printed; all Sources, in a table, if none is given
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
    /// Print it again every SECONDS (2 if not given) until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    watch: Option<u64>,
    /// Check only that the daemon and its database respond, whatever the state of the sets
    #[arg(long, conflicts_with_all = ["json", "watch", "sources"])]
    live: bool,
    #[command(flatten)]
    pub(super) daemon: DaemonAddress,
}

pub(super) async fn status(config: &Config, arguments: &StatusArguments) -> u8 {
    if arguments.live {
        return match live(config).await {
            Ok(()) => {
                println!("the daemon answers");
                OK
            }
            Err(error) => print_failure(error),
        };
    }
    match arguments.watch {
        None => print_status(config, arguments, "").await,
        Some(seconds) => watch(config, arguments, Duration::from_secs(seconds)).await,
    }
}

/// Prints the status again and again until it is stopped; returns the last exit status.
async fn watch(config: &Config, arguments: &StatusArguments, pause: Duration) -> u8 {
    let mut signals = match StopSignals::listen() {
        Ok(signals) => signals,
        Err(failure) => return failure.print(),
    };
    let clear = if stdout().is_terminal() { CLEAR } else { "" };
    let mut last = OK;
    loop {
        tokio::select! {
            () = signals.wait() => return last,
            status = print_status(config, arguments, clear) => last = status,
        }
        // Nobody is watching any more, or the command can't succeed.
        if output::is_closed() || last == FAULTS {
            return last;
        }
        tokio::select! {
            () = signals.wait() => return last,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Prints the status once, after `begin`.
async fn print_status(config: &Config, arguments: &StatusArguments, begin: &str) -> u8 {
    let names = &arguments.sources;
    let (body, status) = match fetch(config, names).await {
        Ok(fetched) => fetched,
        Err(error) => {
            print_as_is(begin);
            return print_failure(error);
        }
    };
    let is_known = |name: &&String| status.sources.iter().any(|source| source.name == **name);
    let unknown: Vec<_> = names.iter().filter(|name| !is_known(name)).collect();
    for name in &unknown {
        eprintln!("resyncd: the daemon has no Source {name:?} [unknown-source]");
    }
    if !unknown.is_empty() {
        return FAULTS;
    }
    let text = if arguments.json {
        format!("{}\n", visible_json(&body))
    } else {
        status_text(&status, Colours::of_stdout())
    };
    print_as_is(&format!("{begin}{text}"));
    if is_healthy(&status) { OK } else { FAILED }
}

/// Succeeds if the daemon and its database answer.
async fn live(config: &Config) -> Result<(), DaemonError> {
    // Longer than the daemon waits for its database.
    let client = DaemonClient::new(config, Duration::from_secs(20))?;
    match client.get("/healthz").await?.as_str() {
        "ok\n" => Ok(()),
        _ => Err(client.not_resyncd()),
    }
}

/// The status as it was received, and parsed: of the Sources of those names, or of all if there are none.
async fn fetch(config: &Config, names: &[String]) -> Result<(String, Status), DaemonError> {
    let client = DaemonClient::new(config, Duration::from_secs(30))?;
    let mut body = client.get("/status").await?;
    let mut json: Value = client.parse(&body)?;
    if !names.is_empty() {
        for (list, key) in [
            ("sources", "name"),
            ("unfollowed", "source"),
            ("former_sources", "name"),
        ] {
            if let Some(Value::Array(rows)) = json.get_mut(list) {
                rows.retain(|row| names.iter().any(|name| row[key] == *name));
            }
        }
        // With what this version does not know.
        body = json.to_string();
    }
    make_visible(&mut json);
    let status = serde_json::from_value(json).map_err(|_| client.not_resyncd())?;
    Ok((body, status))
}

/// Escapes the texts for a terminal: what is made of them gets colours, and is printed as it is.
fn make_visible(json: &mut Value) {
    match json {
        Value::String(text) => *text = one_line(text, usize::MAX),
        Value::Array(values) => values.iter_mut().for_each(make_visible),
        Value::Object(members) => members.values_mut().for_each(make_visible),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_healthy(status: &Status) -> bool {
    let is_healthy = |set: &SetStatus| matches!(set.state.as_str(), "in-sync" | "catching-up");
    let has_sets =
        |source: &SourceStatus| !source.sets.is_empty() && source.sets.iter().all(is_healthy);
    !status.needs_attention() && status.sources.iter().all(has_sets)
}

#[cfg(test)]
mod tests {
    use super::super::status_text::tests::{set, status};
    use super::*;

    #[test]
    fn status_is_healthy_while_nothing_fails_or_waits_for_a_person() {
        let synced = || set("list", "in-sync", &[]);
        for (attention, sets, is_well) in [
            (
                &[][..],
                vec![synced(), set("list", "catching-up", &[])],
                true,
            ),
            (&[], vec![], false),
            (&[], vec![synced(), set("list", "gap", &[])], false),
            (
                &[],
                vec![set("list", "in-sync", &["channel-unverified"])],
                false,
            ),
            (&["mirror-unusable"], vec![synced()], false),
        ] {
            let status = status(&[("example", "ok", attention, sets)]);
            assert_eq!(is_healthy(&status), is_well, "{status:?}");
        }
    }
}
