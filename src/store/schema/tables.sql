-- The schema. A change of it is another number in schema.rs.
-- What a table is for and what its columns mean is said in store/tables, in the file that has its statements. Times of the Source and of
-- this machine are microseconds since 1970, unless a comment says otherwise.

-- Sets, and how far each has been read.

CREATE TABLE source_set (
    -- Numbers never come again: what is in memory of a set that is gone must not be taken for that of another.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    capability_list TEXT NOT NULL,
    offers TEXT NOT NULL DEFAULT '[]',
    baseline TEXT NOT NULL DEFAULT 'missing',
    list_at INTEGER,
    read_from INTEGER,
    read_until INTEGER,
    generation INTEGER NOT NULL DEFAULT 0,
    ended INTEGER NOT NULL DEFAULT 0,
    resources INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0,
    shares INTEGER NOT NULL DEFAULT 0,
    open_list TEXT,
    -- In days since 1970.
    checks_on INTEGER NOT NULL DEFAULT 0,
    checks INTEGER NOT NULL DEFAULT 0,
    equal_copies INTEGER NOT NULL DEFAULT 0,
    was_read INTEGER NOT NULL DEFAULT 0,
    reading_at INTEGER,
    held_since INTEGER,
    filter TEXT,
    read_filter TEXT,
    described_by TEXT NOT NULL DEFAULT '[]',
    UNIQUE (source, capability_list)
);
CREATE INDEX source_set_unread ON source_set (source) WHERE was_read = 0 AND ended = 0;

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

CREATE TABLE part (
    id INTEGER PRIMARY KEY,
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    uri TEXT NOT NULL,
    filter TEXT,
    doubted INTEGER NOT NULL DEFAULT 0,
    misdated INTEGER NOT NULL DEFAULT 0,
    stated_at INTEGER,
    asked_at INTEGER,
    seen INTEGER NOT NULL DEFAULT 0,
    names BLOB NOT NULL DEFAULT x'',
    bad_entries INTEGER NOT NULL DEFAULT 0,
    page_at INTEGER,
    page_newest INTEGER,
    next_page TEXT,
    UNIQUE (set_id, uri)
);

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
    names BLOB NOT NULL,
    PRIMARY KEY (set_id, uri)
) WITHOUT ROWID;

CREATE TABLE package_file (
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    name TEXT NOT NULL,
    PRIMARY KEY (set_id, name)
) WITHOUT ROWID;

-- Channels, and what they have received.

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
    gaps INTEGER NOT NULL DEFAULT 0,
    own_hub TEXT,
    own_topic TEXT,
    own_base TEXT,
    next_hub TEXT,
    next_topic TEXT,
    next_base TEXT,
    next_token TEXT,
    next_secret TEXT,
    working_hub TEXT,
    former_of INTEGER,
    not_before INTEGER,
    denial TEXT,
    denied_at INTEGER,
    fault TEXT,
    fault_at INTEGER,
    silences INTEGER NOT NULL DEFAULT 0,
    rejected_verifications INTEGER NOT NULL DEFAULT 0,
    begun INTEGER NOT NULL DEFAULT 0,
    paced_until INTEGER,
    waiting INTEGER NOT NULL DEFAULT 0,
    unverified_since INTEGER,
    transport TEXT NOT NULL DEFAULT 'websub',
    denial_hub TEXT,
    rejected_topic TEXT
);
CREATE INDEX channel_of_set ON channel (set_id);
CREATE UNIQUE INDEX channel_next_token ON channel (next_token) WHERE next_token IS NOT NULL;
CREATE INDEX channel_former ON channel (former_of) WHERE former_of IS NOT NULL;
CREATE INDEX channel_topic ON channel (topic);
CREATE INDEX channel_subscribed_topic ON channel (subscribed_topic);

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel_id INTEGER NOT NULL REFERENCES channel (id),
    received_at INTEGER NOT NULL,
    body BLOB NOT NULL,
    stated_topic TEXT,
    hub TEXT
);
CREATE INDEX inbox_of_channel ON inbox (channel_id);

