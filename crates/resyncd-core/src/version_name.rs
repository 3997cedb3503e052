//! The versions of a resource, and the names of those that are stored: their times, `20130103T180000Z`.

use chrono::{Datelike as _, NaiveDateTime};
use resourcesync::SourceTime;

use crate::ResourceUri;

/// A version of a resource, at a URI of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memento {
    /// Where it is.
    pub uri: ResourceUri,
    /// When the resource was so.
    pub at: SourceTime,
}

/// The name of a version of that time: `YYYYMMDDThhmmss[.f]Z`, with as many decimals as needed, up to the microsecond. `None` outside of
/// the years 0 to 9999.
#[must_use]
pub fn version_name(at: SourceTime) -> Option<String> {
    if !(0..=9999).contains(&at.to_datetime().year()) {
        return None;
    }
    let mut name = at.to_datetime().format("%Y%m%dT%H%M%S%.6f").to_string();
    if let Some((_, fraction)) = name.split_once('.') {
        let zeros = fraction.len() - fraction.trim_end_matches('0').len();
        name.truncate(name.len() - zeros);
    }
    if name.ends_with('.') {
        name.pop();
    }
    name.push('Z');
    Some(name)
}

/// The time of a version with that name; `None`: it is no such name.
#[must_use]
pub fn parse_version_name(name: &str) -> Option<SourceTime> {
    let time = NaiveDateTime::parse_from_str(name, "%Y%m%dT%H%M%S%.fZ").ok()?;
    let at = SourceTime::from(time.and_utc());
    // The same time has one name.
    version_name(at)
        .filter(|written| written == name)
        .map(|_| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_times() {
        for (time, name) in [
            ("2013-01-03T18:00:00Z", "20130103T180000Z"),
            ("2013-01-03T18:00:00.5Z", "20130103T180000.5Z"),
            ("2013-01-03T18:00:00.000120Z", "20130103T180000.00012Z"),
            ("2013-01-03T20:00:00+02:00", "20130103T180000Z"),
            ("2013-01-03", "20130103T000000Z"),
            ("0999-12-31T23:59:59Z", "09991231T235959Z"),
        ] {
            let at: SourceTime = time.parse().unwrap();
            assert_eq!(version_name(at).as_deref(), Some(name));
            assert_eq!(parse_version_name(name), Some(at));
        }
        assert_eq!(version_name(SourceTime::MAX), None);
        assert_eq!(version_name(SourceTime::MIN), None);
        for other in [
            "",
            "20130103T180000",
            "20130103T180000.0Z",
            "20130103T180000.Z",
            "2013-01-03T18:00:00Z",
            "20131303T180000Z",
            "20130103T180000Z.bak",
            "%index",
        ] {
            assert_eq!(parse_version_name(other), None, "{other}");
        }
    }
}
