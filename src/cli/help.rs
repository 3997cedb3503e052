//! What `--help` shows below the options: examples, exit statuses, environment variables.

pub(super) const PROGRAM: &str = "\
Examples:
  resyncd discover https://example.org/
  resyncd check
  resyncd -c ./resyncd.toml sync
  resyncd status

Exit status:
  0  success
  1  failure, or not in sync
  2  a fault in the command line or the configuration
  3  the daemon can't be reached
  4  run, started by systemd: a version with another schema wrote the state

Environment:
  RESYNCD_CONFIG  the configuration file, if there is no --config
  RUST_LOG        what is logged on standard error: error, warn, info, debug or
                  trace, also by module: info,resyncd_fetch=debug; run without
                  it: [log] level
  NO_COLOR        no colours, on a terminal either";

pub(super) const RUN: &str = "\
Examples:
  resyncd run
  RUST_LOG=debug resyncd -c ./resyncd.toml run

Logs go to standard error, at the level of [log] unless RUST_LOG sets another.

SIGHUP reads the configuration again: Sources are added, changed and removed,
and the others go on. A file with faults is refused. What needs a restart is in
the log and in `resyncd status`.

Exit status: 0 after SIGTERM or SIGINT, 1 if it can't start or go on or does not
stop within 50 seconds, 2 if the configuration has faults. Started by systemd, 4
if a version with another schema wrote the state: the unit does not restart it
for 2 and 4.";

pub(super) const CHECK: &str = "\
Examples:
  resyncd check
  resyncd -c ./resyncd.toml check
  sudo -u resyncd resyncd check --environment

Exit status: 0 if there are no faults, 2 otherwise, 1 if --environment finds
something wrong. Warnings change nothing.";

pub(super) const CONFIG: &str = "\
Examples:
  resyncd config --effective
  resyncd config --schema
  resyncd config --starter https://example.org/

--starter discovers what the Source offers, and writes nothing but the text.
User names and passwords are not shown.

Exit status: 0; 1 if --starter finds nothing that can be used; 2 if the
configuration has faults.";

pub(super) const DISCOVER: &str = "\
Examples:
  resyncd discover example.org
  resyncd discover https://example.org/resourcelist.xml --json

Exit status: 0 if a set was found, 1 if none, or nothing of it can be read.";

pub(super) const SYNC: &str = "\
Examples:
  resyncd sync
  resyncd sync example
  resyncd sync example --dry-run

Not while a daemon runs on the same state_dir, except with --dry-run, which
reads the documents of the Sources, and changes neither state nor mirror.

Logs go to standard error, at the level warn unless RUST_LOG sets another.

Exit status: 0 if every set is in sync, 1 otherwise; with --dry-run, 0 if
nothing would be done.";

pub(super) const AUDIT: &str = "\
Examples:
  resyncd audit
  resyncd audit example --json
  resyncd audit --repair --delete-extra
  resyncd audit --repair --delete-extra --dry-run

A running daemon does --repair itself: it stops what it does for the Source
meanwhile, and its log names each finding.

Logs go to standard error, at the level warn unless RUST_LOG sets another.

Exit status: 0 if mirror and Source are the same, 1 otherwise.";

pub(super) const STATUS: &str = "\
Examples:
  resyncd status
  resyncd status example
  resyncd status --watch
  resyncd status --json
  resyncd status --address 127.0.0.1:8462
  resyncd status --live

Exit status: 0 if every set is in sync or catching up and nothing needs
attention, 1 otherwise, 3 if the daemon can't be reached. With --live, 0 if the
daemon and its database answer, whatever the sets are.";

pub(super) const APPROVE: &str = "\
Examples:
  resyncd approve example --list
  resyncd approve example
  resyncd approve example --through 3
  resyncd approve example --reject
  resyncd approve example --list --rejected
  resyncd approve example --undo-reject

Without a running daemon its state is changed, and the next run or sync deletes
the files.

Exit status: 0 if done, 1 if it is not accepted, 2 if there is no such Source,
3 if there is neither a daemon that can be reached nor a state.";

pub(super) const FAILED: &str = "\
Examples:
  resyncd failed
  resyncd failed example --json

Without a running daemon its state is read.

Exit status: 0, 1 if the request is rejected, 2 if there is no such Source, 3 if
there is neither a daemon that can be reached nor a state.";

pub(super) const HELD: &str = "\
Examples:
  resyncd held
  resyncd held example --json
  resyncd held example --rejected

`resyncd approve` approves or rejects them. Without a running daemon its state
is read.

Exit status: 0, 1 if the request is rejected, 2 if there is no such Source, 3 if
there is neither a daemon that can be reached nor a state.";

pub(super) const VERSIONS: &str = "\
Examples:
  resyncd versions https://example.org/data.xml
  resyncd versions https://example.org/data.xml --json
  resyncd versions https://example.org/data.xml --source example --backfill

Versions are stored where `versions` of the Source names a folder. --backfill
reads the TimeMap that the Source links to, and stores the versions that it
names and that are not stored yet; it may be repeated. A running daemon is asked
to do that, because only one process writes; without one, this command does.

Exit status: 0; 1 if a version was given up, --backfill has left one to be
stored, or the Source links to no TimeMap;
2 if no versions are stored; 3 if the daemon can't be reached any more.";

pub(super) const RETRY: &str = "\
Examples:
  resyncd retry
  resyncd retry example

Without a running daemon its state is changed, and the next run or sync tries.

Exit status: 0 if it is tried, 1 if the request is rejected, 2 if there is no
such Source, 3 if there is neither a daemon that can be reached nor a state.";

pub(super) const POLL: &str = "\
Examples:
  resyncd poll
  resyncd poll example

Does not wait for the end of the poll.

