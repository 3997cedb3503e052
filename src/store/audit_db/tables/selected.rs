//! What entries lack and give where the configuration selects by collections and kinds of metadata (section 14.5), by their identities: `lacking` the
//! resources that lack something, `asked` the records that they name, `giving` the records that give something, and `given` the
//! resources that those name.

use resyncd_core::{Criteria, Standing, identity};
use rusqlite::{Connection, Result, params};

use crate::store::change::Change;

pub(super) const TABLES: &str = "
    CREATE TABLE lacking (uri TEXT PRIMARY KEY, lacks INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE asked (uri TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (uri, record)) WITHOUT ROWID;
    CREATE TABLE giving (record TEXT PRIMARY KEY, gives INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE given (uri TEXT NOT NULL, record TEXT NOT NULL, PRIMARY KEY (uri, record)) WITHOUT ROWID;
";

/// Stores what an entry lacks and gives, in place of what an earlier one of its resource did.
pub(crate) fn record(sql: &Connection, entry: &Change, standing: Standing) -> Result<()> {
    let uri = &*entry.uri.identity();
    for clear in [
        "DELETE FROM lacking WHERE uri = ?1",
        "DELETE FROM asked WHERE uri = ?1",
        "DELETE FROM giving WHERE record = ?1",
    ] {
        sql.prepare_cached(clear)?.execute([uri])?;
    }
    let targets = |rel: &'static str| {
        let links = entry.links.iter();
        links
            .filter(move |link| link.is(rel))
            .map(|link| identity(&link.href))
    };
    if !standing.lacks.is_empty() {
        sql.prepare_cached("INSERT INTO lacking VALUES (?1, ?2)")?
            .execute(params![uri, standing.lacks.bits()])?;
        for target in targets("describedby") {
            sql.prepare_cached("INSERT OR IGNORE INTO asked VALUES (?1, ?2)")?
                .execute([uri, &*target])?;
        }
    }
    if !standing.gives.is_empty() {
        sql.prepare_cached("INSERT INTO giving VALUES (?1, ?2)")?
            .execute(params![uri, standing.gives.bits()])?;
        for target in targets("describes") {
            sql.prepare_cached("INSERT OR IGNORE INTO given VALUES (?1, ?2)")?
                .execute([&*target, uri])?;
        }
    }
    Ok(())
}

/// Removes the expectations of resources that lack something that no record gives them.
pub(crate) fn drop_unselected(sql: &Connection) -> Result<()> {
    for criterion in [Criteria::COLLECTION, Criteria::PROFILE] {
        sql.execute(
            "DELETE FROM expected WHERE identity IN (
                 SELECT uri FROM lacking WHERE lacks & ?1
                 AND NOT EXISTS (SELECT 1 FROM given JOIN giving ON giving.record = given.record
                                 WHERE given.uri = lacking.uri AND gives & ?1)
                 AND NOT EXISTS (SELECT 1 FROM asked JOIN giving ON giving.record = asked.record
                                 WHERE asked.uri = lacking.uri AND gives & ?1))",
            [criterion.bits()],
        )?;
    }
    Ok(())
}
