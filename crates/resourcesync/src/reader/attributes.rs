//! The attributes of `rs:md` and `rs:ln` (section 7), and their values.

use std::str::FromStr;

use super::context::Context;
use super::xml::{Tag, is_readable};
use crate::{
    Capability, ChangeKind, ContentInfo, Digest, Link, Metadata, Oddities, Oddity, SourceTime,
};

/// Whether an attribute means something in the `rs:md` of a head.
pub(super) fn is_of_head(name: &str) -> bool {
    matches!(name, "at" | "completed" | "from" | "until" | "capability")
}

/// Whether an attribute means something in an entry.
pub(super) fn is_of_entry(name: &str) -> bool {
    let describes = matches!(name, "length" | "type" | "encoding" | "path" | "hash");
    describes || is_of_head(name) || matches!(name, "change" | "datetime")
}

/// Reads an `rs:md` in addition to earlier ones of the same head or entry; the first value of an attribute is used. Returns whether all
/// attributes can be read that are needed. Others are ignored where they can't be read.
pub(super) fn read_metadata(
    tag: &Tag<'_>,
    is_needed: fn(&str) -> bool,
    md: &mut Metadata,
    oddities: &mut Oddities,
) -> bool {
    for (name, value) in tag.attributes() {
        if !is_readable(value) {
            if is_needed(name) {
                return false;
            }
            continue;
        }
        match name {
            "at" => md.at = md.at.or(SourceTime::parse_w3c(value, oddities)),
            "completed" => md.completed = md.completed.or(SourceTime::parse_w3c(value, oddities)),
            "from" => md.from = md.from.or(SourceTime::parse_w3c(value, oddities)),
            "until" => md.until = md.until.or(SourceTime::parse_w3c(value, oddities)),
            "capability" => {
                let capability = Capability::parse(value, oddities);
                md.capability = md.capability.take().or(capability);
            }
            "change" => md.change = md.change.or(parse_change(value, oddities)),
            "datetime" => md.datetime = md.datetime.or(SourceTime::parse_w3c(value, oddities)),
            _ => describe(md, name, value, oddities),
        }
    }
    true
}

/// Reads an attribute that describes a representation, unless it was stated before.
pub(super) fn describe(md: &mut Metadata, name: &str, value: &str, oddities: &mut Oddities) {
    let content = &mut md.content;
    match name {
        "length" => content.length = content.length.or(parse_length(value, oddities)),
        "type" => content.media_type = content.media_type.take().or(parse_text(value)),
        "encoding" => md.encoding = md.encoding.take().or(parse_text(value)),
        // A path is not trimmed, as names of files may begin or end with a space.
        "path" if value.trim().is_empty() || md.path.is_some() => {}
        "path" => md.path = Some(value.to_owned()),
        "hash" => {
            oddities.add_if(Oddity::EmptyHash, value.trim().is_empty());
            let hashes = Digest::parse_hashes(value, oddities);
            if content.hashes.is_empty() {
                content.hashes = hashes;
            } else {
                content.complete_with(&ContentInfo {
                    hashes,
                    ..ContentInfo::default()
                });
            }
        }
        _ => {}
    }
}

/// Reads an `rs:ln`; `None` if it has no relation or no valid target, or if an attribute can't be read that means something.
pub(super) fn read_link(tag: &Tag<'_>, context: &mut Context) -> Option<Link> {
    let (mut rel, mut href, mut pri, mut modified) = (String::new(), None, None, None);
    let mut md = Metadata::default();
    let mut is_complete = true;
    for (name, value) in tag.attributes() {
        if !is_readable(value) {
            is_complete &= name != "rel" && name != "href" && !is_of_entry(name);
            continue;
        }
        match name {
            "rel" => value.trim().clone_into(&mut rel),
            "href" => href = context.resolve(value),
            "pri" => pri = parse_number(value, &mut context.oddities),
            "modified" => modified = SourceTime::parse_w3c(value, &mut context.oddities),
            _ => describe(&mut md, name, value, &mut context.oddities),
        }
    }
    let Some(href) = href.filter(|_| is_complete && !rel.is_empty()) else {
        context.add(Oddity::BadLink);
        return None;
    };
    Some(Link {
        rel,
        href,
        pri,
        modified,
        content: md.content,
        encoding: md.encoding,
        path: md.path,
    })
}

/// Whether what is named by a link that can't be used may be a part of the document: then it was not read completely.
pub(super) fn may_continue(tag: &Tag<'_>) -> bool {
    let rel = tag.attribute("rel");
    rel.is_some_and(|rel| !is_readable(rel) || rel.trim().eq_ignore_ascii_case("next"))
}

/// A kind of change.
pub(super) fn parse_change(text: &str, oddities: &mut Oddities) -> Option<ChangeKind> {
    let change = ChangeKind::parse(text);
    oddities.add_if(Oddity::BadChange, change.is_none());
    change
}

fn parse_number<T: FromStr>(text: &str, oddities: &mut Oddities) -> Option<T> {
    let number = text.trim().parse().ok();
    oddities.add_if(Oddity::BadNumber, number.is_none());
    number
}

/// A length in bytes.
fn parse_length(text: &str, oddities: &mut Oddities) -> Option<u64> {
    if text.trim().is_empty() {
        oddities.add(Oddity::EmptyLength);
        return None;
    }
    parse_number(text, oddities)
}

/// A text without surrounding white space, unless nothing is left of it.
fn parse_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