CREATE TABLE delivered (
    id INTEGER PRIMARY KEY,
    channel_id INTEGER NOT NULL REFERENCES channel (id),
    nth INTEGER NOT NULL,
    digest BLOB NOT NULL,
    received_at INTEGER NOT NULL,
    dated INTEGER NOT NULL DEFAULT 1,
    UNIQUE (channel_id, digest),
    UNIQUE (channel_id, nth)
);

-- Resources, and to what they belong.

CREATE TABLE resource (
    -- Numbers never come again: parts and the feed may name a resource that is gone.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    identity TEXT NOT NULL,
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    path TEXT,
    length INTEGER,
    media_type BLOB,
    hashes BLOB NOT NULL DEFAULT '',
    lastmod INTEGER,
    changed_at INTEGER,
    change TEXT,
    applied_at INTEGER,
    deleted INTEGER NOT NULL DEFAULT 0,
    next_version INTEGER NOT NULL DEFAULT 0,
    served_by TEXT,
    etag BLOB,
    last_modified BLOB,
    links TEXT,
    encoding TEXT,
    doubted INTEGER NOT NULL DEFAULT 0,
    unused_since INTEGER,
    -- 0: the documents of the set, 1: a hub, 2: a link.
    voice INTEGER NOT NULL DEFAULT 0,
    verified INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    fetched INTEGER NOT NULL DEFAULT 0,
    answer TEXT,
    answered INTEGER NOT NULL DEFAULT 0,
    statements INTEGER NOT NULL DEFAULT 0,
    spelling TEXT,
    uri TEXT AS (CASE
        WHEN spelling <> '' THEN spelling
        WHEN substr(identity, 1, 2) <> '//' THEN identity
        WHEN spelling IS NULL THEN 'https:' || identity
        ELSE 'http:' || identity
    END),
    UNIQUE (source, identity)
);
CREATE INDEX resource_of_set ON resource (set_id);
CREATE UNIQUE INDEX resource_path ON resource (source, path) WHERE path IS NOT NULL;

CREATE TABLE resource_count (
    source TEXT PRIMARY KEY,
    resources INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE resource_limit (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    most INTEGER
);
INSERT INTO resource_limit (id) VALUES (1);

CREATE TABLE member (
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    -- 0: a list, 1: a change, 2: a link, 3: a hub.
    named_by INTEGER NOT NULL,
    PRIMARY KEY (set_id, resource_id)
) WITHOUT ROWID;
CREATE INDEX member_of ON member (resource_id);

CREATE TABLE statement (
    resource_id INTEGER NOT NULL REFERENCES resource (id),
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    voice TEXT NOT NULL,
    stated TEXT NOT NULL,
    at INTEGER,
    lastmod INTEGER,
    length INTEGER,
    media_type TEXT,
    hashes TEXT NOT NULL,
    revision INTEGER NOT NULL,
    content_revision INTEGER NOT NULL,
    rejected INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (resource_id, set_id, voice)
) WITHOUT ROWID;
CREATE INDEX statement_of_set ON statement (set_id);

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

-- Pending changes, their counts, and what is known of past ones.

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
    error_at INTEGER,
    links TEXT,
    encoding TEXT,
    unconfirmed INTEGER NOT NULL DEFAULT 0,
    asks INTEGER NOT NULL DEFAULT 0,
    stated INTEGER NOT NULL DEFAULT 0,
    content_stated INTEGER NOT NULL DEFAULT 0,
    awaits_since INTEGER,
    given_up_since INTEGER,
    refused_since INTEGER,
    hold INTEGER
);
CREATE INDEX task_queue ON task (source, state, authority, not_before);
CREATE INDEX task_of_set ON task (set_id, state, origin);
CREATE INDEX task_awaiting ON task (source) WHERE awaits_since IS NOT NULL;
CREATE INDEX task_error ON task (set_id, state, error_code) WHERE error_code IS NOT NULL;
CREATE INDEX task_given_up ON task (source) WHERE given_up_since IS NOT NULL;
CREATE INDEX task_held ON task (source) WHERE state = 'held';
CREATE INDEX task_given_up_of_set ON task (set_id, given_up_since) WHERE given_up_since IS NOT NULL AND state <> 'unavailable';
CREATE INDEX task_time ON task (set_id, since) WHERE state NOT IN ('rejected', 'unavailable');
CREATE INDEX task_rejected ON task (source) WHERE state = 'rejected' AND kind = 'deleted';

