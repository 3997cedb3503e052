//! resyncd: arguments → configuration → logging → one command → exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    resyncd::cli::main()
}
