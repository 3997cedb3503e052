//! Extra files: which files are reported, which are deleted.

use chrono::{SecondsFormat, TimeDelta};
use resyncd::clock;

use super::*;
use crate::support::client;

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_extra_while_a_list_is_unreadable() {
    let options = SampleOptions {
        entries_per_list: 2,
        ..resources(6)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let stray = file(&source, &home, SET, "stray.txt");
    fs::write(&stray, "stray").unwrap();
    fs::remove_file(file(&source, &home, SET, "r0000.txt")).unwrap();
    for list in [
        "resourcelist-0001.xml",
        "resourcelist.xml",
        "changelist.xml",
    ] {
        let path = format!("/set1/{list}");
        source.fail(&path, Fault::Status(404), usize::MAX);
        let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let found = found(&output);
        let unread = format!("unreachable {list} not-found");
        assert!(found.contains(&unread), "{found:?}");
        assert!(
            !found.iter().any(|found| found.contains("extra")),
            "{found:?}"
        );
        assert_eq!(lines(&output).1["whole"], false);
        assert!(stray.exists());
        source.heal(&path);
    }
    // Resources of the readable lists were repaired.
    assert!(file(&source, &home, SET, "r0000.txt").exists());
    source.fail("/*", Fault::Status(500), usize::MAX);
    let output = home.run_command(&["audit"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    source.heal("/*");
    let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&output, 0, &["+extra stray.txt"]);
    assert!(!stray.exists());
}

/// An entry that can't be read may name a set, or the Change List that states the newest resources.
#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_extra_while_what_names_the_lists_is_damaged() {
    let other = "set2";
    let options = SampleOptions {
        sets: vec![SET.to_owned(), other.to_owned()],
        ..resources(2)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    source.create(other, "new.txt", "new");
    sync(&home);
    let before = files(&home.mirror);
    assert!(file(&source, &home, other, "new.txt").exists());
    for (path, named) in [
        ("/.well-known/resourcesync", "/set2/capabilitylist.xml"),
        ("/set2/capabilitylist.xml", "/set2/changelist.xml"),
    ] {
        let uri = source.base().join(path).unwrap();
        let answer = client().get(uri).send().await.unwrap();
        let document = answer.text().await.unwrap();
        let damaged = document.replacen(named, "&unknown;", 1);
        assert_ne!(damaged, document);
        source.put_document(path, "application/xml", damaged);
        let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
        let name = path.rsplit('/').next().unwrap();
        assert_found(&output, 1, &[&format!("unreachable {name} bad-entries")]);
        assert_eq!(lines(&output).1["whole"], false);
        assert_eq!(files(&home.mirror), before);
        source.remove_document(path);
    }
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_extra_if_the_lists_do_not_prove_absence() {
    let source = SampleSource::start(resources(3)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let list = |md: &str, more: &str| {
        let uri = source.resource_uri(SET, "r0000.txt");
        format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{md}<url><loc>{uri}</loc></url>{more}</urlset>"
        )
    };
    let stated = "<rs:md capability=\"resourcelist\"/>";
    let path = "/set1/resourcelist.xml";
    source.put_document(path, "application/xml", list("", ""));
    let output = home.run_command(&["audit"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout).contains("nothing is reported as extra"),
        "{output:?}"
    );
    source.put_document(
        path,
        "application/xml",
        list(stated, "<url><lastmod>2013</lastmod></url>"),
    );
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["unreachable resourcelist.xml bad-entries"]);
    source.put_document(path, "application/xml", list(stated, ""));
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["extra r0001.txt", "extra r0002.txt"]);
    source.remove_document(path);

    // No list states this change.
    source.set_change_list(SET, false);
    source.create(SET, "lost.txt", "lost");
    source.set_change_list(SET, true);
    let output = home.run_command(&["audit", "--json"]);
    assert_found(
        &output,
        1,
        &["unreachable capabilitylist.xml change-list-starts-late"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_file_is_extra_where_the_daemon_would_delete_none() {
    let options = SampleOptions {
        change_list: false,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    let (first, second) = ("/set1/resourcelist.xml", "/set1/second");
    let uri = |name| source.resource_uri(SET, name);
    let put = |path: &str, root: &str, at: &str, links: &str, entries: &[String]| {
        let entries: String = entries.concat();
        let document = format!(
            "<{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:xhtml=\"http://www.w3.org/1999/xhtml\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{links}<rs:md capability=\"resourcelist\" at=\"{at}\"/>{entries}</{root}>"
        );
        source.put_document(path, "application/xml", document);
    };
    let entry = |name| format!("<url><loc>{}</loc></url>", uri(name));
    let next = format!(
        "<rs:ln rel=\"next\" href=\"{}\"/>",
        source.base().join(second).unwrap()
    );
    // Both after the list that was read, and neither in the future.
    let now = clock::now().wall;
    let [at, later] = [now, now + TimeDelta::microseconds(1)]
        .map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true));
    let extra = async |expected: &[&str]| {
        let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
        assert_found(&output, 0, expected);
    };

    // Version 0.1 does not say that a list names everything.
    let push =
        "<xhtml:link href=\"http://example.com/push\" rs:protocol=\"http://example.com/push\"/>";
    put(first, "urlset", &at, push, &[entry("r0000.txt")]);
    extra(&[]).await;
    // A list as plain text may be cut short.
    let part = format!(
        "<sitemap><loc>{}</loc></sitemap>",
        source.base().join(second).unwrap()
    );
    put(first, "sitemapindex", &at, "", std::slice::from_ref(&part));
    source.put_document(second, "text/plain", uri("r0000.txt").to_string());
    extra(&[]).await;
    // A resource may have moved to a page that was read before.
    put(first, "urlset", &at, &next, &[entry("r0000.txt")]);
    put(second, "urlset", &later, "", &[entry("r0001.txt")]);
    extra(&[]).await;
    assert_eq!(files(&home.mirror).len(), 3);
    put(second, "urlset", &at, "", &[entry("r0001.txt")]);
    extra(&["+extra r0002.txt"]).await;
    // The index has no pages, and those of its part are of one time.
    let third = "/set1/third";
    let next = next.replace(second, third);
    put(first, "sitemapindex", &later, "", &[part]);
    put(second, "urlset", &at, &next, &[entry("r0000.txt")]);
    put(third, "urlset", &at, "", &[]);
    extra(&["+extra r0001.txt"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_resource_list_is_reported_and_reverts_nothing() {
    let options = SampleOptions {
        change_list: false,
        ..resources(5)
    };
    let source = SampleSource::start(options).await.unwrap();
    let home = Home::new(&source.url(), "");
    let path = "/set1/resourcelist.xml";
    let url = source.base().join(path).unwrap();
    // The entries of the list have no `lastmod`.
    let undated = async || {
        source.remove_document(path);
        let served = client().get(url.clone()).send().await.unwrap();
        let served = served.text().await.unwrap();
        let entries = served.split("<lastmod>").map(|part| {
            let dated = part.split_once("</lastmod>");
            dated.map_or(part, |(_, undated)| undated)
        });
        let list: String = entries.collect();
        source.put_document(path, "application/xml", list.clone());
        list
    };
    let old = undated().await;
    sync(&home);
    source.create(SET, "new.txt", "new");
    source.delete(SET, "r0002.txt");
    source.refresh_resource_list(SET);
    undated().await;
    sync(&home);
    home.assert_mirrored(&source, &[SET]);
    source.put_document(path, "application/xml", old);
    let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
    let older = "unreachable resourcelist.xml older-resource-list";
    assert_found(&output, 1, &[older]);
    home.assert_mirrored(&source, &[SET]);
    undated().await;
    assert_found(&home.run_command(&["audit", "--json"]), 0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_file_is_extra_and_deleted_only_with_delete_extra() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "delete = false");
    sync(&home);
    let text = fs::read_to_string(&home.config).unwrap();
    fs::write(&home.config, text + "exclude = [\"*r0002*\"]\n").unwrap();
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["extra r0002.txt"]);
    let output = home.run_command(&["audit", "--repair", "--json"]);
    assert_found(&output, 1, &["extra r0002.txt"]);
    assert_eq!(files(&home.mirror).len(), 4);
    let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&output, 0, &["+extra r0002.txt"]);
    assert_eq!(files(&home.mirror).len(), 3);
    let running = home.run();
    home.until("three resources", |set| {
        set.state == "in-sync" && set.resources == 3
    })
    .await;
    let feed = home.operator.changes(0).await;
    let last = feed.last().unwrap();
    assert_eq!(
        (last.change.as_str(), last.origin.as_str()),
        ("deleted", "audit")
    );
    assert_eq!(running.stop().await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_retained_by_delete_off_are_not_extra() {
    let source = SampleSource::start(resources(4)).await.unwrap();
    let home = Home::new(&source.url(), "delete = false");
    sync(&home);
    source.delete(SET, "r0000.txt");
    sync(&home);
    source.delete(SET, "r0001.txt");
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 0, &[]);
    assert_eq!(lines(&output).1["kept"], 2);
    let output = home.run_command(&["audit", "--repair", "--delete-extra", "--json"]);
    assert_found(&output, 0, &[]);
    assert_eq!(files(&home.mirror).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_resources_deleted_since_are_extra() {
    let source = SampleSource::start(resources(150)).await.unwrap();
    let home = Home::new(&source.url(), "");
    sync(&home);
    for number in 0..120 {
        source.delete(SET, &format!("r{number:04}.txt"));
    }
    let output = home.run_command(&["audit", "--json"]);
    assert_eq!(found(&output).len(), 120, "{output:?}");
    assert_eq!(lines(&output).1["extra"], 120);
    let output = home.run_command(&["audit"]);
    assert!(text(&output.stdout).contains("and 100 more"), "{output:?}");
    // A daemon would hold so many deletions back; `--delete-extra` does not.
    let output = home.run_command(&["audit", "--repair", "--delete-extra"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    home.assert_mirrored(&source, &[SET]);
    sync(&home);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_of_a_list_is_compared() {
    let options = SampleOptions {
        change_list: false,
        ..resources(3)
    };
    let source = SampleSource::start(options).await.unwrap();
    let page = |path: &str, name: &str, next: &str| {
        let uri = source.resource_uri(SET, name);
        let next = match next {
            "" => String::new(),
            next => format!("<rs:ln rel=\"next\" href=\"{next}\"/>"),
        };
        let page = format!(
            "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
             xmlns:rs=\"http://www.openarchives.org/rs/terms/\">{next}\
             <rs:md capability=\"resourcelist\" at=\"2026-01-02T00:00:00Z\"/><url><loc>{uri}</loc></url></urlset>"
        );
        source.put_document(path, "application/xml", page);
    };
    let first = "/set1/resourcelist.xml";
    page(first, "r0000.txt", "page2.xml");
    page("/set1/page2.xml", "r0001.txt", "page3.xml");
    page("/set1/page3.xml", "r0002.txt", "");
    let home = Home::new(&source.url(), "");
    sync(&home);
    fs::remove_file(file(&source, &home, SET, "r0002.txt")).unwrap();
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["missing r0002.txt"]);
    // What the pages would name that follow is unknown.
    page("/set1/page3.xml", "r0001.txt", "page2.xml");
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["unreachable page2.xml repeated-page"]);
    source.fail("/set1/page2.xml", Fault::Status(404), usize::MAX);
    let output = home.run_command(&["audit", "--json"]);
    assert_found(&output, 1, &["unreachable page2.xml not-found"]);
}
