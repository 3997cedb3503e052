//! What the process uses, as `/proc` states it. What can't be read is left out.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::families::{
    PROCESS_CPU, PROCESS_MAX_FDS, PROCESS_OPEN_FDS, PROCESS_RESIDENT, PROCESS_THREADS,
    PROCESS_VIRTUAL,
};
use super::samples::Samples;

/// What `/proc/self/stat` states, in its units.
#[derive(Debug, PartialEq, Eq)]
struct Usage {
    /// In clock ticks.
    processor_time: u64,
    threads: u64,
    /// In bytes.
    address_space: u64,
    /// In pages.
    resident: u64,
}

impl Usage {
    /// Parses the line, proc_pid_stat(5). The name of the program is in parentheses, and may have any others in it.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // The first of them has the number 3.
        let field = |number: usize| -> Option<u64> { fields.get(number - 3)?.parse().ok() };
        Some(Self {
            processor_time: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            address_space: field(23)?,
            resident: field(24)?,
        })
    }
}

/// Adds the samples of the process.
pub(super) fn add_process(samples: &mut Samples) {
    let line = fs::read_to_string("/proc/self/stat").ok();
    if let Some(usage) = line.as_deref().and_then(Usage::parse) {
        let seconds = usage.processor_time as f64 / clock_ticks_per_second().max(1) as f64;
        let resident = usage.resident as f64 * page_size() as f64;
        samples.add(&PROCESS_CPU, &[], seconds);
        samples.add(&PROCESS_RESIDENT, &[], resident);
        samples.add(&PROCESS_VIRTUAL, &[], usage.address_space as f64);
        samples.add(&PROCESS_THREADS, &[], usage.threads as f64);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them reads the folder.
        let open = open.count().saturating_sub(1);
        samples.add(&PROCESS_OPEN_FDS, &[], open as f64);
    }
    let most = getrlimit(Resource::Nofile).current;
    samples.add(&PROCESS_MAX_FDS, &[], most.map(|most| most as f64));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_whatever_the_name_of_the_program_is() {
        let fields: Vec<String> = (4..=52).map(|number: u32| number.to_string()).collect();
        let rest = fields.join(" ");
        for name in ["(resyncd)", "(a) (b c)", "()"] {
            let usage = Usage::parse(&format!("1 {name} S {rest}\n"));
            let expected = Usage {
                processor_time: 14 + 15,
                threads: 20,
                address_space: 23,
                resident: 24,
            };
            assert_eq!(usage, Some(expected), "{name}");
        }
        for line in ["", "1 (resyncd) S 1 2", "1 resyncd S"] {
            assert_eq!(Usage::parse(line), None, "{line}");
        }
    }

    #[test]
    fn own_process_has_every_sample() {
        let mut samples = Samples::default();
        add_process(&mut samples);
        let text = samples.encode().unwrap();
        for name in [
            PROCESS_CPU.name,
            PROCESS_RESIDENT.name,
            PROCESS_VIRTUAL.name,
            PROCESS_THREADS.name,
            PROCESS_OPEN_FDS.name,
        ] {
            assert!(text.contains(&format!("\n{name} ")), "{name}: {text}");
        }
    }
}
