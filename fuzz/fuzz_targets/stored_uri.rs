#![no_main]

#[path = "../bodies.rs"]
#[allow(dead_code, reason = "each target uses its own part of this")]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::stored_uri(data));
