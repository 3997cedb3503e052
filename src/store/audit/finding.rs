//! `finding`: the differences between the mirror and the Source.

use resourcesync::Digest;

use super::AuditDb;
use crate::store::StoreError;
use crate::store::ids::{ResourceId, SetId};
use crate::store::sql::{Result, Row, params};
use crate::store::tables::values::{Column, Count, DigestList, column, texts};

pub(super) const TABLE: &str = "
    CREATE TABLE finding (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        is_repaired INTEGER NOT NULL DEFAULT 0,
        set_id INTEGER,
        uri TEXT,
        path TEXT,
        expected INTEGER,
        differs TEXT NOT NULL DEFAULT '',
        length INTEGER,
        hashes TEXT NOT NULL DEFAULT '',
        code TEXT,
        message TEXT
    );
";

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// The mirror has no file of a resource.
    Missing,
    /// The mirror has a file that it should not have.
    Extra,
    /// The file differs from the resource.
    Altered,
    /// A resource that is missing or altered can't be fetched, or a list can't be read.
    Unreachable,
    /// The bytes are correct, but the database does not have them, or the file has another time.
    Unknown,
    /// It is missing, extra or altered, and a running daemon has not worked on it yet.
    Pending,
}

impl FindingKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Altered => "altered",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
        }
    }

    fn parse(code: &str) -> Option<Self> {
        let all = [
            Self::Missing,
            Self::Extra,
            Self::Altered,
            Self::Unreachable,
            Self::Unknown,
            Self::Pending,
        ];
        all.into_iter().find(|kind| kind.as_str() == code)
    }
}

texts! {
    FindingKind: |kind| kind.as_str(), Self::parse, "a finding";
}

/// Whether a finding was repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingOutcome {
    /// It was not.
    Open,
    /// It was.
    Repaired,
}

/// A difference that an audit has found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its id; 0 for one that is not stored yet.
    pub id: i64,
    /// What differs.
    pub kind: FindingKind,
    /// Whether it was repaired.
    pub outcome: FindingOutcome,
    /// The set that announced the resource; `None`: none did.
    pub set: Option<SetId>,
    /// The resource, or the list; `None` where it is unknown.
    pub uri: Option<String>,
    /// The file, relative to the mirror.
    pub path: Option<String>,
    /// The id of the expectation.
    pub expected: Option<ResourceId>,
    /// In what an altered file differs, by stable names.
    pub differs: Vec<String>,
    /// The length of the file that was examined, in bytes.
    pub length: Option<u64>,
    /// Its digests, as far as they were computed.
    pub hashes: Vec<Digest>,
    /// Why it can't be fetched: the stable code of the error.
    pub code: Option<String>,
    /// The same for a person.
    pub message: Option<String>,
}

impl Finding {
    /// A new finding that states nothing but its kind.
    #[must_use]
    pub fn new(kind: FindingKind) -> Self {
        Self {
            id: 0,
            kind,
            outcome: FindingOutcome::Open,
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

    fn from_row(row: &Row<'_>) -> Result<Self> {
        let differs: String = row.get("differs")?;
        Ok(Self {
            id: row.get("id")?,
            kind: column(row, "kind")?,
            outcome: if row.get("is_repaired")? {
                FindingOutcome::Repaired
            } else {
                FindingOutcome::Open
            },
            set: row.get("set_id")?,
            uri: row.get("uri")?,
            path: row.get("path")?,
            expected: row.get("expected")?,
            differs: differs.split_whitespace().map(str::to_owned).collect(),
            length: row.get::<_, Option<Count>>("length")?.map(u64::from),
            hashes: row.get::<_, DigestList<_>>("hashes")?.0,
            code: row.get("code")?,
            message: row.get("message")?,
        })
    }
}

impl AuditDb {
    /// Adds findings.
    pub fn add_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for finding in findings {
                sql.prepare_cached(
                    "INSERT INTO finding (kind, set_id, uri, path, expected, differs, length, hashes, code, message)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute(params![
                    Column(&finding.kind),
                    finding.set,
                    finding.uri,
                    finding.path,
                    finding.expected,
                    finding.differs.join(" "),
                    finding.length.map(Count),
                    DigestList(&finding.hashes),
                    finding.code,
                    finding.message,
                ])?;
            }
            Ok(())
        })
    }

    /// The next page of a walk through all findings; `None`: there are no more. `after` starts at 0.
    pub fn next_findings(
        &self,
        after: &mut i64,
        limit: usize,
    ) -> Result<Option<Vec<Finding>>, StoreError> {
        let sql = self.connection.lock();
        let mut query = sql.prepare_cached(
            "SELECT id, kind, is_repaired, set_id, uri, path, expected, differs, length, hashes, code, message
             FROM finding WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let found = query.query_map(params![*after, Count::of_rows(limit)], Finding::from_row)?;
        let page: Vec<Finding> = found.collect::<Result<_>>()?;
        let last = page.last().map(|last| last.id);
        *after = last.unwrap_or(*after);
        Ok(last.map(|_| page))
    }

    /// Stores the kind, outcome and error of findings.
    pub fn change_findings(&self, findings: &[Finding]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for finding in findings {
                sql.prepare_cached(
                    "UPDATE finding SET kind = ?2, is_repaired = ?3, code = ?4, message = ?5 WHERE id = ?1",
                )?
                .execute(params![
                    finding.id,
                    Column(&finding.kind),
                    finding.outcome == FindingOutcome::Repaired,
                    finding.code,
                    finding.message,
                ])?;
            }
            Ok(())
        })
    }

    /// Deletes findings.
    pub fn drop_findings(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.transaction(|sql| {
            for id in ids {
                sql.prepare_cached("DELETE FROM finding WHERE id = ?1")?
                    .execute([id])?;
            }
            Ok(())
        })
    }
}
