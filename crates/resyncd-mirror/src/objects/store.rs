//! A mirror in an object store, by the crate `object_store`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, PutPayload, RetryConfig,
};
use parking_lot::Mutex;
use resourcesync::{Digest, Oddities, SourceTime};
use tokio::sync::Semaphore;
use url::Position;

use super::ObjectFiles;
use super::reader::ObjectReader;
use super::runtime::block_on;
use super::uploads;
use crate::mirror_path::OWN_FOLDER;
use crate::staged::{FileDescription, file_time, source_time};
use crate::{
    CompletedFile, MirrorError, MirrorFile, MirrorId, MirrorPath, ObjectPlace, PublishError,
};

/// How many requests of a batch are made at once.
const AT_ONCE: usize = 16;
/// Up to this length a file is uploaded in one request, from memory; in MiB.
const AT_A_PIECE: u32 = 64;
/// The length of the longest key of these services, in bytes.
const LONGEST_KEY: usize = 1024;
/// For how long a request is repeated, at most ten times, that the store answers with an error of its own, or not.
const RETRIES: Duration = Duration::from_secs(30);

/// The names of what is stored of a file beside its bytes and its type.
const MODIFIED: &str = "modified";
const DIGEST: &str = "digest";

/// A mirror in an object store.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) store: Arc<dyn ObjectStore>,
    uploads: Arc<dyn MultipartStore>,
    prefix: Key,
    /// The folder of this machine.
    work: PathBuf,
}

/// What is stored of a file beside its bytes.
#[derive(Clone, Default)]
pub(super) struct Stored {
    pub(super) modified: Option<SystemTime>,
    pub(super) description: FileDescription,
}

/// What is uploaded: a file of this machine, or an object again.
pub(super) enum Content {
    File(File),
    Object(Box<ObjectReader>),
}

impl Content {
    /// At most so many bytes that follow; none at the end.
    pub(super) async fn next(&mut self, most: u64) -> Result<Bytes, Error> {
        match self {
            Self::File(file) => {
                let mut bytes = Vec::new();
                let read = file.take(most).read_to_end(&mut bytes);
                read.map_err(of_this_machine)?;
                Ok(bytes.into())
            }
            Self::Object(object) => object.next(most).await,
        }
    }
}

/// An error of a file of this machine.
pub(super) fn of_this_machine(error: std::io::Error) -> Error {
    Error::Generic {
        store: "this machine's disk",
        source: error.into(),
    }
}

/// A client of a service: as the variables of the environment have it, and then the options.
macro_rules! client {
    ($builder:expr, $place:expr) => {{
        let retry = RetryConfig {
            retry_timeout: RETRIES,
            ..RetryConfig::default()
        };
        let mut builder = $builder.with_url($place.url.as_str()).with_retry(retry);
        for (name, value) in &$place.options {
            let key = FromStr::from_str(&name.to_ascii_lowercase())?;
            builder = builder.with_config(key, value);
        }
        let client = Arc::new(builder.build()?);
        (Arc::clone(&client) as Arc<dyn ObjectStore>, client)
    }};
}

/// What uploads and reads, also in parts.
pub(super) type Client = (Arc<dyn ObjectStore>, Arc<dyn MultipartStore>);

impl Objects {
    pub(super) fn open(place: &ObjectPlace) -> Result<Self, MirrorError> {
        let url = &place.url;
        let (store, uploads) =
            client(place).map_err(|error| failed("opening", url.as_str(), &error))?;
        let prefix = Key::from_url_path(url.path())
            .map_err(|error| failed("opening", url.as_str(), &error.into()))?;
        Ok(Self::of((store, uploads), prefix, place.work.clone()))
    }

    pub(super) fn of((store, uploads): Client, prefix: Key, work: PathBuf) -> Self {
        Self {
            store,
            uploads,
            prefix,
            work,
        }
    }

    fn key(&self, path: &str) -> Result<Key, MirrorError> {
        let text = match self.prefix.as_ref() {
            "" => path.to_owned(),
            prefix => format!("{prefix}/{path}"),
        };
        if text.len() > LONGEST_KEY {
            // The made path is shorter.
            let path = path.to_owned();
            return Err(MirrorError::Blocked { path });
        }
        Key::parse(text).map_err(|error| failed("naming", path, &error.into()))
    }

    /// The path of a file; `None`: the key is not one of a file.
    fn path(&self, key: &Key) -> Option<MirrorPath> {
        let path = key.as_ref().strip_prefix(self.prefix.as_ref())?;
        MirrorPath::parse(path.strip_prefix('/').unwrap_or(path)).ok()
    }

