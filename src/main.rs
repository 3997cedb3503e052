//! resyncd: arguments → configuration → logging → one command → exit status.
fn main() {}
