//! The writer of documents: well-formed XML in a stable form, so that the same document is always the same bytes.

use std::fmt::Display;
use std::io::{self, Write};

use super::document::{RS_NAMESPACE, SITEMAP_NAMESPACE};
use super::{Digest, Entry, Head, Link, Metadata, Root};

/// Writes a document an entry at a time.
///
/// Each entry is one write, so that the output needs no buffer.
#[derive(Debug)]
#[must_use = "the document is incomplete; call finish"]
pub struct DocumentWriter<W: Write> {
    output: W,
    root: Root,
    piece: String,
}

impl<W: Write> DocumentWriter<W> {
    /// Writes the head.
    pub fn start(output: W, head: &Head) -> io::Result<Self> {
        let mut writer = Self {
            output,
            root: head.root,
            piece: String::new(),
        };
        let piece = &mut writer.piece;
        piece.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        piece.push('<');
        piece.push_str(root_name(head.root));
        push_attribute(piece, "xmlns", SITEMAP_NAMESPACE);
        push_attribute(piece, "xmlns:rs", RS_NAMESPACE);
        piece.push_str(">\n");
        head.links.iter().for_each(|link| push_link(piece, 1, link));
        push_metadata(piece, 1, &head.md);
        writer.write_piece()?;
        Ok(writer)
    }

    /// Writes one entry.
    pub fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let name = entry_name(self.root);
        let piece = &mut self.piece;
        push_line(piece, 1, &["<", name, ">"]);
        push_element(piece, "loc", &entry.loc);
        if let Some(lastmod) = &entry.lastmod {
            push_element(piece, "lastmod", lastmod);
        }
        if let Some(frequency) = entry.frequency {
            push_element(piece, "changefreq", frequency.as_str());
        }
        push_metadata(piece, 2, &entry.md);
        entry
            .links
            .iter()
            .for_each(|link| push_link(piece, 2, link));
        push_line(piece, 1, &["</", name, ">"]);
        self.write_piece()
    }

    /// What is written to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.output
    }

    /// Writes the end.
    pub fn finish(mut self) -> io::Result<W> {
        push_line(&mut self.piece, 0, &["</", root_name(self.root), ">"]);
        self.write_piece()?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn write_piece(&mut self) -> io::Result<()> {
        self.output.write_all(self.piece.as_bytes())?;
        self.piece.clear();
        Ok(())
    }
}

/// Writes a complete document to memory.
#[must_use]
pub fn write_document<'a>(head: &Head, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let write = || {
        let mut writer = DocumentWriter::start(Vec::new(), head)?;
        for entry in entries {
            writer.entry(entry)?;
        }
        writer.finish()
    };
    let written: io::Result<Vec<u8>> = write();
    written.expect("writing to memory does not fail")
}

fn root_name(root: Root) -> &'static str {
    match root {
        Root::Urlset => "urlset",
        Root::Sitemapindex => "sitemapindex",
    }
}

fn entry_name(root: Root) -> &'static str {
    match root {
        Root::Urlset => "url",
        Root::Sitemapindex => "sitemap",
    }
}

/// Writes an `rs:md`, unless it would be empty.
fn push_metadata(piece: &mut String, depth: usize, md: &Metadata) {
    if *md == Metadata::default() {
        return;
    }
    push_indent(piece, depth);
    piece.push_str("<rs:md");
    push_some(piece, "capability", md.capability.as_ref());
    push_some(piece, "at", md.at);
    push_some(piece, "completed", md.completed);
    push_some(piece, "from", md.from);
    push_some(piece, "until", md.until);
    push_some(piece, "change", md.change.map(|change| change.as_str()));
    push_some(piece, "datetime", md.datetime);
    push_hashes(piece, &md.content.hashes);
    push_some(piece, "length", md.content.length);
    push_some(piece, "type", md.content.media_type.as_ref());
    push_some(piece, "encoding", md.encoding.as_ref());
    push_some(piece, "path", md.path.as_ref());
    piece.push_str("/>\n");
}

fn push_link(piece: &mut String, depth: usize, link: &Link) {
    push_indent(piece, depth);
    piece.push_str("<rs:ln");
    push_attribute(piece, "rel", &link.rel);
    push_attribute(piece, "href", &link.href);
    push_some(piece, "pri", link.pri);
    push_some(piece, "modified", link.modified);
    push_hashes(piece, &link.content.hashes);
    push_some(piece, "length", link.content.length);
    push_some(piece, "type", link.content.media_type.as_ref());
    push_some(piece, "encoding", link.encoding.as_ref());
    push_some(piece, "path", link.path.as_ref());
    piece.push_str("/>\n");
}