    fn id_key(&self) -> Result<Key, MirrorError> {
        self.key(&format!("{OWN_FOLDER}/id"))
    }

    /// Stores a content of this length in bytes.
    pub(super) async fn send(
        &self,
        content: &mut Content,
        length: u64,
        key: &Key,
        stored: &Stored,
        mode: PutMode,
    ) -> Result<(), Error> {
        let attributes = stored.attributes();
        if length > u64::from(AT_A_PIECE) << 20 {
            // There is no condition on these.
            if mode == PutMode::Create && self.store.head(key).await.is_ok() {
                return Err(Error::AlreadyExists {
                    path: key.to_string(),
                    source: "it is there".into(),
                });
            }
            let (uploads, work) = (&*self.uploads, self.work.as_path());
            return uploads::upload(uploads, work, key, attributes, content, length).await;
        }
        let bytes = content.next(length).await?;
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        let stored = self.store.put_opts(key, PutPayload::from(bytes), options);
        stored.await.map(drop)
    }

    async fn publish_file(
        &self,
        file: &CompletedFile,
        path: &MirrorPath,
        mode: PutMode,
        memory: &Semaphore,
    ) -> Result<(), MirrorError> {
        let key = self.key(path.as_str())?;
        let opened = file.open().and_then(|content| {
            let found = content.metadata()?;
            Ok((content, found.len(), found.modified()?))
        });
        let (content, length, modified) =
            opened.map_err(|error| MirrorError::reading(path.as_str(), &error))?;
        let stored = Stored {
            modified: Some(modified),
            description: file.description().clone(),
        };
        let share = u32::try_from(length >> 20).unwrap_or(u32::MAX);
        let permit = memory.acquire_many(share.saturating_add(1).min(AT_A_PIECE));
        let _permit = permit.await;
        let mut content = Content::File(content);
        let sent = self.send(&mut content, length, &key, &stored, mode);
        sent.await.map_err(|error| match error {
            Error::AlreadyExists { .. } => MirrorError::Exists {
                path: path.to_string(),
            },
            error => failed("publishing", path.as_str(), &error),
        })
    }

    async fn delete(&self, path: &MirrorPath) -> Result<bool, MirrorError> {
        match self.store.delete(&self.key(path.as_str())?).await {
            Ok(()) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed("removing", path.as_str(), &error)),
        }
    }
}

/// What distinguishes the clients of a process: bucket and options.
type ClientKey = (String, Vec<(String, String)>);

/// The clients of this process, which have connections open.
static CLIENTS: LazyLock<Mutex<HashMap<ClientKey, Client>>> = LazyLock::new(Mutex::default);

/// The client for a place.
fn client(place: &ObjectPlace) -> Result<Client, Error> {
    let bucket = place.url[..Position::BeforePath].to_owned();
    let key = (bucket, place.options.clone());
    if let Some(known) = CLIENTS.lock().get(&key) {
        return Ok(known.clone());
    }
    let client = new_client(place)?;
    CLIENTS.lock().insert(key, client.clone());
    Ok(client)
}

fn new_client(place: &ObjectPlace) -> Result<Client, Error> {
    // It checks certificates by the provider of the process; an error: there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(match place.url.scheme() {
        "gs" => client!(GoogleCloudStorageBuilder::from_env(), place),
        "az" => client!(MicrosoftAzureBuilder::from_env(), place),
        _ => {
            let mut builder = AmazonS3Builder::from_env();
            if builder
                .get_config_value(&AmazonS3ConfigKey::Checksum)
                .is_none()
            {
                // The store then verifies what it receives.
                builder = builder.with_checksum_algorithm(Checksum::SHA256);
            }
            client!(builder, place)
        }
    })
}

