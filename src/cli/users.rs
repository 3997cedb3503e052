//! Whose the state folder is. What another user creates in it, the daemon could not use.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::exit_status::FAILED;
use super::failure::Failure;

/// Refuses to go on as another user than the owner of the state folder, with the command to use instead.
pub(super) fn refuse_another_user(state_dir: &Path) -> Result<(), Failure> {
    let Ok(found) = fs::metadata(state_dir) else {
        // It is created, with the right owner.
        return Ok(());
    };
    let (owner, own) = (found.uid(), current());
    if owner == own {
        return Ok(());
    }
    let config = config_of_environment();
    let command = command_as(&name_of(owner), std::env::args_os(), config.as_deref());
    Err(Failure::new(
        FAILED,
        format!(
            "{} belongs to {}, and this is {}: files of another user would stop the daemon; use\n  {command}\n[another-user]",
            state_dir.display(),
            name_of(owner),
            name_of(own)
        ),
    ))
}

/// The configuration file that the environment names, which `sudo` does not pass on, unless the command line names one.
fn config_of_environment() -> Option<PathBuf> {
    let is_typed = |word: String| word.starts_with("-c") || word.starts_with("--config");
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let named = std::env::var_os("RESYNCD_CONFIG").map(PathBuf::from);
    named.filter(|_| !words.any(is_typed))
}

/// The user that this process runs as.
pub(super) fn current() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The name of a user, or `#NUMBER`, which sudo(8) accepts as well.
pub(super) fn name_of(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // passwd(5)
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(user)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| format!("#{user}"))
}

/// The command line as another user.
fn command_as(user: &str, typed: impl Iterator<Item = OsString>, config: Option<&Path>) -> String {
    let mut words = vec!["sudo".to_owned(), "-u".to_owned(), quoted(user)];
    for (index, word) in typed.enumerate() {
        words.push(quoted(&word.to_string_lossy()));
        if let (0, Some(config)) = (index, config) {
            words.extend(["--config".to_owned(), quoted(&config.to_string_lossy())]);
        }
    }
    words.join(" ")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_the_typed_one_as_the_owner() {
        let typed = || ["resyncd", "sync", "it's"].into_iter().map(OsString::from);
        assert_eq!(
            command_as("resyncd", typed(), None),
            r"sudo -u resyncd resyncd sync 'it'\''s'"
        );
        let config = Some(Path::new("/etc/a b.toml"));
        assert_eq!(
            command_as("#1001", typed().take(2), config),
            "sudo -u '#1001' resyncd --config '/etc/a b.toml' sync"
        );
    }

    #[test]
    fn users_without_a_name_are_numbers() {
        assert_eq!(name_of(0), "root");
        assert_eq!(name_of(4_000_000_000), "#4000000000");
    }
}
