//! `man` and `completions`: the manual pages, and what completes a command line in a shell.

use std::path::PathBuf;
use std::{fs, io};

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

use super::command_line;
use super::exit_status::OK;
use super::failure::Failure;
use super::output::print_as_is;

/// What follows the sections of the program's own page.
const MORE: &str = "\
.SH FILES
.TP
/etc/resyncd/config.toml
The configuration; config.example.toml, or /usr/share/doc/resyncd/examples/config.toml, explains every key.
.TP
/var/lib/resyncd
The database, unless state_dir names another folder.
";

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// The folder that the pages of all commands are written to, such as /usr/local/share/man/man1
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    shell: Shell,
}

/// Prints the page of the program or, into a folder, writes those of all commands.
pub(super) fn man(arguments: &ManArguments) -> Result<u8, Failure> {
    let pages = pages().map_err(|error| Failure::coded("io", error))?;
    for (name, page) in pages {
        let Some(folder) = &arguments.folder else {
            print_as_is(&page);
            break;
        };
        let file = folder.join(name);
        fs::write(&file, page).map_err(|error| {
            Failure::coded("io", format!("cannot write {}: {error}", file.display()))
        })?;
    }
    Ok(OK)
}

/// Prints what a shell reads to complete a command line.
pub(super) fn completions(arguments: &CompletionsArguments) -> u8 {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command_line(), "resyncd", &mut script);
    print_as_is(&String::from_utf8_lossy(&script));
    OK
}

/// The manual pages with the names of their files, that of the program first.
fn pages() -> io::Result<Vec<(String, String)>> {
    let mut command = command_line().disable_help_subcommand(true);
    // Gives the commands the names of their pages.
    command.build();
    let mut pages = vec![("resyncd.1".to_owned(), page(&command, MORE)?)];
    for subcommand in command.get_subcommands() {
        let name = format!("resyncd-{}.1", subcommand.get_name());
        pages.push((name, page(subcommand, ".SH SEE ALSO\n.BR resyncd (1)\n")?));
    }
    Ok(pages)
}

/// A page of the manual, whose last sections are those of the text behind the options, and `more`.
fn page(command: &Command, more: &str) -> io::Result<String> {
    let help = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_help(None::<&str>))
        .source(concat!("resyncd ", env!("CARGO_PKG_VERSION")))
        .manual("resyncd");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    Ok(format!(
        "{page}{}{more}",
        sections(&help.unwrap_or_default())
    ))
}

/// Makes a section of each paragraph that begins with a heading, as `Examples:` or `Exit status: 0 …`. Indented lines stay as they
/// are.
fn sections(help: &str) -> String {
    const HEADINGS: [&str; 3] = ["Examples", "Exit status", "Environment"];
    let mut lines = Vec::new();
    for paragraph in help.split("\n\n").filter(|text| !text.is_empty()) {
        let known = paragraph.split_once(':');
        let known = known.filter(|(heading, _)| HEADINGS.contains(heading));
        let (heading, text) = known.unwrap_or(("Notes", paragraph));
        lines.push(format!(".SH {}", heading.to_uppercase()));
        let mut is_filled = true;
        for line in text.trim_start_matches('\n').lines() {
            if line.starts_with("  ") == is_filled {
                is_filled = !is_filled;
                lines.push(if is_filled { ".fi" } else { ".nf" }.to_owned());
            }
            let line = if is_filled { line.trim_start() } else { line };
            let escaped = line.replace('\\', "\\e").replace('-', "\\-");
            lines.push(format!("\\&{escaped}"));
        }
        if !is_filled {
            lines.push(".fi".to_owned());
        }
    }
    lines.push(String::new());
    lines.join("\n")
}