Exit status: 0 if it is requested, 1 if the daemon rejects the request, 2 if
there is no such Source, 3 if the daemon can't be reached.";

pub(super) const PAUSE: &str = "\
Examples:
  resyncd pause example

Downloads in progress are published or ended, and continued later. Deliveries
are still accepted; subscriptions are not renewed. It stays so over restarts,
and is an attention. Without a running daemon its state is changed.

Exit status: 0 if it is paused, 1 if the request fails, 2 if there is no such
Source, 3 if there is neither a daemon that can be reached nor a state.";

pub(super) const RESUME: &str = "\
Examples:
  resyncd resume example

The documents are polled at once, and the channels subscribed to.

Exit status: 0 if it is resumed, 1 if the request fails, 2 if there is no such
Source, 3 if there is neither a daemon that can be reached nor a state.";

pub(super) const BACKUP: &str = "\
Examples:
  sudo -u resyncd resyncd backup /var/backups/resyncd/
  sudo -u resyncd resyncd backup /var/backups/resyncd/ --keep 7
  sudo -u resyncd resyncd backup /var/backups/resyncd/resyncd.db

In a folder the copy is named by its time, resyncd-20260103T001000Z.db; --keep
removes the oldest files of such names. A file that exists is not overwritten.
The user who runs it must be able to write to the folder. The mirrors are not in
the copy. `resyncd restore` makes it the database again.

Exit status: 0; 1 if there is no copy, or older ones can't be removed.";

pub(super) const RESTORE: &str = "\
Examples:
  sudo -u resyncd resyncd restore /var/backups/resyncd/resyncd.db

Stop the daemon first, and start it afterwards. The file is checked and copied;
the former database stays beside the new one, as resyncd.db.replaced-1 or with
the next number that is free. The feed is another one then.

Exit status: 0, or 1 if the database is still the former one.";

pub(super) const STORE: &str = "\
Examples:
  resyncd store copy /var/lib/resyncd/ postgres://resyncd@db.example.net/resyncd
  resyncd store new-feed

As the user of the daemon, which is stopped. After `copy`, name the other
database in [store]: the feed and all positions stay the same, and the state
that was copied stays as it is. `new-feed` is for a database that was restored
to an earlier time: readers of the feed learn that they have to begin anew.

Exit status: 0, or 1 if nothing was changed.";

pub(super) const NODES: &str = "\
Examples:
  resyncd nodes

Where the state is in a PostgreSQL database, several daemons may work on it:
each follows a share of the Sources. One of them leads: it tells people what
waits for them, and publishes.

Exit status: 0, or 1 if the database can't be read.";

pub(super) const MOVE: &str = "\
Examples:
  resyncd move example mirror-2

Waits until that machine follows the Source, as soon as the work in progress is
done. It stays there as long as that machine works.

Exit status: 0, or 1 if nothing was changed.";

pub(super) const DRAIN: &str = "\
Examples:
  resyncd drain
  resyncd drain mirror-2
  resyncd drain mirror-2 --undo

Waits until the others follow all Sources of that machine, such as before it is
stopped. It lasts until its daemon is started again, or --undo.

Exit status: 0, or 1 if nothing was changed.";

pub(super) const UNSUBSCRIBE: &str = "\
Examples:
  resyncd unsubscribe
  resyncd unsubscribe example

Logs go to standard error, at the level warn unless RUST_LOG sets another.

Exit status: 0 if every subscription has ended, 1 otherwise.";

pub(super) const FORGET: &str = "\
Examples:
  resyncd forget example
  resyncd forget example --delete-files
  resyncd forget example --former-sets

First remove the Source from the configuration and reload the daemon, or stop
it. The subscriptions are ended and the rows in the database are deleted. The
files stay in the mirror, or are deleted and listed as deleted in the feed.
If it is interrupted, run it again.

--former-sets is for a Source that is followed: after its url or sets changed,
the running daemon deletes what only its former sets have.

Exit status: 0 if done, 1 if it is refused or fails, 2 if there is no such
Source, 3 if the daemon of --address, or for --former-sets, can't be reached.";

pub(super) const NOTIFY: &str = "\
Examples:
  sudo -u resyncd resyncd notify --test operators

The message is sent by this process, not by the daemon, and says that it is a
test. A [[notify]] with `ping` is pinged.

Exit status: 0 if it was accepted, 1 otherwise, 2 if the configuration has
faults, or no [[notify]] of that name.";

pub(super) const PUBLISH: &str = "\
Examples:
  resyncd publish /srv/theses
  resyncd publish . --public-url https://files.example.net/

Files are recorded when they have been left alone for two seconds. What has a
name that begins with a dot is not published, nor are symbolic links.

Exit status: 0 after SIGTERM or SIGINT, 1 if it can't start or go on, 2 if the
folder can't be published.";

pub(super) const DEMO: &str = "\
Examples:
  resyncd demo
  resyncd demo --changes-per-second 10

Everything it writes is in ./resyncd-demo; Ctrl-C ends it.

Exit status: 0 after SIGTERM or SIGINT, 1 otherwise.";

pub(super) const COMPLETIONS: &str = "\
Examples:
  resyncd completions bash > /etc/bash_completion.d/resyncd
  resyncd completions fish > ~/.config/fish/completions/resyncd.fish

Exit status: 0.";

pub(super) const MAN: &str = "\
Examples:
  resyncd man | man -l -
  resyncd man /usr/local/share/man/man1

Exit status: 0, 1 if a page can't be written.";

pub(super) const EXPLAIN: &str = "\
Examples:
  resyncd explain deletions-held

Codes are in the log (`code=`), in the status, and in brackets behind messages.

Exit status: 0, 2 if there is no such code.";

pub(super) const VERSION: &str = "\
Examples:
  resyncd version

Exit status: 0.";
