//! A generated Source of plain files, and the nginx that serves it.

use std::fs::{File, FileTimes};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use chrono::DateTime;
use resyncd::clock;
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::harness::{Bench, BenchResult, free_address};

/// The maximum of a sitemap; what is more needs an index.
pub(crate) const ENTRIES_A_LIST: usize = 50_000;
/// The namespaces of a document.
pub(crate) const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";
/// Resources in one folder.
const FILES_A_FOLDER: usize = 100;
/// The modification time of all resources.
pub(crate) const LASTMOD: &str = "2026-01-01T00:00:00Z";
/// The Resource List, or the index of several.
pub(crate) const RESOURCE_LIST: &str = "resourcelist.xml";
/// The time of the first Resource List.
pub(crate) const LISTED_AT: &str = "2026-01-02T00:00:00Z";
/// How many files a comparison of a mirror reads.
const SAMPLE: usize = 1000;
/// How long nginx may take to start.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Resources below `/data/`, a Resource List with SHA-256 digests, a Capability List and a Source Description.
pub(crate) struct Site {
    folder: TempDir,
    scheme: &'static str,
    /// Where its server must listen.
    pub(crate) address: SocketAddr,
    pub(crate) resources: usize,
    /// Of a resource, in bytes.
    pub(crate) size: usize,
    /// The bytes of a resource, of its number and size.
    body: fn(usize, usize) -> Vec<u8>,
}

impl Site {
    /// A site with all its files. Nothing serves them yet.
    pub(crate) fn create(bench: &Bench, resources: usize, size: usize) -> BenchResult<Self> {
        Self::with_scheme(bench, "http", resources, size)
    }

    /// As [`create`](Self::create), with `http` or `https`.
    pub(crate) fn with_scheme(
        bench: &Bench,
        scheme: &'static str,
        resources: usize,
        size: usize,
    ) -> BenchResult<Self> {
        let site = Self::without_files(bench, scheme, resources, size, first_content)?;
        let times = FileTimes::new().set_modified(system_time(LASTMOD)?);
        for number in 0..resources {
            let path = site.root().join(Self::path(number));
            if let Some(folder) = path.parent().filter(|_| number % FILES_A_FOLDER == 0) {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = File::create(path)?;
            file.write_all(&site.body(number))?;
            file.set_times(times)?;
        }
        site.write_resource_list(LISTED_AT)?;
        site.write_capability_list(&[("resourcelist", "resourcelist.xml")])?;
        Ok(site)
    }

    /// A site of which nothing is written yet.
    pub(crate) fn without_files(
        bench: &Bench,
        scheme: &'static str,
        resources: usize,
        size: usize,
        body: fn(usize, usize) -> Vec<u8>,
    ) -> BenchResult<Self> {
        Ok(Self {
            folder: bench.folder()?,
            scheme,
            address: free_address()?,
            resources,
            size,
            body,
        })
    }

    /// The folder of its files.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Such as `http://127.0.0.1:8080`, without a `/` at its end.
    pub(crate) fn base(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    pub(crate) fn capability_list(&self) -> String {
        format!("{}/capabilitylist.xml", self.base())
    }

    /// The path of a resource, in its URI and below [`root`](Self::root).
    pub(crate) fn path(number: usize) -> String {
        format!("data/{:05}/{number:07}.txt", number / FILES_A_FOLDER)
    }

    pub(crate) fn uri(&self, number: usize) -> String {
        format!("{}/{}", self.base(), Self::path(number))
    }

    /// The bytes that a resource was created with.
    pub(crate) fn body(&self, number: usize) -> Vec<u8> {
        (self.body)(number, self.size)
    }

    /// The entry of a resource in a list or manifest. `more`: further attributes of its `rs:md`.
    pub(crate) fn entry(&self, number: usize, more: &str) -> String {
        let digest = sha_256(&self.body(number));
        format!(
            "<url><loc>{}</loc><lastmod>{LASTMOD}</lastmod>\
             <rs:md hash=\"sha-256:{digest}\" length=\"{}\" type=\"text/plain\"{more}/></url>\n",
            self.uri(number),
            self.size
        )
    }

    /// Writes the Resource List of a time, or an index of several, as files of that time. All resources are as they were created.
    pub(crate) fn write_resource_list(&self, at: &str) -> BenchResult<()> {
        if self.resources <= ENTRIES_A_LIST {
            return self.write_part(RESOURCE_LIST, at, 0..self.resources);
        }
        let mut lists = String::new();
        for (part, begin) in (0..self.resources).step_by(ENTRIES_A_LIST).enumerate() {
            let name = format!("resourcelist-{part}.xml");
            self.write_part(&name, at, begin..self.resources.min(begin + ENTRIES_A_LIST))?;
            let uri = format!("{}/{name}", self.base());
            lists += &format!("<sitemap><loc>{uri}</loc><lastmod>{at}</lastmod></sitemap>\n");
        }
        let md = format!("capability=\"resourcelist\" at=\"{at}\"");
        let index = self.root().join(RESOURCE_LIST);
        std::fs::write(&index, document("sitemapindex", &md, &lists))?;
        Ok(File::open(index)?.set_modified(system_time(at)?)?)
    }

    fn write_part(&self, name: &str, at: &str, numbers: Range<usize>) -> BenchResult<()> {
        let md = format!("capability=\"resourcelist\" at=\"{at}\"");
        let entries: String = numbers.map(|number| self.entry(number, "")).collect();
        let list = self.root().join(name);
        std::fs::write(&list, document("urlset", &md, &entries))?;
        Ok(File::open(list)?.set_modified(system_time(at)?)?)
    }

    /// Writes the Capability List, of pairs of a capability and a path, and the Source Description.
    pub(crate) fn write_capability_list(&self, offers: &[(&str, &str)]) -> BenchResult<()> {
        let base = self.base();
        let entry = |capability: &str, path: &str| {
            format!("<url><loc>{base}/{path}</loc><rs:md capability=\"{capability}\"/></url>\n")
        };
        let entries: String = offers
            .iter()
            .map(|(name, path)| entry(name, path))
            .collect();
        std::fs::write(
            self.root().join("capabilitylist.xml"),
            document("urlset", "capability=\"capabilitylist\"", &entries),
        )?;
        std::fs::create_dir_all(self.root().join(".well-known"))?;
        std::fs::write(
            self.root().join(".well-known/resourcesync"),
            document(
                "urlset",
                "capability=\"description\"",
                &entry("capabilitylist", "capabilitylist.xml"),
            ),
        )?;
        Ok(())
    }

    /// Where a mirror has a resource.
    pub(crate) fn mirrored(&self, mirror: &Path, number: usize) -> PathBuf {
        mirror
            .join(self.address.to_string())
            .join(Self::path(number))
    }

    /// Checks that a mirror has all resources and nothing else, and the bytes of a sample.
    pub(crate) fn compare(&self, mirror: &Path) -> BenchResult<()> {
        self.compare_folder(&mirror.join(self.address.to_string()))
    }

    /// As [`compare`](Self::compare), for what a peer has fetched: `data` is in this folder.
    pub(crate) fn compare_folder(&self, folder: &Path) -> BenchResult<()> {
        compare_files(folder, self.resources, Self::path, |number| {
            self.body(number)
        })
    }
}

/// Checks that a folder has so many files and nothing else, and the bytes of a sample.
pub(crate) fn compare_files(
    folder: &Path,
    files: usize,
    path: impl Fn(usize) -> String,
    bytes: impl Fn(usize) -> Vec<u8>,
) -> BenchResult<()> {
    let found = count_files(folder)?;
    if found != files {
        return Err(format!("{} has {found} files, not {files}", folder.display()).into());
    }
    for number in (0..files).step_by((files / SAMPLE).max(1)) {
        let file = folder.join(path(number));
        if std::fs::read(&file)? != bytes(number) {
            return Err(format!("{} differs from the Source", file.display()).into());
        }
    }
    Ok(())
}

/// A document. `md`: the attributes of its `rs:md`.
pub(crate) fn document(root: &str, md: &str, entries: &str) -> String {
    format!("<{root} {XMLNS}>\n<rs:md {md}/>\n{entries}</{root}>\n")
}

/// The time of a file.
fn system_time(text: &str) -> BenchResult<SystemTime> {
    Ok(DateTime::parse_from_rfc3339(text)?.into())
}

fn count_files(folder: &Path) -> BenchResult<usize> {
    let mut files = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        files += if entry.file_type()?.is_dir() {
            count_files(&entry.path())?
        } else {
            1
        };
    }
    Ok(files)
}

/// What [`Site::create`] writes: the first version.
pub(crate) fn first_content(number: usize, size: usize) -> Vec<u8> {
    content(number, 0, size)
}

/// The bytes of a version of a resource: text that compresses as badly as text can.
pub(crate) fn content(number: usize, version: usize, size: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 \n";
    // Xorshift, which needs a seed that is not 0.
    let mut state =
        ((number as u64) << 24 | version as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let letters = state.to_le_bytes();
        bytes.extend(letters.map(|byte| LETTERS[usize::from(byte % 64)]));
    }
    bytes.truncate(size);
    bytes
}

/// A digest in hexadecimal.
pub(crate) fn sha_256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let mut text = String::with_capacity(64);
    for byte in digest {
        text += &format!("{byte:02x}");
    }
    text
}

