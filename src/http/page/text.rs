//! `GET /` for programs that do not ask for HTML, and for people with `curl`.

use crate::status::Status;

/// The summary as text, what needs attention first.
pub(super) fn front_text(status: &Status) -> String {
    let mut page = format!(
        "resyncd {}, up since {}\n",
        status.version,
        whole_seconds(&status.started_at)
    );
    for attention in &status.attention {
        page.push_str(&format!(
            "\n! {} [{}, since {}]\n  {}\n",
            attention.message,
            attention.code,
            whole_seconds(&attention.since),
            attention.next_step
        ));
    }
    for source in &status.sources {
        let of_sets = source.sets.iter().flat_map(|set| &set.attention);
        for attention in source.attention.iter().chain(of_sets) {
            page.push_str(&format!(
                "\n! {}: {} [{}, since {}]\n  {}\n",
                source.name,
                attention.message,
                attention.code,
                whole_seconds(&attention.since),
                attention.next_step
            ));
        }
    }
    for source in &status.sources {
        page.push_str(&format!(
            "\n{} ({}): {}\n",
            source.name, source.url, source.state
        ));
        for set in &source.sets {
            let until = set.synced_until.as_deref().unwrap_or("-");
            page.push_str(&format!(
                "  {}: {}, up to date as of {until}, {} resources, {} pending, {} failed",
                set.capability_list, set.state, set.resources, set.pending, set.failed
            ));
            if set.held_deletions > 0 {
                page.push_str(&format!(", {} deletions held back", set.held_deletions));
            }
            page.push('\n');
            for gap in &set.gaps {
                page.push_str(&format!(
                    "    gap from {} until {} [{}, since {}]\n",
                    gap.from,
                    gap.until,
                    gap.reason,
                    whole_seconds(&gap.since)
                ));
            }
        }
    }
    page.push_str(
        "\nMore: /status /metrics /changes /failed /held /resource?uri= /healthz /readyz\n",
    );
    page
}

/// A time of our own clock without the fraction of its second. Times of a Source are shown as they are.
fn whole_seconds(time: &str) -> String {
    let whole = time.split_once('.').map(|(whole, _)| format!("{whole}Z"));
    whole.unwrap_or_else(|| time.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_of_seconds_are_not_shown() {
        let cases = [
            ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ];
        for (time, shown) in cases {
            assert_eq!(whole_seconds(time), shown);
        }
    }
}