fn push_hashes(piece: &mut String, hashes: &[Digest]) {
    if !hashes.is_empty() {
        let hashes: Vec<String> = hashes.iter().map(Digest::to_string).collect();
        push_attribute(piece, "hash", hashes.join(" "));
    }
}

fn push_some(piece: &mut String, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        push_attribute(piece, name, value);
    }
}

fn push_attribute(piece: &mut String, name: &str, value: impl Display) {
    piece.push(' ');
    piece.push_str(name);
    piece.push_str("=\"");
    push_escaped(piece, &value.to_string());
    piece.push('"');
}

fn push_element(piece: &mut String, name: &str, value: impl Display) {
    push_indent(piece, 2);
    piece.push('<');
    piece.push_str(name);
    piece.push('>');
    push_escaped(piece, &value.to_string());
    piece.push_str("</");
    piece.push_str(name);
    piece.push_str(">\n");
}

fn push_line(piece: &mut String, depth: usize, parts: &[&str]) {
    push_indent(piece, depth);
    piece.extend(parts.iter().copied());
    piece.push('\n');
}

fn push_indent(piece: &mut String, depth: usize) {
    piece.extend(std::iter::repeat_n("  ", depth));
}

/// Escapes text and attribute values. Characters that XML does not allow become U+FFFD.
fn push_escaped(piece: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => piece.push_str("&amp;"),
            '<' => piece.push_str("&lt;"),
            '>' => piece.push_str("&gt;"),
            '"' => piece.push_str("&quot;"),
            // As they stand, these would be read back as spaces.
            '\t' => piece.push_str("&#9;"),
            '\n' => piece.push_str("&#10;"),
            '\r' => piece.push_str("&#13;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => piece.push(char::REPLACEMENT_CHARACTER),
            c => piece.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::{Capability, ChangeKind, Oddities};

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn a_notification_is_written_in_one_stable_form() {
        let mut head = Head::new(Root::Urlset, Capability::ChangeNotification);
        head.md.from = Some("2013-01-03T00:00:00Z".parse().unwrap());
        head.md.until = Some("2013-01-03T00:10:00Z".parse().unwrap());
        head.links.push(Link::new(
            "up",
            url("http://example.com/capabilitylist.xml"),
        ));
        let mut created = Entry::new(url("http://example.com/res1?a=1&b=2"));
        created.lastmod = Some("2013-01-01T13:03:00.5Z".parse().unwrap());
        created.md.change = Some(ChangeKind::Created);
        created.md.content.length = Some(8876);
        created.md.content.media_type = Some("text/html; charset=\"utf-8\"".to_owned());
        created.md.content.hashes = Digest::parse_hashes(
            "md5:1584abdf8ebdc9802ac0c6a7402c03b6",
            &mut Oddities::default(),
        );
        let mut mirror = Link::new("duplicate", url("http://mirror.example.com/res1"));
        mirror.pri = Some(1);
        created.links.push(mirror);
        let plain = Entry::new(url("http://example.com/res2"));

        let written = write_document(&head, [&created, &plain]);
        assert_eq!(
            String::from_utf8(written).unwrap(),
            r#"<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">
  <rs:ln rel="up" href="http://example.com/capabilitylist.xml"/>
  <rs:md capability="change-notification" from="2013-01-03T00:00:00Z" until="2013-01-03T00:10:00Z"/>
  <url>
    <loc>http://example.com/res1?a=1&amp;b=2</loc>
    <lastmod>2013-01-01T13:03:00.500Z</lastmod>
    <rs:md change="created" hash="md5:1584abdf8ebdc9802ac0c6a7402c03b6" length="8876" type="text/html; charset=&quot;utf-8&quot;"/>
    <rs:ln rel="duplicate" href="http://mirror.example.com/res1" pri="1"/>
  </url>
  <url>
    <loc>http://example.com/res2</loc>
  </url>
</urlset>
"#
        );
    }

    #[test]
    fn an_output_error_is_returned() {
        #[derive(Debug)]
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let head = Head::new(Root::Urlset, Capability::ChangeList);
        let error = DocumentWriter::start(Full, &head).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
