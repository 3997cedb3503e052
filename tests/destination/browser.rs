//! The page in a real browser. It needs `RESYNCD_CHROMEDRIVER`, the path of chromedriver; `.ci/run browser` installs it and runs this.
//! With `RESYNCD_SCREENSHOT` it writes the picture that README.md shows, with `RESYNCD_SCREENSHOTS` all pages into that folder. With
//! `RESYNCD_AXE`, the path of axe-core, no page may have a fault that it finds.

use std::time::Duration;

use resyncd::clock;
use resyncd_testkit::Fault;
use serde_json::json;

use super::page::many_sources;
use crate::support::{Browser, NAME, Rig, SET, resources};

/// How soon after its notification a change is on the page.
const SOON: Duration = Duration::from_secs(2);

/// A browser; `None` without a driver.
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
async fn browser() -> Option<Browser> {
    let Ok(chromedriver) = std::env::var("RESYNCD_CHROMEDRIVER") else {
        println!("skipped: RESYNCD_CHROMEDRIVER is not set");
        return None;
    };
    Some(Browser::start(&chromedriver).await)
}

/// A Source with many resources, followed by a daemon, and a browser; `None` without a driver.
async fn start() -> Option<(Rig, Browser, String)> {
    let browser = browser().await?;
    let rig = Rig::start(resources(150)).await;
    rig.idle().await;
    let base = format!("http://{}", rig.config.status.listen);
    Some((rig, browser, base))
}

/// Changes a resource and publishes its notification.
async fn change(rig: &Rig, name: &str, content: &str) {
    rig.source.update(SET, name, content.to_owned());
    rig.source.notify_and_publish(SET).await.unwrap();
}

/// Drops the notification of a change and publishes the next one, while the Change List does not show it.
async fn lose_one(rig: &Rig, name: &str) {
    rig.source.freeze_change_list(SET, true);
    rig.source.update(SET, name, "lost");
    drop(rig.source.notify(SET));
    change(rig, "r0149.txt", &format!("after {name} was lost")).await;
}

async fn assert_quiet(browser: &Browser, where_: &str) {
    assert_eq!(browser.console().await, [""; 0], "console: {where_}");
    let foreign = "return performance.getEntriesByType('resource').map((it) => it.name).filter((it) => !it.startsWith(location.origin))";
    assert_eq!(browser.run(foreign).await, json!([]), "requests: {where_}");
}

/// Whether the script has loaded the page again, other than to read it.
const MARK: &str = "window.marked = true";

