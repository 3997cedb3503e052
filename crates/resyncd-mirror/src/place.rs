//! Where a mirror is: in a folder, or in an object store.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use url::Url;

/// Where a mirror is. It stands for a path: that of the folder, or of an object store its URL, which identifies the place and is shown
/// before the paths of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorPlace {
    path: PathBuf,
    objects: Option<Box<ObjectPlace>>,
}

/// A prefix in an object store: the key of a file is its path below that.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectPlace {
    /// `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`, without a slash at the end.
    pub url: Url,
    /// The folder of this machine for what is being downloaded, of this mirror only.
    pub work: PathBuf,
    /// Names and values as the variables of the environment have them that the clients of these services read; these come first.
    pub options: Vec<(String, String)>,
}

impl MirrorPlace {
    /// The object store that it is in; `None`: it is a folder.
    #[must_use]
    pub fn objects(&self) -> Option<&ObjectPlace> {
        self.objects.as_deref()
    }
}

impl Deref for MirrorPlace {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<Path> for MirrorPlace {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl From<ObjectPlace> for MirrorPlace {
    fn from(place: ObjectPlace) -> Self {
        Self {
            path: place.url.as_str().into(),
            objects: Some(Box::new(place)),
        }
    }
}

impl From<&Path> for MirrorPlace {
    fn from(folder: &Path) -> Self {
        folder.to_owned().into()
    }
}

impl From<&PathBuf> for MirrorPlace {
    fn from(folder: &PathBuf) -> Self {
        folder.clone().into()
    }
}

impl From<&str> for MirrorPlace {
    fn from(folder: &str) -> Self {
        PathBuf::from(folder).into()
    }
}

impl From<&Self> for MirrorPlace {
    fn from(place: &Self) -> Self {
        place.clone()
    }
}

impl From<PathBuf> for MirrorPlace {
    fn from(path: PathBuf) -> Self {
        let objects = None;
        Self { path, objects }
    }
}

impl fmt::Debug for ObjectPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options have secrets.
        let Self { url, work, .. } = self;
        write!(f, "{url} by {}", work.display())
    }
}
