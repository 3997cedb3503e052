//! The examples of the core (version 1.0) and of the draft of notifications (version 0.8), word for word.
//!
//! Five of the core were damaged where their pages were turned into text: they are rejected, whatever is left of them.

use resourcesync::{ReadError, read_document};

use crate::base;

/// The number of an example, its text, and what is expected of it.
type Case = (&'static str, &'static str, &'static str);

macro_rules! core {
    ($number:literal, $expected:literal) => {
        (
            $number,
            include_str!(concat!("core-1.0/", $number, ".xml")),
            $expected,
        )
    };
}

macro_rules! notification {
    ($number:literal, $expected:literal) => {
        (
            $number,
            include_str!(concat!("notification-0.8/", $number, ".xml")),
            $expected,
        )
    };
}

/// Root element, capability, number of entries, and oddities.
const CORE: [Case; 25] = [
    core!("1", "Urlset resourcelist 2 no-up=1"),
    core!("2", "Urlset resourcelist 2 capability-spelling=1 no-up=1"),
    core!("3", "Urlset changelist 2 no-up=1"),
    core!("4", "Urlset resourcedump 1 no-up=1"),
    core!("5", "Urlset resourcedump-manifest 2 no-up=1"),
    core!("6", "Urlset capabilitylist 3"),
    core!("7", "Urlset description 1 namespace-spelling=1"),
    core!(
        "8",
        "Sitemapindex resourcelist 2 capability-spelling=1 no-up=1"
    ),
    core!("12", "Urlset description 3"),
    core!("13", "Urlset capabilitylist 4"),
    core!("15", "Sitemapindex resourcelist 3 namespace-spelling=1"),
    core!(
        "16",
        "Urlset resourcelist 2 namespace-spelling=1 capability-spelling=1"
    ),
    core!("17", "Urlset resourcedump 2 several-metadata=1"),
    core!("18", "Urlset resourcedump-manifest 2"),
    core!("19", "Urlset changelist 3 bad-loc=1"),
    core!("20", "Sitemapindex changelist 3"),
    core!("21", "Urlset changelist 3 bad-loc=1"),
    core!("22", "Urlset changedump 3 namespace-spelling=1"),
    core!("24", "Urlset changelist 1"),
    core!("25", "Urlset changelist 1"),
    core!("26", "Urlset changelist 1"),
    core!("29", "Urlset changelist 1"),
    core!("30", "Urlset changelist 1"),
    core!("31", "Urlset changelist 1"),
    core!("33", "Urlset changelist 1"),
];

/// The codes of their errors.
const DAMAGED: [Case; 5] = [
    core!("14", "not-xml"),
    core!("23", "not-xml"),
    core!("27", "not-xml"),
    core!("28", "cut-short"),
    core!("32", "not-xml"),
];

const NOTIFICATIONS: [Case; 4] = [
    notification!("3.1", "Urlset capabilitylist 6"),
    notification!("4.1", "Urlset none 2 no-capability=1"),
    notification!("5.1", "Urlset none 1 no-capability=1"),
    notification!("5.2", "Urlset none 3 no-capability=1"),
];

fn shown(text: &str) -> Result<String, ReadError> {
    let document = read_document(text.as_bytes(), &base())?;
    let capability = document.head.md.capability;
    let capability = capability.as_ref().map_or("none", |it| it.as_str());
    let facts = format!(
        "{:?} {capability} {} {}",
        document.head.root,
        document.entries.len(),
        document.oddities
    );
    Ok(facts.trim_end().to_owned())
}

#[test]
fn examples_of_the_core_and_of_the_draft_of_notifications_are_read() {
    for (number, text, expected) in CORE.into_iter().chain(NOTIFICATIONS) {
        let found = shown(text).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(found, expected, "{number}");
    }
}

#[test]
fn examples_that_were_damaged_are_rejected() {
    for (number, text, code) in DAMAGED {
        let error = shown(text).unwrap_err();
        assert_eq!(error.code(), code, "{number}: {error}");
    }
}
