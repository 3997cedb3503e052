//! The writer and the reader are each other's test.

use std::io::{self, BufRead, BufReader, Read};

use proptest::prelude::*;
use resyncd::protocol::{
    Document, DocumentReader, Oddities, ReadError, read_document, write_document,
};

use crate::base;
use crate::made::{CAPABILITIES, Made, conforming, documents};
use crate::odd::odd_documents;

fn written(made: &Made) -> Vec<u8> {
    write_document(&made.head, &made.entries)
}

fn read(bytes: &[u8]) -> Result<Document, ReadError> {
    read_document(bytes, &base())
}

/// Reads to the end, and answers how many entries there were before it or before an error.
fn read_on(input: impl BufRead) -> (usize, Result<(), ReadError>) {
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

/// Serves no more bytes than it has, one at a time, and fails if it is asked too often: a reader that loops is found out.
struct Counted<'a> {
    bytes: &'a [u8],
    asked: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.asked += 1;
        assert!(self.asked < 100_000, "the end is asked for without end");
        self.bytes.read(buffer)
    }
}

proptest! {
    #[test]
    fn what_conforms_reads_back_equal_and_without_oddities(
        made in prop::sample::select(CAPABILITIES.to_vec()).prop_flat_map(conforming),
    ) {
        let Made { head, entries } = made.clone();
        let oddities = Oddities::default();
        prop_assert_eq!(read(&written(&made)).unwrap(), Document { head, entries, oddities });
    }

    #[test]
    fn whatever_is_written_reads_back_equal(made in documents()) {
        let read = read(&written(&made)).unwrap();
        prop_assert_eq!(read.head, made.head);
        prop_assert_eq!(read.entries, made.entries);
    }

    #[test]
    fn what_was_odd_is_written_as_it_was_understood(text in odd_documents()) {
        let odd = read(text.as_bytes()).unwrap();
        let once = write_document(&odd.head, &odd.entries);
        let again = read(&once).unwrap();
        prop_assert_eq!(&again.head, &odd.head);
        prop_assert_eq!(&again.entries, &odd.entries);
        prop_assert_eq!(write_document(&again.head, &again.entries), once);
    }

    #[test]
    fn what_is_cut_somewhere_is_an_error(made in documents(), cut in any::<prop::sample::Index>()) {
        let whole = written(&made);
        let cut = cut.index(whole.len() - "\n".len());
        let (entries, read) = read_on(&whole[..cut]);
        prop_assert!(read.is_err(), "cut at {cut}: {}", String::from_utf8_lossy(&whole));
        prop_assert!(entries <= made.entries.len());
    }

    #[test]
    fn spoilt_bytes_neither_panic_nor_loop_nor_pass_for_whole_when_cut(
        made in documents(),
        spoilt in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = written(&made);
        let end = bytes.len() - "\n".len();
        for (at, byte) in spoilt {
            let at = at.index(end);
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(end));
        }
        let counted = Counted { bytes: &bytes, asked: 0 };
        let (entries, read_slowly) = read_on(BufReader::with_capacity(7, counted));
        let at_once = read(&bytes);
        prop_assert_eq!(read_slowly.is_ok(), at_once.is_ok());
        prop_assert!(cut.is_none() || at_once.is_err(), "{}", String::from_utf8_lossy(&bytes));
        if let Ok(document) = at_once {
            prop_assert_eq!(document.entries.len(), entries);
        }
    }

    #[test]
    fn odd_documents_that_are_cut_are_errors(
        text in odd_documents(), cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(text.rfind('>').unwrap());
        prop_assert!(read(&text.as_bytes()[..cut]).is_err(), "{}", &text[..cut]);
    }
}

proptest! {
    // Each of them is read as often as it has bytes.
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn what_is_cut_at_any_byte_is_an_error(made in documents()) {
        let whole = written(&made);
        let end = whole.len() - "\n".len();
        for cut in 0..end {
            let (entries, read) = read_on(&whole[..cut]);
            prop_assert!(read.is_err(), "cut at {cut} of {end}: {}", String::from_utf8_lossy(&whole));
            prop_assert!(entries <= made.entries.len());
        }
        prop_assert_eq!(read(&whole[..end]).unwrap().entries, made.entries);
    }
}
