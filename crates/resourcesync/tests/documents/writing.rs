//! Writer and reader checked against each other with random documents.

use std::io::{self, BufRead, BufReader, Read};

use proptest::prelude::*;
use resourcesync::{Document, DocumentReader, Oddities, ReadError, read_document, write_document};

use crate::base;
use crate::generated::{CAPABILITIES, Generated, conforming, documents};
use crate::odd::odd_documents;

fn written(generated: &Generated) -> Vec<u8> {
    write_document(&generated.head, &generated.entries)
}

fn read(bytes: &[u8]) -> Result<Document, ReadError> {
    read_document(bytes, &base())
}

/// Reads to the end or to an error. Returns the number of entries before it.
fn count_entries(input: impl BufRead) -> (usize, Result<(), ReadError>) {
    let mut entries = 0;
    let reading = || {
        let mut reader = DocumentReader::open(input, &base())?;
        while reader.next_entry()?.is_some() {
            entries += 1;
        }
        Ok(())
    };
    let read = reading();
    (entries, read)
}

/// Counts the reads and fails if there are too many, so that a reader in a loop is detected.
struct Counted<'a> {
    bytes: &'a [u8],
    reads: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        assert!(self.reads < 100_000, "the reader does not stop at the end");
        self.bytes.read(buffer)
    }
}

proptest! {
    #[test]
    fn conforming_document_reads_back_equal_without_oddities(
        generated in prop::sample::select(CAPABILITIES.to_vec()).prop_flat_map(conforming),
    ) {
        let Generated { head, entries } = generated.clone();
        let oddities = Oddities::default();
        prop_assert_eq!(read(&written(&generated)).unwrap(), Document { head, entries, oddities });
    }

    #[cfg(feature = "serde")]
    #[test]
    fn every_document_is_deserialized_as_it_was_serialized(generated in documents()) {
        let text = serde_json::to_string(&(&generated.head, &generated.entries)).unwrap();
        let read: (resourcesync::Head, Vec<resourcesync::Entry>) = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read, (generated.head, generated.entries));
    }

    #[test]
    fn every_written_document_reads_back_equal(generated in documents()) {
        let read = read(&written(&generated)).unwrap();
        prop_assert_eq!(read.head, generated.head);
        prop_assert_eq!(read.entries, generated.entries);
    }

    #[test]
    fn document_with_oddities_is_written_back_with_its_parsed_meaning(text in odd_documents()) {
        let parsed = read(text.as_bytes()).unwrap();
        let once = write_document(&parsed.head, &parsed.entries);
        let again = read(&once).unwrap();
        prop_assert_eq!(&again.head, &parsed.head);
        prop_assert_eq!(&again.entries, &parsed.entries);
        prop_assert_eq!(write_document(&again.head, &again.entries), once);
    }

    #[test]
    fn truncated_document_is_an_error(generated in documents(), cut in any::<prop::sample::Index>()) {
        let complete = written(&generated);
        let cut = cut.index(complete.len() - "\n".len());
        let (entries, read) = count_entries(&complete[..cut]);
        prop_assert!(read.is_err(), "cut at {cut}: {}", String::from_utf8_lossy(&complete));
        prop_assert!(entries <= generated.entries.len());
    }

    #[test]
    fn corrupt_bytes_neither_panic_nor_loop_nor_hide_truncation(
        generated in documents(),
        corrupt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = written(&generated);
        let end = bytes.len() - "\n".len();
        for (at, byte) in corrupt {
            let at = at.index(end);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(end));
        }
        let counted = Counted { bytes: &bytes, reads: 0 };
        let (entries, read_slowly) = count_entries(BufReader::with_capacity(7, counted));
        let at_once = read(&bytes);
        prop_assert_eq!(read_slowly.is_ok(), at_once.is_ok());
        prop_assert!(cut.is_none() || at_once.is_err(), "{}", String::from_utf8_lossy(&bytes));
        if let Ok(document) = at_once {
            prop_assert_eq!(document.entries.len(), entries);
        }
    }

    #[test]
    fn truncated_document_with_oddities_is_an_error(
        text in odd_documents(), cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(text.rfind('>').unwrap());
        prop_assert!(read(&text.as_bytes()[..cut]).is_err(), "{}", &text[..cut]);
    }
}

proptest! {
    // Each document is read once per byte.
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn document_truncated_at_any_byte_is_an_error(generated in documents()) {
        let complete = written(&generated);
        let end = complete.len() - "\n".len();
        for cut in 0..end {
            let (entries, read) = count_entries(&complete[..cut]);
            prop_assert!(read.is_err(), "cut at {cut} of {end}: {}", String::from_utf8_lossy(&complete));
            prop_assert!(entries <= generated.entries.len());
        }
        prop_assert_eq!(read(&complete[..end]).unwrap().entries, generated.entries);
    }
}
