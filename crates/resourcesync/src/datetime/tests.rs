//! Which texts are datetimes.

use proptest::prelude::*;

use super::*;

/// Checks the time of a text (as displayed) and the counted oddity.
fn check(text: &str, expected: Option<&str>, oddity: Option<Oddity>) {
    let mut oddities = Oddities::default();
    let time = SourceTime::parse_w3c(text, &mut oddities);
    assert_eq!(
        time.map(|time| time.to_string()).as_deref(),
        expected,
        "{text:?}"
    );
    let mut wanted = Oddities::default();
    if let Some(oddity) = oddity {
        wanted.add(oddity);
    }
    assert_eq!(oddities, wanted, "{text:?}");
    assert_eq!(text.parse::<SourceTime>().ok(), time, "{text:?}");
}

#[test]
fn all_forms_of_w3c_datetime_are_parsed() {
    for (text, expected) in [
        ("2013", "2013-01-01T00:00:00Z"),
        ("2013-02", "2013-02-01T00:00:00Z"),
        ("2013-01-03", "2013-01-03T00:00:00Z"),
        ("2013-01-03T10:00Z", "2013-01-03T10:00:00Z"),
        ("2013-01-03T10:00+09:00", "2013-01-03T01:00:00Z"),
        ("2013-01-03T10:00:01Z", "2013-01-03T10:00:01Z"),
        ("2013-01-03T23:00:01-05:30", "2013-01-04T04:30:01Z"),
        ("2013-01-03T10:00:01.5Z", "2013-01-03T10:00:01.500Z"),
        (
            "2013-01-03T10:00:01.1234567Z",
            "2013-01-03T10:00:01.123456Z",
        ),
        ("2013-01-03T10:00:01-00:00", "2013-01-03T10:00:01Z"),
        ("  2012-02-29T00:00:00Z\n", "2012-02-29T00:00:00Z"),
        ("1969-12-31T23:59:59.9Z", "1969-12-31T23:59:59.900Z"),
        ("2012-06-30T23:59:60Z", "2012-07-01T00:00:00Z"),
    ] {
        check(text, Some(expected), None);
    }
}

#[test]
fn unambiguous_other_forms_are_parsed_and_counted() {
    for (text, expected) in [
        ("2013-01-03T10:00:00", "2013-01-03T10:00:00Z"),
        ("2013-01-03 10:00:00Z", "2013-01-03T10:00:00Z"),
        ("2013-01-03 10:00:00", "2013-01-03T10:00:00Z"),
        ("2013-01-03 10:00:00 UTC", "2013-01-03T10:00:00Z"),
        ("2013-01-03 10:00:00 +0100", "2013-01-03T09:00:00Z"),
        ("2013-01-03t10:00:00z", "2013-01-03T10:00:00Z"),
        ("2013-01-03T10:00:00+0900", "2013-01-03T01:00:00Z"),
        ("2013-01-03T10:00:00+09", "2013-01-03T01:00:00Z"),
        ("2013-01-03T10:00", "2013-01-03T10:00:00Z"),
    ] {
        check(text, Some(expected), Some(Oddity::DatetimeForm));
    }
}

#[test]
fn what_stands_for_no_date_is_ignored_and_counted() {
    for text in [
        "0000-00-00",
        "0000-00-00 00:00:00",
        "0000-00-00T00:00:00Z",
        "0000",
        "-0001-11-30T00:00:00+00:00",
        "-0001-11-30T00:00:00Z",
        "0001-01-01T00:00:00Z",
        " 0001-01-01",
        "-0001-11-30",
        "0001-12-31T23:59:59Z",
    ] {
        let mut oddities = Oddities::default();
        assert_eq!(SourceTime::parse_w3c(text, &mut oddities), None, "{text:?}");
        assert_eq!(oddities.to_string(), "zero-date=1", "{text:?}");
    }
    check("0002-01-01", Some("0002-01-01T00:00:00Z"), None);
}

#[test]
fn invalid_datetimes_are_ignored_and_counted() {
    for text in [
        "",
        "yesterday",
        "13-01-03",
        "201",
        "20131",
        "2013-",
        "2013-1-3",
        "2013-13",
        "2013-02-29",
        "2013-01-03T",
        "2013-01-03T1",
        "2013-01-03T25:00Z",
        "2013-01-03T10:60Z",
        "2013-01-03T10:00:61Z",
        "2013-01-03T10:00:00.Z",
        "2013-01-03T24:00:01Z",
        "2013-01-03T10:00:00+24:00",
        "2013-01-03T10:00:00+09:",
        "2013-01-03T10:00:00Zulu",
        "2013-01-03T10:00:00 CEST",
        "2013-01-03T10:00:00Z 2014",
        "Thu, 03 Jan 2013 10:00:00 GMT",
        "1357207200",
        "２０１３",
        "-12-01-01",
        "13-01-03T10:00:00Z",
        "20130103",
        "2013-01-03T24:00:00Z",
        "2013-01-03T10:00:00,25Z",
    ] {
        check(text, None, Some(Oddity::BadDatetime));
    }
}

proptest! {
    #[test]
    fn displayed_times_parse(micros in any::<i64>()) {
        // Outside the range of chrono a time is clamped, and the clamped time is stable.
        let time = SourceTime::from(SourceTime::from_micros(micros).to_datetime());
        prop_assert_eq!(time.to_string().parse(), Ok(time));
    }

    #[test]
    fn times_of_four_digit_years_are_displayed_as_w3c_datetime(
        micros in -62_104_060_800_000_000_i64..253_402_300_800_000_000,
    ) {
        let time = SourceTime::from_micros(micros);
        let mut oddities = Oddities::default();
        prop_assert_eq!(SourceTime::parse_w3c(&time.to_string(), &mut oddities), Some(time));
        prop_assert!(oddities.is_empty());
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in ".{0,40}", digits in "[0-9TtZ:. +,-]{0,40}") {
        let _ = text.parse::<SourceTime>();
        let _ = digits.parse::<SourceTime>();
    }
}
