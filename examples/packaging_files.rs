//! Writes what packages contain and what follows from the command line: manual pages, and completions for bash, zsh and fish.
//!
//! `cargo run --example packaging_files -- FOLDER`. It is no command of the program, so that the program does not contain what
//! generates them.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

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

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        return fail("the one argument is the folder to write to");
    };
    match write(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

#[allow(clippy::print_stderr, reason = "a program")]
fn fail(reason: &str) -> ExitCode {
    eprintln!("packaging_files: {reason}");
    ExitCode::FAILURE
}

fn write(folder: &Path) -> io::Result<()> {
    let command = resyncd::cli::command_line();
    let name = command.get_name().to_owned();
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), &name, &completions)?;
    }
    let manual = folder.join("man");
    fs::create_dir_all(&manual)?;
    let mut command = command.disable_help_subcommand(true);
    // Gives the commands the names of their pages.
    command.build();
    let source = format!("{name} {}", command.get_version().unwrap_or_default());
    for subcommand in command.get_subcommands() {
        let page = page(subcommand, &source, ".SH SEE ALSO\n.BR resyncd (1)\n")?;
        let file = format!("{name}-{}.1", subcommand.get_name());
        fs::write(manual.join(file), page)?;
    }
    fs::write(
        manual.join(format!("{name}.1")),
        page(&command, &source, MORE)?,
    )
}

/// A page of the manual, whose last sections are those of the text behind the options, and `more`.
fn page(command: &Command, source: &str, more: &str) -> io::Result<Vec<u8>> {
    let help = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command.clone().after_help(None::<&str>))
        .source(source)
        .manual("resyncd");
    let mut page = Vec::new();
    man.render(&mut page)?;
    page.extend(sections(&help.unwrap_or_default()).as_bytes());
    page.extend(more.as_bytes());
    Ok(page)
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
