//! Serialization of values that documents state as text.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::entries::ChangeFrequency;
use crate::{Algorithm, Capability, ChangeKind, Digest, Interval, Oddities, SourceTime};

macro_rules! as_text {
    ($($name:ident: $parse:expr, $what:literal;)*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<str>::deserialize(deserializer)?;
                let parse: fn(&str) -> Option<Self> = $parse;
                parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not {}", $what)))
            }
        }
    )*};
}

as_text! {
    Algorithm: Self::parse, "a digest algorithm";
    Capability: |text| Self::parse(text, &mut Oddities::default()), "a capability";
    ChangeFrequency: Self::parse, "a frequency of changes";
    ChangeKind: Self::parse, "a kind of change";
    Digest: |text| Digest::parse_hashes(text, &mut Oddities::default()).pop(), "a digest";
    SourceTime: |text| text.parse().ok(), "a W3C datetime";
}

/// An interval is the pair of its ends.
impl Serialize for Interval {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.from(), self.until()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (from, until) = Deserialize::deserialize(deserializer)?;
        Self::new(from, until).ok_or_else(|| D::Error::custom("an interval ends before it begins"))
    }
}
