//! Applies a Change List to what is known of a Source: of each resource the latest change counts.
//!
//! ```text
//! cargo run --example follow_change_list -- changelist.xml http://example.com/changelist.xml 2013-01-03T00:00:00Z
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use resourcesync::{ChangeKind, DocumentReader, SourceTime};
use url::Url;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(uri), Some(since)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: follow_change_list FILE URI SINCE".into());
    };
    let uri = Url::parse(&uri)?;
    let since: SourceTime = since.parse()?;
    let mut reader = DocumentReader::open(BufReader::new(File::open(path)?), &uri)?;
    // What happened before `from` is in other lists, or in the Resource List.
    if reader.head().md.from.is_some_and(|from| from > since) {
        return Err("the list begins too late: changes may be missing".into());
    }
    let mut latest: BTreeMap<Url, (Option<SourceTime>, ChangeKind)> = BTreeMap::new();
    for entry in reader.by_ref() {
        let entry = entry?;
        let (at, change) = (entry.changed_at(), entry.md.change);
        let Some(change) = change.filter(|_| at.is_none_or(|at| at >= since)) else {
            continue;
        };
        let known = latest.entry(entry.loc).or_insert((at, change));
        if at >= known.0 {
            *known = (at, change);
        }
    }
    for (uri, (at, change)) in latest {
        let at = at.map_or_else(|| "at an unknown time".to_owned(), |at| at.to_string());
        println!("{} {at} {uri}", change.as_str());
    }
    Ok(())
}
