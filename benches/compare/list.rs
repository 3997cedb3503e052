//! Reading a Resource List, with everything that a reader of documents checks and makes of it, against splitting the same bytes into XML
//! events and dropping them.

use std::hint::black_box;

use quick_xml::events::Event;
use quick_xml::reader::Reader;
use resourcesync::DocumentReader;
use resyncd::clock;
use url::Url;

use super::harness::{Bench, BenchResult, Timed, by_turns};
use super::site::{ENTRIES_A_LIST, LISTED_AT, RESOURCE_LIST, Site, first_content};
use super::table::{Goal, Line};

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let entries = bench.size(ENTRIES_A_LIST, 1000);
    let site = Site::without_files(bench, "http", entries, 100, first_content)?;
    site.write_resource_list(LISTED_AT)?;
    let list = std::fs::read(site.root().join(RESOURCE_LIST))?;
    let base = Url::parse(&site.base())?;

    let mut ours = || in_process(|| read_entries(&list, &base));
    let mut bare = || in_process(|| read_events(&list));
    let [ours, bare] = by_turns(bench.size(21, 3), [&mut ours, &mut bare])?;
    let rate = |timed: Timed| {
        let megabytes = list.len() as f64 / 1e6;
        format!(
            "{:.1} ms, {:.0} MB/s",
            timed.seconds() * 1000.0,
            megabytes / timed.seconds()
        )
    };
    let line = Line::new(format!("reading a Resource List of {entries} entries"))
        .resyncd(rate(ours))
        .peer(format!("quick-xml alone: {}", rate(bare)))
        .ratio(
            bare.seconds() / ours.seconds(),
            Goal::AtLeast(0.7, " of its speed"),
        );
    Ok(vec![line])
}

fn read_entries(list: &[u8], base: &Url) -> BenchResult<()> {
    let mut reader = DocumentReader::open(list, base)?;
    while let Some(entry) = reader.next_entry()? {
        black_box(entry);
    }
    Ok(())
}

fn read_events(list: &[u8]) -> BenchResult<()> {
    let mut reader = Reader::from_reader(list);
    let mut buffer = Vec::new();
    while black_box(reader.read_event_into(&mut buffer)?) != Event::Eof {
        buffer.clear();
    }
    Ok(())
}

fn in_process(measured: impl FnOnce() -> BenchResult<()>) -> BenchResult<Timed> {
    let started = clock::now().mono;
    measured()?;
    Ok(Timed {
        wall: clock::now().mono - started,
        ..Timed::default()
    })
}