#[tokio::test(flavor = "multi_thread")]
async fn changes_and_gaps_are_seen_as_they_happen() {
    let Some((rig, browser, base)) = start().await else {
        return;
    };
    browser.open(&base).await;
    browser
        .until("document.querySelector('.headline.good')")
        .await;
    browser
        .until("document.getElementById('live-state').textContent === 'Live'")
        .await;
    browser.run(MARK).await;

    let mut delays = Vec::new();
    for number in 0..5 {
        let name = format!("r{number:04}.txt");
        let begun = clock::now().mono;
        change(&rig, &name, "changed").await;
        let row = format!(
            "Array.from(document.querySelectorAll('#changes tr[data-seq]')).some((row) => \
             row.textContent.includes('{name}') && row.textContent.includes('notification'))"
        );
        browser.until(&row).await;
        delays.push(clock::now().mono - begun);
    }
    println!("from the notification to the page: {delays:?}");
    let soon = delays.iter().filter(|&&delay| delay <= SOON).count();
    // A busy machine may pause once or twice.
    assert!(soon >= 3, "{delays:?}");

    // The first gap closes while it is watched.
    lose_one(&rig, "r0100.txt").await;
    browser
        .until("document.querySelector('#sources .state.gap')")
        .await;
    browser
        .until("document.querySelector('.headline.bad')")
        .await;
    rig.source.freeze_change_list(SET, false);
    rig.operator.poll(NAME).await;
    browser
        .until("document.querySelector('.headline.good')")
        .await;
    assert_eq!(
        browser.run("return window.marked").await,
        true,
        "the page was loaded again"
    );
    assert_quiet(&browser, "changes and a gap").await;

    let source = format!("{base}/page/sources/{NAME}");
    browser.open(&source).await;
    browser.run(MARK).await;
    browser
        .until("document.querySelector('.strip rect.closed') && !document.querySelector('.strip rect.gap')")
        .await;
    // The second one is open in the picture.
    for number in 0..60 {
        rig.source
            .update(SET, &format!("r{number:04}.txt"), format!("again {number}"));
        if number % 9 == 0 {
            rig.source
                .create(SET, &format!("new{number}.txt"), "created");
            rig.source.notify_and_publish(SET).await.unwrap();
        }
    }
    rig.source.delete(SET, "new0.txt");
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until_mirrored().await;
    lose_one(&rig, "r0101.txt").await;
    browser
        .until("document.querySelector('.strip rect.gap')")
        .await;
    if let Ok(path) = std::env::var("RESYNCD_SCREENSHOT") {
        let size =
            json!({ "width": 1100, "height": 1250, "deviceScaleFactor": 1, "mobile": false });
        browser
            .devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
        let picture = browser.screenshot().await;
        assert!(picture.len() < 200_000, "{} bytes", picture.len());
        std::fs::write(path, picture).unwrap();
    }
    assert_eq!(
        browser.run("return window.marked").await,
        true,
        "the page was loaded again"
    );
    assert_quiet(&browser, "the end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn buttons_poll_retry_and_approve() {
    const PATH: &str = "/set1/res/r0140.txt";
    let Some((rig, browser, base)) = start().await else {
        return;
    };
    browser.open(&format!("{base}/page/sources/{NAME}")).await;
    let hits = rig.source.hits("/set1/changelist.xml");
    browser.click("#poll-sample-source").await;
    browser
        .until("document.querySelector('.done')?.textContent.includes('is being polled')")
        .await;
    rig.source
        .wait_for_hits("/set1/changelist.xml", hits + 1)
        .await;

    browser.open(&base).await;
    rig.source.fail(PATH, Fault::Status(404), usize::MAX);
    change(&rig, "r0140.txt", "fails first").await;
    rig.until("failed", |set| set.failed == 1).await;
    browser
        .until("document.querySelector('#attention')?.textContent.includes('failed-resources')")
        .await;
    rig.source.heal(PATH);
    browser.click("#attention button[id^=retry]").await;
    browser
        .until("document.querySelector('.done')?.textContent.includes('tried again')")
        .await;
    rig.until_holds("r0140.txt", "fails first").await;

    for number in 0..120 {
        rig.source.delete(SET, &format!("r{number:04}.txt"));
    }
    rig.source.notify_and_publish(SET).await.unwrap();
    rig.until("held back", |set| set.held_deletions == 120)
        .await;
    browser
        .until("document.querySelector('#attention')?.textContent.includes('held-deletions')")
        .await;
    browser.click("#attention a").await;
    browser
        .until("location.pathname === '/page/sources/sample'")
        .await;
    // It is behind a warning, and stays open while the page is kept up to date.
    browser.click("#held .confirm summary").await;
    change(&rig, "r0141.txt", "while the warning is read").await;
    browser
        .until("document.querySelector('#changes')?.textContent.includes('r0141.txt')")
        .await;
    browser
        .until("document.querySelector('#held .confirm[open]')")
        .await;
    browser.click("#held .confirm button").await;
    browser.until("document.querySelector('.done')?.textContent.includes('120 deletions of sample approved')").await;
    assert_eq!(
        browser.run("return location.pathname").await,
        "/page/sources/sample"
    );
    rig.until("deleted", |set| set.resources == 30).await;
    browser
        .until("!document.querySelector('#held table')")
        .await;
    assert_quiet(&browser, "buttons").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_suit_phones_keyboards_screen_readers_and_browsers_without_scripts() {
    let Some((rig, browser, base)) = start().await else {
        return;
    };
    change(&rig, "r0001.txt", "changed").await;
    rig.until_holds("r0001.txt", "changed").await;
    rig.settled().await;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("uri", &rig.uri("r0001.txt"));
    let pages = [
        format!("{base}/"),
        format!("{base}/page/sources/{NAME}"),
        format!("{base}/page/resource?{}", query.finish()),
    ];
    let phone = json!({ "width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true });
    browser
        .devtools("Emulation.setDeviceMetricsOverride", phone)
        .await;
    for scheme in ["light", "dark"] {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser
            .devtools("Emulation.setEmulatedMedia", features)
            .await;
        let mut grounds = Vec::new();
        for page in &pages {
            browser.open(page).await;
            let width = browser
                .run("return document.documentElement.scrollWidth")
                .await;
            assert!(width.as_u64().unwrap() <= 360, "{page} is {width} wide");
            grounds.push(
                browser
                    .run("return getComputedStyle(document.body).backgroundColor")
                    .await,
            );
            assert_quiet(&browser, page).await;
        }
        let is_dark = grounds.iter().all(|ground| ground != "rgb(255, 255, 255)");
        assert_eq!(is_dark, scheme == "dark", "{grounds:?}");
    }
    for page in &pages {
        browser.open(page).await;
        // The first key leads to the link to the content, and what has the focus can be seen.
        browser.press("\u{e004}").await;
        let focused = "const it = document.activeElement; return [it.className, it.getBoundingClientRect().left >= 0]";
        assert_eq!(browser.run(focused).await, json!(["skip", true]), "{page}");
        // What a screen reader reads: every picture, link, button and field has a name.
        let tree = browser
            .devtools("Accessibility.getFullAXTree", json!({}))
            .await;
        let nodes = tree["nodes"].as_array().unwrap();
        let mut named = 0;
        for node in nodes.iter().filter(|node| node["ignored"] == false) {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            if matches!(
                role,
                "button" | "link" | "image" | "img" | "textbox" | "region" | "navigation"
            ) {
                let name = node["name"]["value"].as_str().unwrap_or_default();
                assert!(!name.is_empty(), "{page}: {node}");
                named += 1;
            }
        }
        assert!(named > 5, "{page}: {named}");
        let headings =
            "return document.querySelectorAll('h1').length + ' ' + document.documentElement.lang";
        assert_eq!(browser.run(headings).await, "1 en", "{page}");
    }
    browser
        .devtools(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": true }),
        )
        .await;
    for page in &pages {
        browser.open(page).await;
        // The driver's own scripts run all the same.
        let shown = "return [document.getElementById('live').hidden, document.body.innerText.includes('r0001.txt') || \
             document.body.innerText.includes('in-sync')]";
        assert_eq!(browser.run(shown).await, json!([true, true]), "{page}");
    }
    browser.open(&pages[1]).await;
    browser.click("#poll-sample-source").await;
    // A click does not wait for the page that answers it.
    browser.until("document.querySelector('.done')").await;
    let done = browser
        .run("return document.querySelector('.done').textContent")
        .await;
    assert_eq!(done, "sample is being polled.");
}

/// The least contrast of the text that is seen, and where it is. Backgrounds are opaque, or are those of what is around.
const CONTRAST: &str = "
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = (colour) => {
        const linear = parts(colour).slice(0, 3).map((it) => it / 255).map((it) => it <= .04045 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4);
        return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
    };
    const ground = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return parts(colour)[3] === 0 && element.parentElement ? ground(element.parentElement) : colour;
    };
    let least = [21, ''];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('svg')) continue;
        const [one, other] = [getComputedStyle(element).color, ground(element)].map(luminance);
        const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
        if (contrast < least[0]) least = [contrast, texts.currentNode.data];
    }
    return least";

#[tokio::test(flavor = "multi_thread")]
async fn forty_sources_are_seen_at_once_on_every_screen() {
    let Some(browser) = browser().await else {
        return;
    };
    let mut rig = many_sources(40).await;
    let base = format!("http://{}", rig.config.status.listen);
    let zone = json!({ "timezoneId": "Asia/Tokyo" });
    browser
        .devtools("Emulation.setTimezoneOverride", zone)
        .await;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("uri", &rig.uri("r0001.txt"));
    let pages = [
        base.clone(),
        format!("{base}/page/sources/{NAME}"),
        format!("{base}/page/sources/site-07"),
        format!("{base}/page/resource?{}", query.finish()),
        format!("{base}/page/find?part=res"),
    ];
    let axe = std::env::var("RESYNCD_AXE");
    let axe = axe.ok().map(|path| std::fs::read_to_string(path).unwrap());
    let shots = std::env::var("RESYNCD_SCREENSHOTS").ok();
    for (width, scheme) in [
        (390, "light"),
        (390, "dark"),
        (1280, "light"),
        (1280, "dark"),
        (1920, "light"),
        (1920, "dark"),
    ] {
        let size = json!({ "width": width, "height": 1200, "deviceScaleFactor": 1, "mobile": width < 500 });
        browser
            .devtools("Emulation.setDeviceMetricsOverride", size)
            .await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser
            .devtools("Emulation.setEmulatedMedia", features)
            .await;
        for (number, page) in pages.iter().enumerate() {
            browser.open(page).await;
            let wide = "return document.documentElement.scrollWidth";
            let wide = browser.run(wide).await.as_u64().unwrap();
            assert!(wide <= width, "{page} is {wide} wide, of {width}");
            // Also where a change is fresh.
            let fresh = "for (const row of document.querySelectorAll('tr[data-seq]')) row.style.background = 'var(--fresh)'";
            browser.run(fresh).await;
            let least = browser.run(CONTRAST).await;
            assert!(
                least[0].as_f64().unwrap() >= 4.5,
                "{page} {scheme}: {least}"
            );
            if let Some(axe) = &axe {
                let faults = format!(
                    "{axe}; return axe.run(document).then((found) => found.violations.map((it) => \
                     [it.id, it.nodes.slice(0, 3).map((node) => node.html)]))"
                );
                assert_eq!(browser.run(&faults).await, json!([]), "{page}, {width}");
            }
            if let Some(folder) = &shots {
                let path = format!("{folder}/{number}-{width}-{scheme}.png");
                std::fs::write(path, browser.screenshot().await).unwrap();
            }
        }
        browser.open(&base).await;
        let seen = "const rows = document.querySelectorAll('#sources tbody tr'); \
             return [rows.length, Math.ceil(rows[rows.length - 1].getBoundingClientRect().bottom)]";
        let seen = browser.run(seen).await;
        assert_eq!(seen[0], 40);
        assert!(seen[1].as_u64().unwrap() <= 1200, "{width}: {seen}");
    }
    // The filter works at once, also while the page is paused, and is in the address.
    browser.click("#live-pause").await;
    browser.run("const name = document.getElementById('filter-name'); name.value = 'site-1'; name.dispatchEvent(new Event('input', { bubbles: true }))").await;
    let shown = "return Array.from(document.querySelectorAll('#sources tbody tr')).filter((row) => row.checkVisibility()).length";
    assert_eq!(browser.run(shown).await, 10);
    assert_eq!(
        browser.run("return location.search").await,
        "?name=site-1&state="
    );
    browser
        .until("document.querySelectorAll('#sources tbody tr').length === 10")
        .await;
    browser.run("const name = document.getElementById('filter-name'); name.value = ''; name.dispatchEvent(new Event('input', { bubbles: true }))").await;
    browser
        .until("document.querySelectorAll('#sources tbody tr').length === 40")
        .await;
    // The time of the browser stands beside that of UTC.
    browser.open(&pages[1]).await;
    let local = "const time = document.querySelector('#sets time'); \
         return time.textContent.endsWith(new Date(time.dateTime).toLocaleString('sv', { timeZone: 'Asia/Tokyo' }) + ' here)')";
    assert_eq!(browser.run(local).await, true);
    assert_quiet(&browser, "forty Sources").await;
    rig.stop_daemon().await;
}
