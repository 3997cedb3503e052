//! Checks a file against what a document states of its resource: the length and every digest.
//!
//! ```text
//! cargo run --example check_file -- resourcelist.xml http://example.com/res1 res1
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;

use resourcesync::{DocumentReader, Verifier};
use url::Url;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(list), Some(uri), Some(file)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: check_file LIST URI FILE".into());
    };
    let uri = Url::parse(&uri)?;
    for entry in DocumentReader::open(BufReader::new(File::open(list)?), &uri)? {
        let entry = entry?;
        if entry.loc != uri {
            continue;
        }
        let stated = &entry.md.content;
        if !stated.is_verifiable() {
            return Err("the document states neither a length nor a digest".into());
        }
        let mut verifier = Verifier::new(stated.length, &stated.hashes);
        verifier.read_all(&mut File::open(file)?, |_| ())?;
        let verified = verifier.finish()?;
        println!("{} bytes, as stated", verified.length);
        for digest in &verified.digests {
            println!("{digest}");
        }
        return Ok(());
    }
    Err("the document does not name it".into())
}