CREATE TABLE tally (
    set_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    kind TEXT NOT NULL,
    code TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (set_id, state, kind, code)
) WITHOUT ROWID;

CREATE TABLE dropped_task (
    resource_id INTEGER PRIMARY KEY REFERENCES resource (id)
);

CREATE TABLE loss (
    resource_id INTEGER PRIMARY KEY REFERENCES resource (id),
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    let_go_at INTEGER NOT NULL,
    unconfirmed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX loss_of_set ON loss (set_id, let_go_at);

CREATE TABLE last_hold (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL
);
INSERT INTO last_hold VALUES (1, 1);

-- The feed, and those who read it.

CREATE TABLE feed (
    seq INTEGER PRIMARY KEY,
    applied_at INTEGER NOT NULL,
    set_id INTEGER NOT NULL REFERENCES source_set (id),
    resource_id INTEGER NOT NULL,
    change TEXT NOT NULL,
    path TEXT NOT NULL,
    length INTEGER,
    changed_at INTEGER,
    origin TEXT NOT NULL,
    -- Last: an entry with long links has pages of its own.
    links TEXT
);
CREATE INDEX feed_of_set ON feed (set_id);

CREATE TABLE feed_id (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    feed TEXT NOT NULL
);

-- The greatest number that was used, a time that each further entry is later than, and that time before the last change of it.
CREATE TABLE feed_number (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL,
    at INTEGER NOT NULL,
    before INTEGER NOT NULL
);
INSERT INTO feed_number VALUES (1, 0, 0, 0);

CREATE TABLE feed_trim (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last INTEGER NOT NULL
);

CREATE TABLE feed_reader (
    -- In days since 1970.
    day INTEGER PRIMARY KEY,
    lowest INTEGER NOT NULL
);

CREATE TABLE removed_resource (
    id INTEGER PRIMARY KEY,
    identity TEXT NOT NULL,
    uri TEXT NOT NULL,
    last INTEGER NOT NULL
);
CREATE INDEX removed_until ON removed_resource (last);

CREATE TABLE hook (
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (source, name)
) WITHOUT ROWID;

-- What is published.

CREATE TABLE published_set (
    set_id INTEGER PRIMARY KEY REFERENCES source_set (id),
    after INTEGER NOT NULL,
    since INTEGER NOT NULL
);

CREATE TABLE subscription (
    topic TEXT NOT NULL,
    callback TEXT NOT NULL,
    secret TEXT,
    expires_at INTEGER NOT NULL,
    position INTEGER NOT NULL,
    told_until INTEGER NOT NULL,
    PRIMARY KEY (topic, callback)
) WITHOUT ROWID;

-- Sources, their mirrors, and the process that works on the database.

CREATE TABLE followed_source (
    name TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    mirror BLOB
) WITHOUT ROWID;

CREATE TABLE audit (
    source TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    result TEXT
) WITHOUT ROWID;

CREATE TABLE paused (
    source TEXT PRIMARY KEY,
    since INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE mirror (
    source TEXT PRIMARY KEY,
    id TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE session (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    is_open INTEGER NOT NULL,
    unrecorded_until INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE uptime (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seen_at INTEGER NOT NULL
);

-- What people were told, as the JSON of `engine::notify`, by the name of the [[notify]].
CREATE TABLE told (
    name TEXT PRIMARY KEY,
    told TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE probe (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    bytes BLOB NOT NULL
);
