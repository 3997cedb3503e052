//! A generated Source of plain files, and the nginx that serves it.

use std::fs::{File, FileTimes};
use std::io::{BufWriter, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use resyncd::clock;
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::harness::{Bench, BenchResult, free_address};

/// The maximum of a sitemap; what is more needs an index.
pub(crate) const ENTRIES_A_LIST: usize = 50_000;
/// Resources in one folder.
const FILES_A_FOLDER: usize = 100;
/// The modification time of all resources: 2026-01-01T00:00:00Z.
pub(crate) const LASTMOD: &str = "2026-01-01T00:00:00Z";
const LASTMOD_SECONDS: u64 = 1_767_225_600;
/// The time of the first Resource List.
pub(crate) const LISTED_AT: &str = "2026-01-02T00:00:00Z";
/// How many files a comparison of a mirror reads.
const SAMPLE: usize = 1000;
/// How long nginx may take to start.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const XMLNS: &str = "xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\"";

/// Resources below `/data/`, a Resource List with SHA-256 digests, a Capability List and a Source Description.
pub(crate) struct Site {
    folder: TempDir,
    scheme: &'static str,
    /// Where its server must listen.
    pub(crate) address: SocketAddr,
    pub(crate) resources: usize,
    /// Of a resource, in bytes.
    pub(crate) size: usize,
}

impl Site {
    /// Writes all files. Nothing serves them yet.
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
        let site = Self {
            folder: bench.folder()?,
            scheme,
            address: free_address()?,
            resources,
            size,
        };
        let times =
            FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(LASTMOD_SECONDS));
        for number in 0..resources {
            let path = site.root().join(Self::path(number));
            if let Some(folder) = path.parent().filter(|_| number % FILES_A_FOLDER == 0) {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = File::create(path)?;
            file.write_all(&content(number, 0, size))?;
            file.set_times(times)?;
        }
        site.write_resource_list(LISTED_AT)?;
        site.write_capability_list(&[("resourcelist", "resourcelist.xml")])?;
        Ok(site)
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

    /// Writes the Resource List, or an index of several, as of a time. All resources are as they were created.
    pub(crate) fn write_resource_list(&self, at: &str) -> BenchResult<()> {
        let bytes_of = |number| content(number, 0, self.size);
        let lists = ResourceLists {
            root: self.root(),
            base: &self.base(),
            resources: self.resources,
            at,
        };
        lists.write(|number| Self::path(number), bytes_of)
    }

    /// Writes the Capability List, of pairs of a capability and a path, and the Source Description.
    pub(crate) fn write_capability_list(&self, offers: &[(&str, &str)]) -> BenchResult<()> {
        write_capability_list(self.root(), &self.base(), offers)
    }

    /// Where a mirror has a resource.
    pub(crate) fn mirrored(&self, mirror: &Path, number: usize) -> PathBuf {
        mirror
            .join(self.address.to_string())
            .join(Self::path(number))
    }

    /// Checks that a mirror has all resources and nothing else, and the bytes of a sample.
    pub(crate) fn compare(&self, mirror: &Path) -> BenchResult<()> {
        compare_files(
            &mirror.join(self.address.to_string()),
            self.resources,
            Self::path,
            |number| content(number, 0, self.size),
        )
    }
}

/// The resources of a Resource List, or of an index of several.
pub(crate) struct ResourceLists<'a> {
    /// The folder to write to.
    pub(crate) root: &'a Path,
    pub(crate) base: &'a str,
    pub(crate) resources: usize,
    /// The time that the list is of.
    pub(crate) at: &'a str,
}

impl ResourceLists<'_> {
    /// Writes `resourcelist.xml` and its parts.
    pub(crate) fn write(
        &self,
        path: impl Fn(usize) -> String,
        bytes: impl Fn(usize) -> Vec<u8>,
    ) -> BenchResult<()> {
        let (base, at) = (self.base, self.at);
        let write_part = |name: &str, numbers: std::ops::Range<usize>| -> BenchResult<()> {
            let mut list = BufWriter::new(File::create(self.root.join(name))?);
            writeln!(
                list,
                "<urlset {XMLNS}>\n<rs:md capability=\"resourcelist\" at=\"{at}\"/>"
            )?;
            for number in numbers {
                let (path, bytes) = (path(number), bytes(number));
                writeln!(
                    list,
                    "<url><loc>{base}/{path}</loc><lastmod>{LASTMOD}</lastmod>\
                     <rs:md hash=\"sha-256:{}\" length=\"{}\" type=\"text/plain\"/></url>",
                    sha_256(&bytes),
                    bytes.len()
                )?;
            }
            writeln!(list, "</urlset>")?;
            list.flush()?;
            Ok(())
        };
        if self.resources <= ENTRIES_A_LIST {
            return write_part("resourcelist.xml", 0..self.resources);
        }
        let mut index = BufWriter::new(File::create(self.root.join("resourcelist.xml"))?);
        writeln!(
            index,
            "<sitemapindex {XMLNS}>\n<rs:md capability=\"resourcelist\" at=\"{at}\"/>"
        )?;
        for (part, begin) in (0..self.resources).step_by(ENTRIES_A_LIST).enumerate() {
            let name = format!("resourcelist-{part}.xml");
            write_part(&name, begin..self.resources.min(begin + ENTRIES_A_LIST))?;
            writeln!(
                index,
                "<sitemap><loc>{base}/{name}</loc><lastmod>{at}</lastmod></sitemap>"
            )?;
        }
        writeln!(index, "</sitemapindex>")?;
        index.flush()?;
        Ok(())
    }
}

/// Writes `capabilitylist.xml`, of pairs of a capability and a path, and the Source Description.
pub(crate) fn write_capability_list(
    root: &Path,
    base: &str,
    offers: &[(&str, &str)],
) -> BenchResult<()> {
    let mut entries = String::new();
    for (capability, path) in offers {
        entries +=
            &format!("<url><loc>{base}/{path}</loc><rs:md capability=\"{capability}\"/></url>\n");
    }
    let list =
        format!("<urlset {XMLNS}>\n<rs:md capability=\"capabilitylist\"/>\n{entries}</urlset>\n");
    std::fs::write(root.join("capabilitylist.xml"), list)?;
    let description = format!(
        "<urlset {XMLNS}>\n<rs:md capability=\"description\"/>\n\
         <url><loc>{base}/capabilitylist.xml</loc><rs:md capability=\"capabilitylist\"/></url>\n</urlset>\n"
    );
    std::fs::create_dir_all(root.join(".well-known"))?;
    std::fs::write(root.join(".well-known/resourcesync"), description)?;
    Ok(())
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
