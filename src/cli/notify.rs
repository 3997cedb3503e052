//! `notify`: sends a message as one `[[notify]]` states, to see whether it arrives.

use tokio_util::sync::CancellationToken;

use super::exit_status::{FAULTS, OK};
use super::failure::Failure;
use crate::config::Config;
use crate::engine::send_test;

/// Arguments of `notify`.
#[derive(Debug, clap::Args)]
pub(super) struct NotifyArguments {
    #[arg(
        long,
        value_name = "NAME",
        required = true,
        help = "The name of the [[notify]] that is tried"
    )]
    test: String,
}

pub(super) async fn notify(config: &Config, arguments: &NotifyArguments) -> Result<u8, Failure> {
    let name = &arguments.test;
    let Some(notify) = config.notify.iter().find(|notify| notify.name == *name) else {
        let names = config.notify.iter().map(|notify| notify.name.as_str());
        let message = match names.collect::<Vec<_>>() {
            names if names.is_empty() => "the configuration has no [[notify]]".to_owned(),
            names => format!(
                "no [[notify]] is named {name:?}; there are: {}",
                names.join(", ")
            ),
        };
        return Err(Failure::coded("unknown-notify", message).with_status(FAULTS));
    };
    let client = config.client()?;
    send_test(notify, &client, &CancellationToken::new()).await?;
    println!("{name}: accepted");
    Ok(OK)
}
