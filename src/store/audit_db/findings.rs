//! What an audit has found.

use rusqlite::{OptionalExtension, Row, params};

use super::AuditDb;
use crate::protocol::Digest;
use crate::store::{StoreError, row};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// The mirror has no file of a resource.
    Missing,
    /// The mirror has a file that it should not have.
    Extra,
    /// The file is not what it should be.
    Altered,
    /// A resource that is missing or altered can't be had, or a list can't be read.
    Unreachable,
    /// The bytes are right, but the database does not know of them, or the file has another time.
    Unknown,
}

impl FindingKind {
    /// Its stable name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Altered => "altered",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
        }
    }

    fn from_code(code: &str) -> Result<Self, StoreError> {
        let all = [
            Self::Missing,
            Self::Extra,
            Self::Altered,
            Self::Unreachable,
            Self::Unknown,
        ];
        all.into_iter()
            .find(|kind| kind.code() == code)
            .ok_or(StoreError::BadRow("a finding"))
    }
}

/// What became of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It stands.
    Found,
    /// It has been mended.
    Mended,
}

/// Something that an audit has found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its number in the ledger; 0 for one that is not in there yet.
    pub id: i64,
    /// What is wrong.
    pub kind: FindingKind,
    /// What became of it.
    pub outcome: Outcome,
    /// The number of the set that told of it; `None`: no set did.
    pub set: Option<u32>,
    /// The resource, or the list; `None` where nobody knows.
    pub uri: Option<String>,
    /// The file, relative to the mirror.
    pub path: Option<String>,
    /// What should be there.
    pub expected: Option<i64>,
    /// In what an altered file differs, by stable names.
    pub differs: Vec<String>,
    /// The length of the file that was looked at, in bytes.
    pub length: Option<u64>,
    /// Its digests, as far as they were computed.
    pub hashes: Vec<Digest>,
    /// Why it can't be had: the stable name of the error.
    pub code: Option<String>,
    /// The same for a person.
    pub message: Option<String>,
}

/// What the ledger says of a path that has a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Whether a file is, or may be, expected there.
    pub expected: bool,
    /// The resource that has, or had, its place there.
    pub uri: Option<String>,
    /// The number of the set that told of it.
    pub set: Option<u32>,
    /// Whether the database knows of the resource, and the configuration wants it.
    pub known: bool,
    /// Whether the database knows that the mirror has the file.
    pub live: bool,
}

impl Finding {
    /// A new one that stands, and tells nothing more yet.
    #[must_use]
    pub fn new(kind: FindingKind) -> Self {
        Self {
            id: 0,
            kind,
            outcome: Outcome::Found,
            set: None,
            uri: None,
            path: None,
            expected: None,
            differs: Vec::new(),
            length: None,
            hashes: Vec::new(),
            code: None,
            message: None,
        }
    }
}

impl AuditDb {
    /// What is known of the place of a file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn place(&self, path: &str) -> Result<Place, StoreError> {
        let sql = self.sql();
        let mut query = sql.prepare_cached(
            "SELECT uri, set_number, present FROM expected WHERE path = ?1 ORDER BY present DESC LIMIT 1",
        )?;
        let told = query
            .query_row([path], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, i64>(2)?))
            })
            .optional()?;
        let mut query = sql.prepare_cached(
            "SELECT uri, wanted, applied AND NOT deleted FROM known WHERE path = ?1",
        )?;
        let known: Option<(String, bool, bool)> = query
            .query_row([path], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let mut place = Place::default();
        if let Some((uri, set, present)) = told {
            place = Place {
                expected: present != 0,
                uri: Some(uri),
                set: Some(set),
                ..place
            };
        }
        if let Some((uri, wanted, live)) = known {
            place.uri = Some(uri);
            place.known = wanted;
            place.live = live;
        }
        Ok(place)
    }

    /// Takes what was found.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn add_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.together(|sql| {
            let mut add = sql.prepare_cached(
                "INSERT INTO finding (kind, set_number, uri, path, expected, differs, length, hashes, code, message)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?;
            for finding in findings {
                add.execute(params![
                    finding.kind.code(),
                    finding.set,
                    finding.uri,
                    finding.path,
                    finding.expected,
                    finding.differs.join(" "),
                    finding.length.map(row::signed),
                    row::hashes_text(&finding.hashes),
                    finding.code,
                    finding.message,
                ])?;
            }
            Ok(())
        })
    }

    /// What was found, after a number of the ledger, in its order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn findings(&self, after: i64, limit: usize) -> Result<Vec<Finding>, StoreError> {
        let sql = self.sql();
        let mut query = sql.prepare_cached(
            "SELECT id, kind, outcome, set_number, uri, path, expected, differs, length, hashes, code, message
             FROM finding WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let mut rows = query.query(params![after, row::signed(limit as u64)])?;
        let mut findings = Vec::new();
        while let Some(row) = rows.next()? {
            findings.push(finding(row)?);
        }
        Ok(findings)
    }

    /// The next page of what was found, for who goes through all of it; `None`: there is no more. `after`: 0 at first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn next_findings(
        &self,
        after: &mut i64,
        limit: usize,
    ) -> Result<Option<Vec<Finding>>, StoreError> {
        let page = self.findings(*after, limit)?;
        let Some(last) = page.last() else {
            return Ok(None);
        };
        *after = last.id;
        Ok(Some(page))
    }

    /// Keeps what became of findings.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn change_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.together(|sql| {
            let mut change = sql.prepare_cached(
                "UPDATE finding SET kind = ?2, outcome = ?3, code = ?4, message = ?5 WHERE id = ?1",
            )?;
            for finding in findings {
                let outcome = match finding.outcome {
                    Outcome::Found => "found",
                    Outcome::Mended => "mended",
                };
                change.execute(params![
                    finding.id,
                    finding.kind.code(),
                    outcome,
                    finding.code,
                    finding.message,
                ])?;
            }
            Ok(())
        })
    }

    /// Takes findings back.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn drop_findings(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.together(|sql| {
            let mut drop = sql.prepare_cached("DELETE FROM finding WHERE id = ?1")?;
            for id in ids {
                drop.execute([id])?;
            }
            Ok(())
        })
    }
}

fn finding(found: &Row<'_>) -> Result<Finding, StoreError> {
    let differs: String = found.get(7)?;
    Ok(Finding {
        id: found.get(0)?,
        kind: FindingKind::from_code(&found.get::<_, String>(1)?)?,
        outcome: match found.get::<_, String>(2)?.as_str() {
            "mended" => Outcome::Mended,
            _ => Outcome::Found,
        },
        set: found.get(3)?,
        uri: found.get(4)?,
        path: found.get(5)?,
        expected: found.get(6)?,
        differs: differs.split_whitespace().map(str::to_owned).collect(),
        length: found.get::<_, Option<i64>>(8)?.map(row::unsigned),
        hashes: row::hashes(&found.get::<_, String>(9)?),
        code: found.get(10)?,
        message: found.get(11)?,
    })
}
