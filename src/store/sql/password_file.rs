//! The password file of PostgreSQL's own programs: that of `PGPASSFILE`, or `.pgpass` in the home folder.

use std::path::PathBuf;

use postgres::Config;
use postgres::config::Host;

/// The password that the file has for a connection: that of the first line whose host, port, database and user are those of the connection,
/// or `*`.
pub(super) fn password_of(config: &Config) -> Option<String> {
    let home = || std::env::home_dir().map(|home| home.join(".pgpass"));
    let path = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let text = std::fs::read_to_string(path.or_else(home)?).ok()?;
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.as_str(),
        _ => "localhost",
    };
    let port = config.get_ports().first().unwrap_or(&5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let database = config.get_dbname().unwrap_or(user);
    let wanted = [host, &port, database, user];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|mut fields| {
        let password = fields.get_mut(4).map(std::mem::take)?;
        let is_wanted = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
        fields.iter().zip(wanted).all(is_wanted).then_some(password)
    })
}

/// The fields of a line: a backslash stands before a colon or a backslash in them.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) => field.extend(characters.next()),
            (_, Some(field)) => field.push(character),
            _ => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_divided_by_colons_that_have_no_backslash() {
        let fields = fields(r"db\:1:5432:*:a\\b:p:");
        assert_eq!(fields, ["db:1", "5432", "*", r"a\b", "p", ""]);
    }
}
