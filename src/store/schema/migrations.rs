//! The migrations: how a database of an earlier version gets the schema of this one.

/// One step a version; `PRAGMA user_version` is the number of those that were taken. A released step never changes. What a step makes,
/// `tables.sql` has, too: a new database takes no step.
pub(in crate::store) const STEPS: &[&str] = &[
    // Times of the Source and of this machine are microseconds since 1970.
    "
    CREATE TABLE source_set (
        id INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        capability_list TEXT NOT NULL,
        offers TEXT NOT NULL DEFAULT '[]',
        baseline TEXT NOT NULL DEFAULT 'missing',
        list_at INTEGER,
        read_until INTEGER,
        generation INTEGER NOT NULL DEFAULT 0,
        absent_until INTEGER NOT NULL DEFAULT 0,
        ended INTEGER NOT NULL DEFAULT 0,
        resources INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        shares INTEGER NOT NULL DEFAULT 0,
        UNIQUE (source, capability_list)
    );
    CREATE TABLE coverage (
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        from_time INTEGER NOT NULL,
        until_time INTEGER NOT NULL,
        PRIMARY KEY (set_id, from_time)
    ) WITHOUT ROWID;
    CREATE TABLE gap (
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        from_time INTEGER NOT NULL,
        until_time INTEGER NOT NULL,
        reason TEXT NOT NULL,
        since INTEGER NOT NULL,
        PRIMARY KEY (set_id, from_time)
    ) WITHOUT ROWID;
    CREATE TABLE document (
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        uri TEXT NOT NULL,
        etag TEXT,
        last_modified TEXT,
        digest BLOB NOT NULL,
        PRIMARY KEY (set_id, uri)
    ) WITHOUT ROWID;
    CREATE TABLE channel (
        id INTEGER PRIMARY KEY,
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        kind TEXT NOT NULL,
        topic TEXT NOT NULL,
        subscribed_topic TEXT NOT NULL,
        hub TEXT,
        advertised_hubs TEXT NOT NULL,
        known_hubs TEXT NOT NULL,
        token TEXT NOT NULL UNIQUE,
        secret TEXT,
        state TEXT NOT NULL,
        asked TEXT,
        asked_lease INTEGER,
        expires_at INTEGER,
        renew_at INTEGER,
        next_try_at INTEGER,
        failures INTEGER NOT NULL,
        asked_at INTEGER,
        left_for_good INTEGER NOT NULL DEFAULT 0,
        last_notification_at INTEGER,
        waiting_bytes INTEGER NOT NULL DEFAULT 0,
        received INTEGER NOT NULL DEFAULT 0,
        applied INTEGER NOT NULL DEFAULT 0,
        duplicate INTEGER NOT NULL DEFAULT 0,
        rejected INTEGER NOT NULL DEFAULT 0,
        gaps INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX channel_of_set ON channel (set_id);
    CREATE TABLE inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        channel_id INTEGER NOT NULL REFERENCES channel (id),
        received_at INTEGER NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX inbox_of_channel ON inbox (channel_id);
    CREATE TABLE resource (
        id INTEGER PRIMARY KEY,
        source TEXT NOT NULL,
        uri TEXT NOT NULL,
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        path TEXT,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL DEFAULT '',
        lastmod INTEGER,
        changed_at INTEGER,
        change TEXT,
        applied_at INTEGER,
        deleted INTEGER NOT NULL DEFAULT 0,
        next_version INTEGER NOT NULL DEFAULT 0,
        UNIQUE (source, uri)
    );
    CREATE UNIQUE INDEX resource_path ON resource (source, path) WHERE path IS NOT NULL;
    CREATE TABLE member (
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        resource_id INTEGER NOT NULL REFERENCES resource (id),
        generation INTEGER NOT NULL,
        PRIMARY KEY (set_id, resource_id)
    ) WITHOUT ROWID;
    CREATE INDEX member_of ON member (resource_id);
    CREATE TABLE task (
        resource_id INTEGER PRIMARY KEY REFERENCES resource (id),
        source TEXT NOT NULL,
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        authority TEXT NOT NULL,
        kind TEXT NOT NULL,
        changed_at INTEGER,
        since INTEGER,
        lastmod INTEGER,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        origin TEXT NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        not_before INTEGER NOT NULL DEFAULT 0,
        error_code TEXT,
        error_message TEXT,
        error_at INTEGER
    );
    CREATE INDEX task_queue ON task (source, state, authority, not_before);
    CREATE INDEX task_of_set ON task (set_id, state, origin);
    CREATE INDEX task_time ON task (set_id, since);
    CREATE INDEX task_error ON task (set_id, state) WHERE error_code IS NOT NULL;
    CREATE INDEX task_deletion ON task (set_id) WHERE kind = 'deleted';
    CREATE TABLE feed (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        applied_at INTEGER NOT NULL,
        source TEXT NOT NULL,
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        uri TEXT NOT NULL,
        change TEXT NOT NULL,
        path TEXT,
        length INTEGER,
        changed_at INTEGER,
        origin TEXT NOT NULL
    );
    ",
    "
    -- What the server stated about the version that the mirror has, and what else the Source states about a resource.
    ALTER TABLE resource ADD COLUMN served_by TEXT;
    ALTER TABLE resource ADD COLUMN etag TEXT;
    ALTER TABLE resource ADD COLUMN last_modified TEXT;
    ALTER TABLE resource ADD COLUMN links TEXT;
    ALTER TABLE task ADD COLUMN links TEXT;
    -- The open Change List that was read last: it may be closed elsewhere than where the next one begins.
    ALTER TABLE source_set ADD COLUMN open_list TEXT;

    -- The lists of an index, so that those that are unchanged need not be read again.
    CREATE TABLE part (
        -- Numbers never come again: members may name a part that is gone.
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        uri TEXT NOT NULL,
        filter TEXT,
        doubted INTEGER NOT NULL DEFAULT 0,
        told INTEGER,
        asked_at INTEGER,
        read INTEGER NOT NULL DEFAULT 0,
        kept INTEGER NOT NULL DEFAULT 0,
        bad_entries INTEGER NOT NULL DEFAULT 0,
        UNIQUE (set_id, uri)
    );
    ALTER TABLE member ADD COLUMN part INTEGER;

    -- How far a baseline from a Resource Dump has come.
    CREATE TABLE dump (
        set_id INTEGER PRIMARY KEY REFERENCES source_set (id),
        uri TEXT NOT NULL,
        digest BLOB NOT NULL,
        generation INTEGER NOT NULL
    );
    CREATE TABLE dump_package (
        set_id INTEGER NOT NULL REFERENCES dump (set_id),
        uri TEXT NOT NULL,
        version TEXT NOT NULL,
        proves INTEGER NOT NULL,
        PRIMARY KEY (set_id, uri)
    ) WITHOUT ROWID;
    CREATE TABLE package_file (
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        name TEXT NOT NULL,
        PRIMARY KEY (set_id, name)
    ) WITHOUT ROWID;

    -- Deletions that went on by themselves within the last seconds: they count with those that come after them.
    CREATE TABLE loss (
        resource_id INTEGER PRIMARY KEY REFERENCES resource (id),
        set_id INTEGER NOT NULL REFERENCES source_set (id),
        let_go_at INTEGER NOT NULL
    );
    CREATE INDEX loss_of_set ON loss (set_id, let_go_at);

    -- The deliveries that were taken of late, by the digest of their bytes: the same bytes are taken once.
    CREATE TABLE delivered (
        -- Its number in the inbox.
        id INTEGER PRIMARY KEY,
        channel_id INTEGER NOT NULL REFERENCES channel (id),
        -- Its number among the channel's.
        nth INTEGER NOT NULL,
        digest BLOB NOT NULL,
        received_at INTEGER NOT NULL,
        dated INTEGER NOT NULL DEFAULT 1,
        UNIQUE (channel_id, digest),
        UNIQUE (channel_id, nth)
    );
    ",
    "
    -- What a part states of itself as a page of a longer list.
    ALTER TABLE part ADD COLUMN page_at INTEGER;
    ALTER TABLE part ADD COLUMN page_newest INTEGER;
    ALTER TABLE part ADD COLUMN next_page TEXT;
    -- Lists that were read without their pages, or their parts, are read again.
    UPDATE part SET filter = NULL;
    ",
    "
    -- Push: which hub was given which callback, and what is wrong with a channel that a hub has granted.
    ALTER TABLE channel ADD COLUMN own_hub TEXT;
    ALTER TABLE channel ADD COLUMN own_topic TEXT;
    ALTER TABLE channel ADD COLUMN own_base TEXT;
    ALTER TABLE channel ADD COLUMN next_hub TEXT;
    ALTER TABLE channel ADD COLUMN next_topic TEXT;
    ALTER TABLE channel ADD COLUMN next_base TEXT;
    ALTER TABLE channel ADD COLUMN next_token TEXT;
    ALTER TABLE channel ADD COLUMN next_secret TEXT;
    ALTER TABLE channel ADD COLUMN working_hub TEXT;
    ALTER TABLE channel ADD COLUMN former_of INTEGER;
    ALTER TABLE channel ADD COLUMN not_before INTEGER;
    ALTER TABLE channel ADD COLUMN denial TEXT;
    ALTER TABLE channel ADD COLUMN denied_at INTEGER;
    ALTER TABLE channel ADD COLUMN fault TEXT;
    ALTER TABLE channel ADD COLUMN fault_at INTEGER;
    ALTER TABLE channel ADD COLUMN silences INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE channel ADD COLUMN rejected_verifications INTEGER NOT NULL DEFAULT 0;
    CREATE UNIQUE INDEX channel_next_token ON channel (next_token) WHERE next_token IS NOT NULL;
    CREATE INDEX channel_former ON channel (former_of) WHERE former_of IS NOT NULL;
    CREATE INDEX channel_topic ON channel (topic);
    CREATE INDEX channel_subscribed_topic ON channel (subscribed_topic);
    UPDATE channel SET own_hub = hub, own_topic = subscribed_topic
        WHERE state IN ('active', 'expired') OR asked IS NOT NULL;
    -- The topic that the hub stated with a delivery, if it is not the channel's own.
    ALTER TABLE inbox ADD COLUMN stated_topic TEXT;
    -- When the daemon was last known to run.
    CREATE TABLE uptime (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        seen_at INTEGER NOT NULL
    );
    ",
    "
    -- The content coding of the file, where it was published coded.
    ALTER TABLE resource ADD COLUMN encoding TEXT;
    ",
    "
    -- How many undated entries were checked on which day, in days since 1970.
    ALTER TABLE source_set ADD COLUMN checks_on INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE source_set ADD COLUMN checks INTEGER NOT NULL DEFAULT 0;
    ",
    "
    -- The content codings that are stated of the representation.
    ALTER TABLE task ADD COLUMN encoding TEXT;
    ",
    "
    -- How often a subscription has begun without having been renewed, and how much of the pace its requests have used.
    ALTER TABLE channel ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE channel ADD COLUMN paced_until INTEGER;
    ",
    "
    -- Resources whose files may be others than are recorded: a change was executed, and its result may not have been stored.
    ALTER TABLE resource ADD COLUMN doubted INTEGER NOT NULL DEFAULT 0;
    -- Whether a process works on the database. If the next one finds that, it has not ended in order.
    CREATE TABLE session (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        is_open INTEGER NOT NULL
    );
    ",
    "
    -- Bytes that are written to find out whether they fit on the disk.
    CREATE TABLE probe (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        bytes BLOB NOT NULL
    );
    ",
    "
    -- How many resources each Source has, and how many one may have; NULL: any number.
    CREATE TABLE resource_count (
        source TEXT PRIMARY KEY,
        resources INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO resource_count SELECT source, COUNT(*) FROM resource GROUP BY source;
    CREATE TABLE resource_limit (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        most INTEGER
    );
    INSERT INTO resource_limit (id) VALUES (1);
    -- Since when it is known that nothing needs a row.
    ALTER TABLE resource ADD COLUMN unused_since INTEGER;
    -- The last entry of the feed that was removed.
    CREATE TABLE feed_trim (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        last INTEGER NOT NULL
    );
    ",
    "
    -- The hub that a delivery came from, and what only a hub states that is not the Source.
    ALTER TABLE inbox ADD COLUMN hub TEXT;
    ALTER TABLE task ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE resource ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE loss ADD COLUMN unconfirmed INTEGER NOT NULL DEFAULT 0;
    ",
    "
    -- Resources whose task was dropped while it may have been executed. If the process does not end in order, what it has done to
    -- the file is not known.
    CREATE TABLE dropped_task (
        resource_id INTEGER PRIMARY KEY REFERENCES resource (id)
    );
    ",
    "
    -- Whether a list of the Source was compared with what only a hub has stated of a resource.
    ALTER TABLE resource ADD COLUMN compared INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX resource_unconfirmed ON resource (set_id, changed_at) WHERE unconfirmed = 1 AND compared = 0;
    -- Whether such a list contradicts a hub: the Source's answer decides.
    ALTER TABLE task ADD COLUMN contradicted INTEGER NOT NULL DEFAULT 0;
    ",
    "
    -- Damaged Resource Lists counted as read completely, and so did Resource Dumps with damaged manifests: they are read again,
    -- the dumps when they are needed.
    DELETE FROM document WHERE EXISTS (SELECT 1 FROM part
        WHERE part.set_id = document.set_id AND part.uri = document.uri AND part.bad_entries > 0);
    UPDATE part SET filter = NULL, doubted = 0 WHERE bad_entries > 0;
    DELETE FROM document WHERE EXISTS (SELECT 1 FROM dump
        WHERE dump.set_id = document.set_id AND dump.uri = document.uri);
    DELETE FROM dump_package WHERE proves = 0;
    ",
    "
    -- Whether a set was ever read completely: a list of its resources, and then the changes since. A resource may be in any other.
    ALTER TABLE source_set ADD COLUMN was_read INTEGER NOT NULL DEFAULT 0;
    UPDATE source_set SET was_read = 1 WHERE baseline <> 'missing';
    CREATE INDEX source_set_unread ON source_set (source) WHERE was_read = 0 AND ended = 0;
    -- Since when a deletion waits for such a set.
    ALTER TABLE task ADD COLUMN awaits_since INTEGER;
    CREATE INDEX task_awaiting ON task (source) WHERE awaits_since IS NOT NULL;
    ",
    "
    -- The latest time of a change that only a hub has stated, and that the Source was asked for.
    ALTER TABLE resource ADD COLUMN answered_until INTEGER;
    UPDATE resource SET answered_until = changed_at WHERE unconfirmed = 1;
    ",
    "
    -- Deletions are found by the state of their tasks.
    DROP INDEX task_deletion;
    ",
    "
    -- The time of the Resource List or Resource Dump that is being read.
    ALTER TABLE source_set ADD COLUMN reading_at INTEGER;
    ",
    "
    -- How many tasks of each state a set has, and how many of those that are ready are checks of undated entries. The status reads
    -- this, and not the tasks: there may be millions. The numbers have no constraint, so that SQLite need not prepare to undo
    -- each statement that changes a task.
    CREATE TABLE task_count (
        set_id INTEGER PRIMARY KEY,
        ready INTEGER DEFAULT 0,
        checks INTEGER DEFAULT 0,
        failed INTEGER DEFAULT 0,
        held INTEGER DEFAULT 0,
        undecided INTEGER DEFAULT 0
    );
    INSERT INTO task_count SELECT source_set.id, COUNT(*) FILTER (WHERE state = 'ready'),
        COUNT(*) FILTER (WHERE state = 'ready' AND origin = 'resource-list' AND kind = 'updated'
            AND lastmod IS NULL AND length IS NULL AND hashes = ''),
        COUNT(*) FILTER (WHERE state = 'failed'), COUNT(*) FILTER (WHERE state = 'held'),
        COUNT(*) FILTER (WHERE state IN ('weighed', 'interrupted'))
        FROM source_set LEFT JOIN task ON task.set_id = source_set.id GROUP BY source_set.id;
    CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
        UPDATE task_count SET
            ready = ready + (NEW.state = 'ready'),
            checks = checks + (NEW.state = 'ready' AND NEW.origin = 'resource-list' AND NEW.kind = 'updated'
                AND NEW.lastmod IS NULL AND NEW.length IS NULL AND NEW.hashes = ''),
            failed = failed + (NEW.state = 'failed'),
            held = held + (NEW.state = 'held'),
            undecided = undecided + (NEW.state IN ('weighed', 'interrupted'))
        WHERE set_id = NEW.set_id;
    END;
    CREATE TRIGGER task_removed AFTER DELETE ON task BEGIN
        UPDATE task_count SET
            ready = ready - (OLD.state = 'ready'),
            checks = checks - (OLD.state = 'ready' AND OLD.origin = 'resource-list' AND OLD.kind = 'updated'
                AND OLD.lastmod IS NULL AND OLD.length IS NULL AND OLD.hashes = ''),
            failed = failed - (OLD.state = 'failed'),
            held = held - (OLD.state = 'held'),
            undecided = undecided - (OLD.state IN ('weighed', 'interrupted'))
        WHERE set_id = OLD.set_id;
    END;
    CREATE TRIGGER task_changed AFTER UPDATE OF set_id, state, origin, kind, lastmod, length, hashes ON task BEGIN
        UPDATE task_count SET
            ready = ready - (OLD.state = 'ready'),
            checks = checks - (OLD.state = 'ready' AND OLD.origin = 'resource-list' AND OLD.kind = 'updated'
                AND OLD.lastmod IS NULL AND OLD.length IS NULL AND OLD.hashes = ''),
            failed = failed - (OLD.state = 'failed'),
            held = held - (OLD.state = 'held'),
            undecided = undecided - (OLD.state IN ('weighed', 'interrupted'))
        WHERE set_id = OLD.set_id;
        UPDATE task_count SET
            ready = ready + (NEW.state = 'ready'),
            checks = checks + (NEW.state = 'ready' AND NEW.origin = 'resource-list' AND NEW.kind = 'updated'
                AND NEW.lastmod IS NULL AND NEW.length IS NULL AND NEW.hashes = ''),
            failed = failed + (NEW.state = 'failed'),
            held = held + (NEW.state = 'held'),
            undecided = undecided + (NEW.state IN ('weighed', 'interrupted'))
        WHERE set_id = NEW.set_id;
    END;
    -- How many tasks of a set and a state have an error, by its code.
    CREATE TABLE task_error_count (
        set_id INTEGER NOT NULL,
        state TEXT NOT NULL,
        code TEXT NOT NULL,
        tasks INTEGER,
        PRIMARY KEY (set_id, state, code)
    ) WITHOUT ROWID;
    INSERT INTO task_error_count SELECT set_id, state, error_code, COUNT(*) FROM task
        WHERE error_code IS NOT NULL GROUP BY set_id, state, error_code;
    CREATE TRIGGER task_error_added AFTER INSERT ON task WHEN NEW.error_code IS NOT NULL BEGIN
        INSERT INTO task_error_count VALUES (NEW.set_id, NEW.state, NEW.error_code, 1)
        ON CONFLICT (set_id, state, code) DO UPDATE SET tasks = tasks + 1;
    END;
    CREATE TRIGGER task_error_removed AFTER DELETE ON task WHEN OLD.error_code IS NOT NULL BEGIN
        UPDATE task_error_count SET tasks = tasks - 1
        WHERE set_id = OLD.set_id AND state = OLD.state AND code = OLD.error_code;
    END;
    CREATE TRIGGER task_error_changed AFTER UPDATE OF set_id, state, error_code ON task
    WHEN OLD.error_code IS NOT NULL OR NEW.error_code IS NOT NULL BEGIN
        UPDATE task_error_count SET tasks = tasks - 1
        WHERE set_id = OLD.set_id AND state = OLD.state AND code = OLD.error_code;
        INSERT INTO task_error_count SELECT NEW.set_id, NEW.state, NEW.error_code, 1 WHERE NEW.error_code IS NOT NULL
        ON CONFLICT (set_id, state, code) DO UPDATE SET tasks = tasks + 1;
    END;
    -- The first task with an error is found by its code.
    DROP INDEX task_error;
    CREATE INDEX task_error ON task (set_id, state, error_code) WHERE error_code IS NOT NULL;
    -- How many deliveries of a channel are in the inbox.
    ALTER TABLE channel ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0;
    UPDATE channel SET waiting = (SELECT COUNT(*) FROM inbox WHERE inbox.channel_id = channel.id);
    ",
    "
    -- When a task was given up for the first time, also while it is tried again.
    ALTER TABLE task ADD COLUMN given_up_since INTEGER;
    UPDATE task SET given_up_since = COALESCE(error_at, not_before) WHERE state = 'failed';
    CREATE INDEX task_given_up ON task (source) WHERE given_up_since IS NOT NULL;
    CREATE INDEX task_held ON task (source) WHERE state = 'held';
    CREATE INDEX task_given_up_of_set ON task (set_id, given_up_since) WHERE given_up_since IS NOT NULL;
    -- A deletion that a person has rejected stays a task, so that it is not planned again. The mirror is not behind because of it.
    DROP INDEX task_time;
    CREATE INDEX task_time ON task (set_id, since) WHERE state <> 'rejected';
    -- Since when deletions of a set are held back. It counts only while some are.
    ALTER TABLE source_set ADD COLUMN held_since INTEGER;
    UPDATE source_set SET held_since = (SELECT MIN(not_before) FROM task WHERE set_id = source_set.id AND state = 'held');
    -- Since when a subscription was requested that no hub has verified.
    ALTER TABLE channel ADD COLUMN unverified_since INTEGER;
    UPDATE channel SET unverified_since = COALESCE(asked_at, next_try_at) WHERE state = 'pending';
    ",
    "
    -- The last resource when a process was found not to have ended in order. Up to this one there may be files of resources of
    -- which nothing is recorded.
    ALTER TABLE session ADD COLUMN unrecorded_until INTEGER NOT NULL DEFAULT 0;
    ",
    "
    -- The id of the feed: a number of another feed is no position in this one.
    CREATE TABLE feed_id (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        feed TEXT NOT NULL
    );
    INSERT INTO feed_id VALUES (1, lower(hex(randomblob(8))));
    ",
    "
    -- The lowest position of the feed that readers have named on each of the last days, in days since 1970.
    CREATE TABLE feed_reader (
        day INTEGER PRIMARY KEY,
        lowest INTEGER NOT NULL
    );
    ",
    "
    -- The mirror of a Source that was used last, by the id in its own folder.
    CREATE TABLE mirror (
        source TEXT PRIMARY KEY,
        id TEXT NOT NULL
    ) WITHOUT ROWID;
    ",
    "
    -- The Sources that are or were followed, until they are forgotten: where discovery began, and where their files are. NULL: an
    -- earlier version has followed it.
    CREATE TABLE followed_source (
        name TEXT PRIMARY KEY,
        url TEXT,
        mirror BLOB
    ) WITHOUT ROWID;
    INSERT INTO followed_source (name) SELECT DISTINCT source FROM source_set;
    ",
    "
    -- Which resources are metadata of which others, by hashes of the URIs that their links name; and what resources lack and give where
    -- the configuration selects by collections and kinds of metadata.
    CREATE TABLE relation (
        target INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        resource_id INTEGER NOT NULL,
        PRIMARY KEY (target, kind, resource_id)
    ) WITHOUT ROWID;
    CREATE INDEX relation_of ON relation (resource_id);
    CREATE TABLE standing (
        resource_id INTEGER PRIMARY KEY,
        selection INTEGER NOT NULL,
        lacks INTEGER NOT NULL,
        gives INTEGER NOT NULL
    );
    CREATE TRIGGER resource_unrelated AFTER DELETE ON resource BEGIN
        DELETE FROM relation WHERE resource_id = OLD.id;
        DELETE FROM standing WHERE resource_id = OLD.id;
    END;
    ",
    "
    -- The links of a changed resource to what it describes, to its metadata, and to its kind and collections; NULL: none.
    ALTER TABLE feed ADD COLUMN links TEXT;
    ",
    "
    -- Digests and validators of a resource have a shorter form from here on, in the columns that they have. Rows that an earlier
    -- version has written keep theirs until they change.
    ",
    "
    -- From here on, a resource has no path (NULL) where that is the plain path of its URI.
    ",
    "
    -- How many deletions of a set a person has rejected.
    ALTER TABLE task_count ADD COLUMN rejected INTEGER DEFAULT 0;
    UPDATE task_count SET rejected = (SELECT COUNT(*) FROM task WHERE task.set_id = task_count.set_id AND state = 'rejected' AND kind = 'deleted');
    CREATE TRIGGER task_rejection_added AFTER INSERT ON task WHEN NEW.state = 'rejected' AND NEW.kind = 'deleted' BEGIN
        UPDATE task_count SET rejected = rejected + 1 WHERE set_id = NEW.set_id;
    END;
    CREATE TRIGGER task_rejection_removed AFTER DELETE ON task WHEN OLD.state = 'rejected' AND OLD.kind = 'deleted' BEGIN
        UPDATE task_count SET rejected = rejected - 1 WHERE set_id = OLD.set_id;
    END;
    CREATE TRIGGER task_rejection_changed AFTER UPDATE OF set_id, state, kind ON task
    WHEN OLD.state = 'rejected' OR NEW.state = 'rejected' BEGIN
        UPDATE task_count SET rejected = rejected - 1 WHERE set_id = OLD.set_id AND OLD.state = 'rejected' AND OLD.kind = 'deleted';
        UPDATE task_count SET rejected = rejected + 1 WHERE set_id = NEW.set_id AND NEW.state = 'rejected' AND NEW.kind = 'deleted';
    END;
    ",
    "
    -- How far the hooks of Sources have come in the feed.
    CREATE TABLE hook (
        source TEXT NOT NULL,
        name TEXT NOT NULL,
        position INTEGER NOT NULL,
        PRIMARY KEY (source, name)
    ) WITHOUT ROWID;
    ",
    "
    -- Entries of the feed are shorter from here on: an empty text stands for the Source of the set and for the plain path of the URI,
    -- and a letter for a word.
    ",
    "
    -- Resources that are fetched because the entries of others link to them, by the set whose entry it is. `named` is 0 where the entry
    -- has the link no longer.
    CREATE TABLE linked (
        owner_id INTEGER NOT NULL,
        set_id INTEGER NOT NULL,
        resource_id INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        named INTEGER NOT NULL,
        PRIMARY KEY (owner_id, set_id, resource_id)
    ) WITHOUT ROWID;
    CREATE INDEX linked_by ON linked (resource_id, set_id, named);
    CREATE INDEX linked_ended ON linked (set_id) WHERE named = 0;
    CREATE TRIGGER resource_unlinked AFTER DELETE ON resource BEGIN
        DELETE FROM linked WHERE owner_id = OLD.id;
        DELETE FROM linked WHERE resource_id = OLD.id;
    END;
    ",
    "
    -- Each time deletions are held back, they get the next number, so that an approval is of those that were listed.
    ALTER TABLE task ADD COLUMN hold INTEGER;
    UPDATE task SET hold = 1 WHERE state = 'held';
    CREATE TABLE last_hold (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        number INTEGER NOT NULL
    );
    INSERT INTO last_hold VALUES (1, 1);
    CREATE INDEX task_rejected ON task (source) WHERE state = 'rejected' AND kind = 'deleted';
    ",
    "
    -- The versions of resources that are stored, and those that are to be: announced (0), named by a TimeMap (1), or a TimeMap that is
    -- to be read (2).
    CREATE TABLE version (
        resource_id INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (resource_id, at)
    ) WITHOUT ROWID;
    CREATE TABLE version_task (
        resource_id INTEGER NOT NULL,
        at INTEGER NOT NULL,
        source TEXT NOT NULL,
        kind INTEGER NOT NULL,
        length INTEGER,
        media_type TEXT,
        hashes TEXT NOT NULL,
        encoding TEXT,
        links TEXT,
        state TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        not_before INTEGER NOT NULL,
        error_code TEXT,
        error_message TEXT,
        error_at INTEGER,
        PRIMARY KEY (resource_id, at)
    ) WITHOUT ROWID;
    CREATE INDEX version_queue ON version_task (source, state, not_before);
    CREATE TRIGGER resource_unversioned AFTER DELETE ON resource BEGIN
        DELETE FROM version WHERE resource_id = OLD.id;
        DELETE FROM version_task WHERE resource_id = OLD.id;
    END;
    ",
    "
    -- Over what the notifications of a channel come.
    ALTER TABLE channel ADD COLUMN transport TEXT NOT NULL DEFAULT 'websub';
    ",
    "
    -- From here on, entries of the feed name the row of their resource, and their `uri` is empty. When a row is removed, its URI moves to
    -- `removed_resource`. Usual media types are stored as one byte.
    ALTER TABLE feed ADD COLUMN resource_id INTEGER;
    CREATE TABLE removed_resource (
        id INTEGER PRIMARY KEY,
        uri TEXT NOT NULL,
        last INTEGER NOT NULL
    );
    CREATE INDEX removed_until ON removed_resource (last);
    CREATE TRIGGER resource_removed AFTER DELETE ON resource
    WHEN OLD.applied_at IS NOT NULL AND (OLD.length IS NOT NULL OR OLD.deleted = 0) BEGIN
        INSERT INTO removed_resource (id, uri, last) SELECT OLD.id, OLD.uri, seq FROM feed ORDER BY seq DESC LIMIT 1;
    END;
    ",
    "
    -- When the set has named the resource last, where another set has stated something later of it.
    ALTER TABLE member ADD COLUMN named_at INTEGER;
    ",
    "
    -- The filters with which the newest Resource List of a set was read, and its documents are read; NULL: an earlier version has read
    -- them.
    ALTER TABLE source_set ADD COLUMN filter TEXT;
    ALTER TABLE source_set ADD COLUMN read_filter TEXT;
    -- The hub that has denied a subscription.
    ALTER TABLE channel ADD COLUMN denial_hub TEXT;
    ",
    "
    -- A state and two columns get the names that the program has for them.
    DROP TRIGGER task_added;
    DROP TRIGGER task_removed;
    DROP TRIGGER task_changed;
    UPDATE task SET state = 'undecided' WHERE state = 'weighed';
    CREATE TRIGGER task_added AFTER INSERT ON task BEGIN
        UPDATE task_count SET
            ready = ready + (NEW.state = 'ready'),
            checks = checks + (NEW.state = 'ready' AND NEW.origin = 'resource-list' AND NEW.kind = 'updated'
                AND NEW.lastmod IS NULL AND NEW.length IS NULL AND NEW.hashes = ''),
            failed = failed + (NEW.state = 'failed'),
            held = held + (NEW.state = 'held'),
            undecided = undecided + (NEW.state IN ('undecided', 'interrupted'))
        WHERE set_id = NEW.set_id;
    END;
    CREATE TRIGGER task_removed AFTER DELETE ON task BEGIN
        UPDATE task_count SET
            ready = ready - (OLD.state = 'ready'),
            checks = checks - (OLD.state = 'ready' AND OLD.origin = 'resource-list' AND OLD.kind = 'updated'
                AND OLD.lastmod IS NULL AND OLD.length IS NULL AND OLD.hashes = ''),
            failed = failed - (OLD.state = 'failed'),
            held = held - (OLD.state = 'held'),
            undecided = undecided - (OLD.state IN ('undecided', 'interrupted'))
        WHERE set_id = OLD.set_id;
    END;
    CREATE TRIGGER task_changed AFTER UPDATE OF set_id, state, origin, kind, lastmod, length, hashes ON task BEGIN
        UPDATE task_count SET
            ready = ready - (OLD.state = 'ready'),
            checks = checks - (OLD.state = 'ready' AND OLD.origin = 'resource-list' AND OLD.kind = 'updated'
                AND OLD.lastmod IS NULL AND OLD.length IS NULL AND OLD.hashes = ''),
            failed = failed - (OLD.state = 'failed'),
            held = held - (OLD.state = 'held'),
            undecided = undecided - (OLD.state IN ('undecided', 'interrupted'))
        WHERE set_id = OLD.set_id;
        UPDATE task_count SET
            ready = ready + (NEW.state = 'ready'),
            checks = checks + (NEW.state = 'ready' AND NEW.origin = 'resource-list' AND NEW.kind = 'updated'
                AND NEW.lastmod IS NULL AND NEW.length IS NULL AND NEW.hashes = ''),
            failed = failed + (NEW.state = 'failed'),
            held = held + (NEW.state = 'held'),
            undecided = undecided + (NEW.state IN ('undecided', 'interrupted'))
        WHERE set_id = NEW.set_id;
    END;
    ALTER TABLE part RENAME COLUMN told TO stated_at;
    ALTER TABLE part RENAME COLUMN kept TO unchanged;
    ",
    "
    -- The ETags of nginx have a shorter form from here on, in the column that they have. Rows of earlier versions keep theirs.
    ",
];
