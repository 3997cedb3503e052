//! How many entries of a document state each media type and each collection (section 14.7): what a selection can go by.

use std::collections::BTreeMap;
use std::io::BufRead;

use resourcesync::media_type::media_type_essence;
use resourcesync::{DocumentReader, ReadError};

/// How many values are counted one by one.
const MAX_VALUES: usize = 50;
/// How much of a value is kept, in characters.
const LONGEST: usize = 500;

/// How often each value occurs: the first ones that do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of entries, by value.
    pub counted: BTreeMap<String, u64>,
    /// How often further values occur.
    pub others: u64,
}

impl Tally {
    fn count(&mut self, value: &str) {
        let value: String = value.chars().take(LONGEST).collect();
        if let Some(count) = self.counted.get_mut(&value) {
            *count += 1;
        } else if self.counted.len() < MAX_VALUES {
            self.counted.insert(value, 1);
        } else {
            self.others += 1;
        }
    }
}

/// The media types and collections of the entries of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// The media types, without parameters.
    pub types: Tally,
    /// The collections; an entry may be in several.
    pub collections: Tally,
}

impl EntryCounts {
    /// Reads a document to its end. Memory does not depend on its length.
    ///
    /// # Errors
    /// [`ReadError`] where it can't be read any further.
    pub fn read<R: BufRead>(mut reader: DocumentReader<R>) -> Result<Self, ReadError> {
        let mut counts = Self::default();
        while let Some(entry) = reader.next_entry()? {
            let media_type = entry.md.content.media_type.as_deref();
            if let Some(media_type) = media_type.map(media_type_essence) {
                counts.types.count(&media_type);
            }
            for link in entry.links.iter().filter(|link| link.is("collection")) {
                counts.collections.count(link.href.as_str());
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_values_is_bounded() {
        let mut tally = Tally::default();
        for value in 0..1000 {
            tally.count(&format!("a/{value}"));
            tally.count("a/0");
        }
        assert_eq!(tally.counted.len(), MAX_VALUES);
        assert_eq!(tally.counted["a/0"], 1001);
        assert_eq!(tally.others, 1000 - MAX_VALUES as u64);
        tally.count(&"x".repeat(10_000));
        assert_eq!(tally.others, 1001 - MAX_VALUES as u64);
    }
}
