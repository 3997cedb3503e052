//! Reads a Resource List, and shows what it names and where it deviates from the specification.
//!
//! ```text
//! cargo run --example read_resource_list -- resourcelist.xml http://example.com/resourcelist.xml
//! ```

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example prints"
)]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use resourcesync::{Capability, DocumentReader};
use url::Url;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(uri)) = (arguments.next(), arguments.next()) else {
        return Err("usage: read_resource_list FILE URI".into());
    };
    let uri = Url::parse(&uri)?;
    let mut reader = DocumentReader::open(BufReader::new(File::open(path)?), &uri)?;
    let head = reader.head();
    if head.md.capability != Some(Capability::ResourceList) {
        return Err(format!("a Resource List is expected, not {:?}", head.md.capability).into());
    }
    if let Some(at) = head.md.at {
        println!("As of {at}:");
    }
    for entry in reader.by_ref() {
        let entry = entry?;
        match entry.md.content.length {
            Some(length) => println!("{} ({length} bytes)", entry.loc),
            None => println!("{}", entry.loc),
        }
    }
    // Only now the document is known to be complete.
    for warning in reader.warnings() {
        let (code, count, position) = (warning.code(), warning.count, warning.position);
        eprintln!("{code}: {count} times, first at {position}");
    }
    Ok(())
}
