//! Where a state is.

use std::path::{Path, PathBuf};

use resyncd_fetch::Authorities;

use super::error::StoreError;
use super::folder;
use super::nodes::{self, KnownNode, Moving, Node};
use super::schema;
use super::sql::Connection;
#[cfg(feature = "postgres")]
use super::sql::Server;

/// Where a state is: in a folder, whose database is SQLite's unless it is on a server.
#[derive(Clone)]
pub struct StatePlace {
    /// What belongs to this machine: locks, unfinished files, and SQLite's database.
    pub(super) folder: PathBuf,
    /// What this machine is called where several work on one database.
    node: String,
    /// Whether others may work on it meanwhile.
    is_shared: bool,
    #[cfg(feature = "postgres")]
    server: Option<Server>,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for StatePlace {
    fn from(folder: &P) -> Self {
        Self {
            folder: folder.as_ref().to_owned(),
            node: String::new(),
            is_shared: false,
            #[cfg(feature = "postgres")]
            server: None,
        }
    }
}

#[cfg(feature = "postgres")]
impl StatePlace {
    /// Checks the URL of a database on a PostgreSQL server.
    ///
    /// # Errors
    /// [`StoreError::Url`].
    pub(crate) fn check_url(url: &str) -> Result<(), StoreError> {
        Server::new(url, None, None, &Authorities::default()).map(drop)
    }

    /// The same folder, with a database on a server, whose URLs are valid. `authorities`: what is trusted besides those of the system.
    pub(crate) fn on_server(
        mut self,
        url: &str,
        listen_url: Option<&str>,
        password: Option<&str>,
        authorities: &Authorities,
    ) -> Self {
        self.server = Server::new(url, listen_url, password, authorities).ok();
        self
    }

    /// Whether the database is on a server.
    pub fn is_on_server(&self) -> bool {
        self.server.is_some()
    }

    /// The connection to a server whose database has its schema.
    fn made(&self, connection: Connection) -> Result<Connection, StoreError> {
        schema::make_on_server(&connection, &self.shown())?;
        Ok(connection)
    }

    /// A connection on which the server tells what other nodes have committed; `None`: it does not.
    pub(super) fn listen(&self) -> Result<Option<Connection>, StoreError> {
        let Some(server) = self.server.as_ref() else {
            return Ok(None);
        };
        let listening = server.open_to_listen()?;
        if let Some(listening) = &listening {
            listening.execute_batch(&format!("LISTEN {}", nodes::CHANNEL))?;
        }
        Ok(listening)
    }

    /// A connection to the server, if the database is on one.
    pub(super) fn connect(&self) -> Option<Result<Connection, StoreError>> {
        let server = self.server.as_ref()?;
        Some(server.open().map_err(StoreError::from))
    }
}

#[cfg(not(feature = "postgres"))]
impl StatePlace {
    pub(crate) fn check_url(_: &str) -> Result<(), StoreError> {
        let error = "this program was built without PostgreSQL";
        Err(StoreError::Url(error.to_owned()))
    }

    pub(crate) fn on_server(
        self,
        _: &str,
        _: Option<&str>,
        _: Option<&str>,
        _: &Authorities,
    ) -> Self {
        self
    }

    /// Whether the database is on a server.
    pub fn is_on_server(&self) -> bool {
        false
    }

    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as with servers"
    )]
    fn made(&self, connection: Connection) -> Result<Connection, StoreError> {
        Ok(connection)
    }

    #[expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "as with servers"
    )]
    pub(super) fn listen(&self) -> Result<Option<Connection>, StoreError> {
        Ok(None)
    }

    pub(super) fn connect(&self) -> Option<Result<Connection, StoreError>> {
        None
    }
}

impl StatePlace {
    /// The same, of a machine of that name.
    #[must_use]
    pub(crate) fn of_node(self, node: String) -> Self {
        Self { node, ..self }
    }

    /// The same, on which other machines may work meanwhile.
    #[must_use]
    pub(crate) fn shared(self) -> Self {
        Self {
            is_shared: true,
            ..self
        }
    }

    /// What works on a database on a server; `None`: it is in the folder.
    pub(super) fn node(&self) -> Result<Option<Node>, StoreError> {
        let node = self
            .is_on_server()
            .then(|| Node::of(&self.node, &self.folder, !self.is_shared));
        node.transpose()
    }

    /// The nodes that work on the database, or have; none if it is SQLite's.
    ///
    /// # Errors
    /// An error of the database.
    pub fn nodes(&self) -> Result<Vec<KnownNode>, StoreError> {
        match self.open_to_read()? {
            Some(database) if self.is_on_server() => Ok(nodes::nodes(&database)?),
            _ => Ok(Vec::new()),
        }
    }

    /// Has a Source held by the node of that name as soon as it can.
    ///
    /// # Errors
    /// [`StoreError::UnknownNode`] or [`StoreError::NotHeld`]; an error of the database.
    pub fn move_source(&self, source: &str, node: &str) -> Result<(), StoreError> {
        nodes::move_source(&self.open()?, source, node)
    }

    /// How far a Source has come that is to be held by the node of that name.
    ///
    /// # Errors
    /// An error of the database.
    pub fn moving(&self, source: &str, node: &str) -> Result<Moving, StoreError> {
        Ok(nodes::moving(&self.open()?, source, node)?)
    }

    /// Has the node of that name hold nothing, or its share again.
    ///
    /// # Errors
    /// [`StoreError::UnknownNode`] or [`StoreError::NoOtherNode`]; an error of the database.
    pub fn drain(&self, node: &str, drains: bool) -> Result<(), StoreError> {
        nodes::drain(&self.open()?, node, drains)
    }

    /// What this machine is called.
    pub fn node_name(&self) -> &str {
        &self.node
    }

    /// The file of SQLite's database.
    pub(super) fn database(&self) -> PathBuf {
        self.folder.join(schema::DATABASE)
    }

    /// The database, for messages.
    pub(super) fn shown(&self) -> PathBuf {
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return server.path();
        }
        self.database()
    }

    /// Whether there is known to be a database. One on a server is made when it is opened.
    pub(super) fn exists(&self) -> bool {
        self.is_on_server() || self.database().exists()
    }

    /// Whether it is certain that no process works on it.
    pub fn is_free(&self) -> bool {
        if !self.is_on_server() {
            return folder::is_free(&self.folder);
        }
        let nodes = self.nodes();
        nodes.is_ok_and(|nodes| nodes.iter().all(|node| !node.works))
    }

    /// A connection that writes; a new database gets its schema.
    pub(super) fn open(&self) -> Result<Connection, StoreError> {
        match self.connect() {
            Some(connection) => self.made(connection?),
            None => schema::open(&self.database()),
        }
    }

    /// A connection that only reads a database of this schema; `None`: there is none.
    pub(super) fn open_to_read(&self) -> Result<Option<Connection>, StoreError> {
        let failed = |error| StoreError::Folder(self.folder.clone(), error);
        if !self.is_on_server() && !self.database().try_exists().map_err(failed)? {
            return Ok(None);
        }
        let connection = self.open_for_queries()?;
        let has_schema = schema::check_number(&connection, &self.shown())?;
        Ok(has_schema.then_some(connection))
    }

    /// A connection for queries of a database that is open.
    pub(super) fn open_for_queries(&self) -> Result<Connection, StoreError> {
        match self.connect() {
            Some(connection) => connection,
            None => Ok(schema::open_to_read(&self.database())?),
        }
    }
}