impl ObjectFiles for Objects {
    fn id(&self) -> Result<Option<MirrorId>, MirrorError> {
        let key = self.id_key()?;
        let read = block_on(async { self.store.get(&key).await?.bytes().await });
        match read {
            Ok(text) => Ok(std::str::from_utf8(&text)
                .ok()
                .and_then(|text| MirrorId::parse(text.trim_end()))),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("reading", key.as_ref(), &error)),
        }
    }

    fn set_id(&self, id: &MirrorId) -> Result<(), MirrorError> {
        let key = self.id_key()?;
        let text = PutPayload::from(format!("{id}\n"));
        let put = block_on(self.store.put(&key, text));
        put.map(drop)
            .map_err(|error| failed("writing", key.as_ref(), &error))
    }

    fn remove_unfinished(&self) {
        block_on(uploads::remove_unfinished(&*self.uploads, &self.work));
    }

    fn publish(
        &self,
        batch: Vec<(CompletedFile, MirrorPath)>,
        is_new: bool,
    ) -> Vec<Result<(), PublishError>> {
        let mut paths = HashSet::new();
        // Of two files of one path the later one counts.
        let are_distinct = batch.iter().all(|(_, path)| paths.insert(path.clone()));
        let mode = if is_new {
            PutMode::Create
        } else {
            PutMode::Overwrite
        };
        let memory = Semaphore::new(AT_A_PIECE as usize);
        let publishing = batch.into_iter().map(async |(file, path)| {
            let published = self.publish_file(&file, &path, mode.clone(), &memory).await;
            published.map_err(|error| PublishError {
                error,
                file: Some(file),
            })
        });
        let at_once = if are_distinct { AT_ONCE } else { 1 };
        block_on(stream::iter(publishing).buffered(at_once).collect())
    }

    fn remove(&self, paths: &[MirrorPath]) -> Vec<Result<bool, MirrorError>> {
        let removing = paths.iter().map(|path| self.delete(path));
        block_on(stream::iter(removing).buffered(AT_ONCE).collect())
    }

    fn open_file(&self, path: &MirrorPath) -> Result<MirrorFile, MirrorError> {
        let key = self.key(path.as_str())?;
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let found = block_on(self.store.get_opts(&key, options));
        let found = found.map_err(|error| match error {
            Error::NotFound { .. } => MirrorError::Missing {
                path: path.to_string(),
            },
            error => failed("opening", path.as_str(), &error),
        })?;
        let stored = Stored::of(&found.attributes);
        let reader = ObjectReader::new(self.clone(), found.meta, stored);
        Ok(MirrorFile::of_object(reader))
    }

    fn files(&self) -> Box<dyn Iterator<Item = Result<MirrorPath, MirrorError>>> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        Box::new(Listing {
            found: self.store.list(prefix),
            objects: self.clone(),
        })
    }

    fn names_in(&self, folder: &MirrorPath) -> Result<Vec<(String, u64)>, MirrorError> {
        let key = self.key(folder.as_str())?;
        let listed = block_on(self.store.list_with_delimiter(Some(&key)));
        let listed = listed.map_err(|error| failed("listing", folder.as_str(), &error))?;
        let names = listed.objects.into_iter().filter_map(|found| {
            let name = found.location.filename()?.to_owned();
            Some((name, found.size))
        });
        Ok(names.collect())
    }
}

/// The files of a mirror, while they are listed.
struct Listing {
    found: BoxStream<'static, Result<ObjectMeta, Error>>,
    objects: Objects,
}

impl Iterator for Listing {
    type Item = Result<MirrorPath, MirrorError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match block_on(self.found.next())? {
                Ok(found) => match self.objects.path(&found.location) {
                    Some(path) => return Some(Ok(path)),
                    None => continue,
                },
                Err(error) => return Some(Err(failed("listing", "all files", &error))),
            }
        }
    }
}

impl Stored {
    fn of(attributes: &Attributes) -> Self {
        let text = |attribute| attributes.get(&attribute).map(|value| value.to_string());
        let modified = text(Attribute::Metadata(MODIFIED.into()));
        let modified = modified.and_then(|text| text.parse().ok());
        let digest = text(Attribute::Metadata(DIGEST.into()));
        Self {
            modified: modified.map(|micros| file_time(SourceTime::from_micros(micros))),
            description: FileDescription {
                media_type: text(Attribute::ContentType),
                digest: digest.and_then(|text| {
                    let digests = Digest::parse_hashes(&text, &mut Oddities::default());
                    digests.into_iter().next()
                }),
            },
        }
    }

    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        if let Some(modified) = self.modified {
            let micros = source_time(modified).micros().to_string();
            attributes.insert(Attribute::Metadata(MODIFIED.into()), micros.into());
        }
        let FileDescription { media_type, digest } = self.description.clone();
        // Others are no type, and no value of a header.
        let media_type = media_type.filter(|it| it.chars().all(|c| matches!(c, ' '..='~')));
        if let Some(media_type) = media_type {
            attributes.insert(Attribute::ContentType, media_type.into());
        }
        if let Some(digest) = digest {
            let digest = digest.to_string();
            attributes.insert(Attribute::Metadata(DIGEST.into()), digest.into());
        }
        attributes
    }
}

/// The length of the longest message of a service that is shown, in characters.
const MOST_SHOWN: usize = 500;

fn failed(doing: &'static str, path: &str, error: &Error) -> MirrorError {
    let message = format!("{doing} {path} in the object store: {error}");
    MirrorError::Objects {
        message: message.chars().take(MOST_SHOWN).collect(),
    }
}
