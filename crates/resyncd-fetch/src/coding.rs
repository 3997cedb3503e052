//! Content codings (RFC 9110, section 8.4): what a `Content-Encoding` header states, and how bytes are recognized that are coded so.

use flate2::{Decompress, FlushDecompress, Status};
use resourcesync::media_type::GZIP_MAGIC;

use super::FetchError;

/// How many codings are undone: some servers compress a gzip file again for transport.
const MAX_CODINGS: usize = 2;

/// A coding that can be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `gzip`, or `x-gzip`.
    Gzip,
    /// `deflate`: in the format of zlib, as it is defined, or without it, as some servers send it.
    Deflate,
}

/// The format of coded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodedFormat {
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Zlib,
    /// RFC 1951.
    Deflate,
}

impl ContentCoding {
    /// How many bytes of a body decide its [`format`](Self::format).
    pub const DECISIVE: usize = 4096;

    /// The codings of a list as [`content_coding`](resourcesync::media_type::content_coding) has it, in the order in which they were
    /// applied.
    pub fn parse_list(stated: &str) -> Result<Vec<Self>, FetchError> {
        let unsupported = || FetchError::UnsupportedCoding(stated.to_owned());
        let parse = |name: &str| match name {
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "deflate" => Ok(Self::Deflate),
            _ => Err(unsupported()),
        };
        let codings: Vec<Self> = stated.split(", ").map(parse).collect::<Result<_, _>>()?;
        if codings.len() > MAX_CODINGS {
            return Err(unsupported());
        }
        Ok(codings)
    }

    /// The format of a body that begins so, with [`DECISIVE`](Self::DECISIVE) bytes unless it ends before; `None` if it is not coded:
    /// some servers leave the header on such a body.
    pub fn format(self, begin: &[u8]) -> Option<CodedFormat> {
        match self {
            Self::Gzip => begin.starts_with(&GZIP_MAGIC).then_some(CodedFormat::Gzip),
            // RFC 1950, section 2.2.
            Self::Deflate if matches!(begin, [cmf, flags, ..] if cmf & 0x0f == 8 && (u16::from(*cmf) * 256 + u16::from(*flags)) % 31 == 0) => {
                Some(CodedFormat::Zlib)
            }
            Self::Deflate => is_deflated(begin).then_some(CodedFormat::Deflate),
        }
    }
}

/// Whether bytes are deflated, without a signature: whether they can be inflated.
fn is_deflated(begin: &[u8]) -> bool {
    let is_complete = begin.len() < ContentCoding::DECISIVE;
    let mut inflate = Decompress::new(false);
    let mut scratch = vec![0; 16 << 10];
    loop {
        let (taken, made) = (inflate.total_in(), inflate.total_out());
        let rest = usize::try_from(taken).map_or(&[][..], |taken| &begin[taken..]);
        match inflate.decompress(rest, &mut scratch, FlushDecompress::None) {
            Ok(Status::StreamEnd) => return inflate.total_in() == begin.len() as u64,
            Ok(_) if (inflate.total_in(), inflate.total_out()) == (taken, made) => {
                return !is_complete && made > 0;
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, ZlibEncoder};

    use super::*;

    #[test]
    fn lists_of_codings_are_parsed() {
        use ContentCoding::{Deflate, Gzip};
        for (stated, expected) in [
            ("gzip", Some(vec![Gzip])),
            ("x-gzip", Some(vec![Gzip])),
            ("deflate, gzip", Some(vec![Deflate, Gzip])),
            ("gzip, gzip, gzip", None),
            ("br", None),
            ("gzip, br", None),
        ] {
            let found = ContentCoding::parse_list(stated).ok();
            assert_eq!(found, expected, "{stated}");
        }
    }

    #[test]
    fn formats_are_recognized_by_the_bytes() {
        let text: Vec<u8> = (0..40_000_u32)
            .flat_map(|n| n.to_string().into_bytes())
            .collect();
        let begin = |bytes: &[u8]| bytes[..bytes.len().min(ContentCoding::DECISIVE)].to_vec();
        for text in [&text[..], &text[..50], b"", b"a"] {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
            zlib.write_all(text).unwrap();
            let mut raw = DeflateEncoder::new(Vec::new(), Compression::fast());
            raw.write_all(text).unwrap();
            let (zlib, raw) = (zlib.finish().unwrap(), raw.finish().unwrap());
            let of = |bytes: &[u8]| ContentCoding::Deflate.format(&begin(bytes));
            assert_eq!(of(&zlib), Some(CodedFormat::Zlib));
            assert_eq!(of(&raw), Some(CodedFormat::Deflate));
            assert_eq!(of(text), None);
        }
        for text in [
            "<html>",
            "<?xml version=\"1.0\"?>",
            "%PDF-1.5",
            "{}",
            "text",
            "\u{feff}a",
        ] {
            assert_eq!(
                ContentCoding::Deflate.format(text.as_bytes()),
                None,
                "{text}"
            );
        }
        assert_eq!(
            ContentCoding::Gzip.format(b"\x1f\x8b\x08"),
            Some(CodedFormat::Gzip)
        );
        assert_eq!(ContentCoding::Gzip.format(b"text"), None);
    }
}
