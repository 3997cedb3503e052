//! Writes the documents of a Source with one resource: a Source Description, a Capability List, a Resource List, a Change List, and a
//! change notification.
//!
//! ```text
//! cargo run --example write_source -- FOLDER
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs;
use std::path::Path;

use resourcesync::{
    Algorithm, Capability, ChangeKind, Digest, Entry, Head, Link, Root, SourceTime, read_document,
    write_document,
};
use url::Url;

const BYTES: &[u8] = b"The first resource.\n";

fn main() -> Result<(), Box<dyn Error>> {
    let Some(folder) = std::env::args().nth(1) else {
        return Err("usage: write_source FOLDER".into());
    };
    let site = Url::parse("http://example.com/")?;
    let at: SourceTime = "2013-01-03T09:00:00Z".parse()?;
    let until: SourceTime = "2013-01-04T09:00:00Z".parse()?;

    let mut resource = Entry::new(site.join("res1")?);
    resource.lastmod = Some(at);
    resource.md.content.length = Some(BYTES.len() as u64);
    resource.md.content.media_type = Some("text/plain".to_owned());
    resource.md.content.hashes = vec![Digest::of(Algorithm::Sha256, BYTES)];

    let mut list = Head::new(Root::Urlset, Capability::ResourceList);
    list.md.at = Some(at);
    let up = Link::new("up", site.join("capabilitylist.xml")?);
    list.links.push(up.clone());

    let mut change = resource.clone();
    change.md.change = Some(ChangeKind::Updated);
    change.md.datetime = Some(at);
    let mut changes = Head::new(Root::Urlset, Capability::ChangeList);
    changes.md.from = Some(at);
    changes.links.push(up);

    let mut notification = Head::new(Root::Urlset, Capability::ChangeNotification);
    notification.md.from = Some(at);
    notification.md.until = Some(until);
    notification.links = vec![
        Link::new("self", site.join("changes")?),
        Link::new("hub", Url::parse("http://hub.example.com/")?),
    ];

    let mut capabilities = Head::new(Root::Urlset, Capability::CapabilityList);
    let description = site.join(".well-known/resourcesync")?;
    capabilities.links.push(Link::new("up", description));
    let mut offers = Vec::new();
    for (path, capability) in [
        ("resourcelist.xml", Capability::ResourceList),
        ("changelist.xml", Capability::ChangeList),
    ] {
        let mut offer = Entry::new(site.join(path)?);
        offer.md.capability = Some(capability);
        offers.push(offer);
    }

    let described = Head::new(Root::Urlset, Capability::Description);
    let mut set = Entry::new(site.join("capabilitylist.xml")?);
    set.md.capability = Some(Capability::CapabilityList);

    fs::create_dir_all(&folder)?;
    for (name, head, entries) in [
        ("description.xml", described, vec![set]),
        ("capabilitylist.xml", capabilities, offers),
        ("resourcelist.xml", list, vec![resource]),
        ("changelist.xml", changes, vec![change.clone()]),
        ("notification.xml", notification, vec![change]),
    ] {
        let document = write_document(&head, &entries);
        // What was written is read back equal, without a warning.
        let read = read_document(&document, &site)?;
        assert_eq!((read.head, read.entries), (head, entries));
        assert!(read.oddities.is_empty(), "{name}: {}", read.oddities);
        fs::write(Path::new(&folder).join(name), document)?;
        println!("{name}");
    }
    Ok(())
}