/// An nginx that serves files. It ends when it is dropped.
pub(crate) struct Nginx {
    process: Child,
    _folder: TempDir,
}

impl Nginx {
    /// Serves the files of a site.
    pub(crate) fn of_site(bench: &Bench, site: &Site) -> BenchResult<Self> {
        let files = format!("root {};", site.root().display());
        Self::start(bench, site.address, &files)
    }

    /// `server`: what its `server` block has besides the address.
    pub(crate) fn start(bench: &Bench, address: SocketAddr, server: &str) -> BenchResult<Self> {
        let program = bench.peers.find("nginx")?;
        let folder = bench.folder()?;
        // Started by root, its workers would be somebody who may not read the files.
        let user = if rustix::process::geteuid().is_root() {
            "user root;"
        } else {
            ""
        };
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary.map(|kind| format!("{kind}_temp_path {kind};"));
        let config = format!(
            "{user}\ndaemon off;\npid nginx.pid;\nerror_log stderr error;\nworker_processes 2;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n{}\naccess_log off;\nsendfile on;\nkeepalive_requests 1000000;\n\
             types {{ text/plain txt; application/xml xml; application/zip zip; }}\n\
             server {{\nlisten {address};\nlocation = /.well-known/resourcesync {{ default_type application/xml; }}\n{server}\n}}\n}}\n",
            temporary.join("\n")
        );
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config)?;
        let process = Command::new(program)
            .args(["-e", "stderr", "-p"])
            .arg(folder.path())
            .arg("-c")
            .arg(path)
            .stdin(Stdio::null())
            .spawn()?;
        let mut nginx = Self {
            process,
            _folder: folder,
        };
        let started = clock::now().mono;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = nginx.process.try_wait()? {
                return Err(format!("nginx failed, {status}").into());
            }
            if clock::now().mono - started > TIMEOUT {
                return Err("nginx does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its workers end with it, if it is not killed.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}
