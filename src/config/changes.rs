//! What a configuration changes of the one that is in use: Sources, and the keys that only a restart applies.

use std::collections::BTreeSet;

use super::Config;
use super::table::Table;

/// What another configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigChanges {
    /// The labels of new Sources, in the order of the other configuration.
    pub added: Vec<String>,
    /// The labels of Sources of which a key differs, in that order.
    pub changed: Vec<String>,
    /// The labels of Sources that it does not have, in the order of this configuration.
    pub removed: Vec<String>,
    /// The keys that differ and that a running daemon does not apply, such as `http.timeout`.
    pub restart_required: Vec<String>,
}

impl Config {
    /// What another configuration changes of this one.
    #[must_use]
    pub fn changes_to(&self, other: &Self) -> ConfigChanges {
        let before = |name: &str| self.sources.iter().find(|source| source.name == name);
        let mut changes = ConfigChanges::default();
        for source in &other.sources {
            match before(&source.name) {
                None => changes.added.push(source.name.clone()),
                Some(before) if before != source => changes.changed.push(source.name.clone()),
                Some(_) => {}
            }
        }
        let stays: BTreeSet<&str> = other.sources.iter().map(|it| it.name.as_str()).collect();
        let gone = self.sources.iter().map(|source| source.name.as_str());
        let gone = gone.filter(|name| !stays.contains(name));
        changes.removed = gone.map(str::to_owned).collect();
        changes.restart_required = self.restart_keys(other);
        changes
    }

    /// The keys outside of the Sources that differ, without those that a reload applies. Each field is named, so that a new one is not
    /// forgotten.
    fn restart_keys(&self, other: &Self) -> Vec<String> {
        let Self {
            state_dir,
            callback,
            status,
            http,
            limits,
            // They are applied.
            feed: _,
            notify: _,
            objects: _,
            log,
            store,
            xmpp,
            publish,
            folders,
            sources: _,
        } = self;
        let mut keys = Vec::new();
        if *state_dir != other.state_dir {
            keys.push("state_dir".to_owned());
        }
        keys.extend(callback.differing(&other.callback));
        keys.extend(status.differing(&other.status));
        keys.extend(http.differing(&other.http));
        keys.extend(limits.differing(&other.limits));
        keys.extend(log.differing(&other.log));
        if *store != other.store {
            keys.push("store".to_owned());
        }
        if *xmpp != other.xmpp {
            keys.push("xmpp".to_owned());
        }
        keys.extend(publish.differing(&other.publish));
        // Whether there is a listener.
        if self.publishes() != other.publishes() {
            keys.push("source.publish".to_owned());
        }
        if *folders != other.folders {
            keys.push("publish.folder".to_owned());
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The configuration that all are compared with.
    const BEFORE: &str = "[[source]]\nname = \"a\"\nurl = \"http://a.example/\"\nmirror = \"a\"\n\
                          [[source]]\nname = \"b\"\nurl = \"http://b.example/\"\nmirror = \"b\"\n";

    fn parse(text: &str) -> Config {
        Config::parse(text, Path::new("/srv/config.toml")).unwrap()
    }

    #[track_caller]
    fn check(text: &str, [added, changed, removed, restart]: [&[&str]; 4]) {
        let found = parse(BEFORE).changes_to(&parse(text));
        let texts = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&it| it.into()).collect() };
        let expected = ConfigChanges {
            added: texts(added),
            changed: texts(changed),
            removed: texts(removed),
            restart_required: texts(restart),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn sources_are_added_changed_and_removed_by_name() {
        check(BEFORE, [&[], &[], &[], &[]]);
        let (a, b) = BEFORE.split_at(BEFORE.rfind("[[source]]").unwrap());
        check(&format!("# a comment\n{b}{a}"), [&[], &[], &[], &[]]);
        check(a, [&[], &[], &["b"], &[]]);
        check(
            &BEFORE.replace("\"b\"", "\"c\""),
            [&["c"], &[], &["b"], &[]],
        );
        for line in [
            "lease = \"1d\"",
            "include = [\"*.pdf\"]",
            "types = [\"application/pdf\"]",
            "collections = [\"urn:x:c\"]",
            "metadata = \"follow\"",
            "representations = [\"text/*\"]",
            "hub = \"http://hub.example/\"",
            "sets = [\"http://b.example/set\"]",
            "max_delete = \"20%\"",
            "versions = \"versions\"",
        ] {
            check(&format!("{BEFORE}{line}\n"), [&[], &["b"], &[], &[]]);
        }
        let with_password = BEFORE.replace("//b.example", "//me:secret@b.example");
        check(&with_password, [&[], &["b"], &[], &[]]);
        // A default that is written down changes nothing.
        check(&format!("{BEFORE}lease = \"10d\"\n"), [&[], &[], &[], &[]]);
    }

    #[test]
    fn other_secrets_of_a_source_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("token");
        let shown = secret.display();
        let auth = format!("{BEFORE}[source.auth]\nbearer_file = \"{shown}\"\n");
        let auth = auth.replace("http://", "https://");
        std::fs::write(&secret, "a-token-of-the-source").unwrap();
        let before = parse(&auth);
        assert_eq!(before.changes_to(&parse(&auth)), ConfigChanges::default());
        std::fs::write(&secret, "another-token-of-the-source").unwrap();
        let changes = before.changes_to(&parse(&auth));
        assert_eq!(changes.changed, ["b"]);
        assert!(changes.restart_required.is_empty());
        let without = before.changes_to(&parse(&BEFORE.replace("http://", "https://")));
        assert_eq!(without.changed, ["b"]);
    }

    #[test]
    fn keys_that_need_a_restart_are_named() {
        for (text, key) in [
            ("state_dir = \"elsewhere\"\n", "state_dir"),
            ("callback.listen = \"127.0.0.1:1\"\n", "callback.listen"),
            (
                "callback.public_url = \"http://d.example/\"\n",
                "callback.public_url",
            ),
            ("status.hosts = [\"d.example\"]\n", "status.hosts"),
            ("http.timeout = \"1s\"\n", "http.timeout"),
            ("limits.sets = 7\n", "limits.sets"),
            ("http.proxy = \"http://p.example:3128\"\n", "http.proxy"),
            ("http.no_proxy = [\"d.example\"]\n", "http.no_proxy"),
            ("log.format = \"json\"\n", "log.format"),
            ("log.level = \"debug\"\n", "log.level"),
        ] {
            check(&format!("{text}{BEFORE}"), [&[], &[], &[], &[key]]);
        }
        check(
            &format!("feed.keep = \"1d\"\n{BEFORE}"),
            [&[], &[], &[], &[]],
        );
    }
}
