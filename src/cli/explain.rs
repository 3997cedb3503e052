//! `explain`: what a stable code means, and what to do.

use clap::Args;

use super::exit_status::{FAULTS, OK};
use super::failure::Failure;

/// The table of all codes, which is a page of the documentation as well.
const CODES: &str = include_str!("../../docs/reference/codes.md");

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArguments {
    /// A code, as it stands in a log line, in the status, or in brackets behind a message
    code: String,
}

/// A row of the table.
struct Row {
    code: &'static str,
    meaning: &'static str,
    /// What to do, where something is to be done.
    remedy: Option<&'static str>,
}

pub(super) fn explain(arguments: &ExplainArguments) -> Result<u8, Failure> {
    let code = arguments.code.trim_matches(['[', ']', '`']);
    let likeness = |row: &Row| strsim::jaro_winkler(row.code, code);
    let nearest = rows().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    match nearest {
        Some(row) if row.code == code => {
            println!("{code}: {}", row.meaning);
            if let Some(remedy) = row.remedy {
                println!("What to do: {remedy}");
            }
            Ok(OK)
        }
        nearest => {
            let nearest = nearest.map_or("none", |row| row.code);
            let message = format!("no code is `{code}`; the most similar one is `{nearest}`");
            Err(Failure::coded("unknown-code", message).with_status(FAULTS))
        }
    }
}

fn rows() -> impl Iterator<Item = Row> {
    CODES.lines().filter_map(|line| {
        let (code, cells) = line.strip_prefix("| `")?.split_once("` | ")?;
        let cells = cells.strip_suffix(" |")?;
        let (meaning, remedy) = match cells.split_once(" | ") {
            Some((meaning, remedy)) => (meaning, Some(remedy)),
            None => (cells, None),
        };
        Some(Row {
            code,
            meaning,
            remedy,
        })
    })
}
