//! The attributes of `rs:md` and `rs:ln` (section 7), and their values.

use std::str::FromStr;

use super::references::References;
use super::xml::{Tag, is_readable};
use crate::{
    Capability, ChangeKind, ContentInfo, Digest, Link, Metadata, Oddities, Oddity, SourceTime,
};

/// The attributes that mean something in the `rs:md` of a head.
pub(super) const OF_HEAD: &[&str] = &["at", "completed", "from", "until", "capability"];

/// The attributes that mean something in an entry.
pub(super) const OF_ENTRY: &[&str] = &[
    "at",
    "completed",
    "from",
    "until",
    "capability",
    "change",
    "datetime",
    "length",
    "type",
    "encoding",
    "path",
    "hash",
];

/// Reads an `rs:md`; `None` if one of the `needed` attributes can't be read. Others are ignored where they can't be read.
pub(super) fn read_metadata(
    tag: &Tag<'_>,
    needed: &[&str],
    oddities: &mut Oddities,
) -> Option<Metadata> {
    let mut md = Metadata::default();
    for (name, value) in tag.attributes() {
        if !is_readable(value) {
            if needed.contains(&name) {
                return None;
            }
            continue;
        }
        match name {
            "at" => md.at = SourceTime::parse_w3c(value, oddities),
            "completed" => md.completed = SourceTime::parse_w3c(value, oddities),
            "from" => md.from = SourceTime::parse_w3c(value, oddities),
            "until" => md.until = SourceTime::parse_w3c(value, oddities),
            "capability" => md.capability = Capability::parse(value, oddities),
            "change" => {
                md.change = ChangeKind::parse(value);
                if md.change.is_none() {
                    oddities.add(Oddity::BadChange);
                }
            }
            "datetime" => md.datetime = SourceTime::parse_w3c(value, oddities),
            "length" => md.content.length = parse_length(value, oddities),
            "type" => md.content.media_type = parse_text(value),
            "encoding" => md.encoding = parse_text(value),
            "path" => md.path = parse_path(value),
            "hash" => md.content.hashes = parse_hash_attribute(value, oddities),
            _ => {}
        }
    }
    Some(md)
}

/// Reads an `rs:ln`; `None` if it has no relation or no valid target, or if an attribute can't be read that means something.
pub(super) fn read_link(
    tag: &Tag<'_>,
    references: &mut References,
    oddities: &mut Oddities,
) -> Option<Link> {
    let (mut rel, mut pri, mut modified) = (String::new(), None, None);
    let mut content = ContentInfo::default();
    let (mut encoding, mut path) = (None, None);
    let mut href = None;
    let mut is_complete = true;
    for (name, value) in tag.attributes() {
        if !is_readable(value) {
            is_complete &= name != "rel" && name != "href" && !OF_ENTRY.contains(&name);
            continue;
        }
        match name {
            "rel" => value.trim().clone_into(&mut rel),
            "href" => href = references.resolve(value, oddities),
            "pri" => pri = parse_number(value, oddities),
            "modified" => modified = SourceTime::parse_w3c(value, oddities),
            "length" => content.length = parse_length(value, oddities),
            "type" => content.media_type = parse_text(value),
            "encoding" => encoding = parse_text(value),
            "path" => path = parse_path(value),
            "hash" => content.hashes = parse_hash_attribute(value, oddities),
            _ => {}
        }
    }
    let Some(href) = href.filter(|_| is_complete && !rel.is_empty()) else {
        oddities.add(Oddity::BadLink);
        return None;
    };
    Some(Link {
        rel,
        href,
        pri,
        modified,
        content,
        encoding,
        path,
    })
}

/// Whether what is named by a link that can't be used may be a part of the document: then it was not read completely.
pub(super) fn may_continue(tag: &Tag<'_>) -> bool {
    let rel = tag.attribute("rel");
    rel.is_some_and(|rel| !is_readable(rel) || rel.trim().eq_ignore_ascii_case("next"))
}

/// Merges another `rs:md` of the same head or entry; the first value of an attribute is used.
pub(super) fn merge_metadata(md: &mut Metadata, more: Metadata) {
    md.at = md.at.or(more.at);
    md.completed = md.completed.or(more.completed);
    md.modified = md.modified.or(more.modified);
    md.from = md.from.or(more.from);
    md.until = md.until.or(more.until);
    md.capability = md.capability.take().or(more.capability);
    md.change = md.change.or(more.change);
    md.datetime = md.datetime.or(more.datetime);
    md.encoding = md.encoding.take().or(more.encoding);
    md.path = md.path.take().or(more.path);
    md.content.complete_with(&more.content);
}

fn parse_number<T: FromStr>(text: &str, oddities: &mut Oddities) -> Option<T> {
    let number = text.trim().parse().ok();
    if number.is_none() {
        oddities.add(Oddity::BadNumber);
    }
    number
}

/// A length in bytes.
pub(super) fn parse_length(text: &str, oddities: &mut Oddities) -> Option<u64> {
    if text.trim().is_empty() {
        oddities.add(Oddity::EmptyLength);
        return None;
    }
    parse_number(text, oddities)
}

fn parse_hash_attribute(text: &str, oddities: &mut Oddities) -> Vec<Digest> {
    if text.trim().is_empty() {
        oddities.add(Oddity::EmptyHash);
    }
    Digest::parse_hashes(text, oddities)
}

fn parse_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A path is not trimmed, as names of files may begin or end with a space.
fn parse_path(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}
