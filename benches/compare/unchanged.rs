//! A second run while nothing has changed: `resyncd sync` asks for the list and compares it with its database; `resync-sync` reads the
//! list and its whole folder.

use super::harness::{Bench, BenchResult, Home, Timed, by_turns, settle};
use super::resync::ResyncClient;
use super::site::{Nginx, Site};
use super::table::{Goal, Line};

/// Of a resource, in bytes.
const SIZE: usize = 1024;

pub(crate) fn run(bench: &Bench) -> BenchResult<Vec<Line>> {
    let site = Site::create(bench, bench.size(50_000, 500), SIZE)?;
    let _nginx = Nginx::of_site(bench, &site)?;
    let what = format!("second run, {} resources, nothing changed", site.resources);
    let resync = ResyncClient::new(bench)?;
    bench.progress("the first copy of resync-sync");
    resync.sync(bench, &site)?;
    let home = Home::of_source(bench, &site.capability_list(), "")?;
    bench.sync(&home)?;
    site.compare(&home.mirror())?;

    let ours = || {
        let timed = bench.sync(&home)?;
        site.compare(&home.mirror())?;
        BenchResult::Ok(timed)
    };
    let mut same_list = || ours();
    let mut theirs = || resync.sync(bench, &site);
    // The time and the validators of the list are new, so that it is read; its entries are the same.
    let mut day = 2;
    let mut new_list = || {
        day += 1;
        site.write_resource_list(&format!("2026-01-{day:02}T00:00:00Z"))?;
        settle();
        ours()
    };
    // The newer list of a round is the same list of the next one.
    let [same_list, theirs, new_list] =
        by_turns(bench.rounds(), [&mut same_list, &mut theirs, &mut new_list])?;
    let line = |what: String, ours: Timed| {
        Line::new(what)
            .resyncd(ours)
            .peer(format!("resync-sync: {theirs}"))
            .ratio(
                theirs.seconds() / ours.seconds(),
                Goal::AtLeast(25.0, " times as fast"),
            )
    };
    Ok(vec![
        line(what.clone(), same_list),
        line(format!("{what}, but the list is a newer one"), new_list),
    ])
}
