//! The random numbers that more than one module takes from the system: the share by which times differ from one Destination to another,
//! and names that can't be guessed.
//!
//! Must not know any other module.

/// A random number from 0 to 1, so that what several Destinations, or several channels of one, do at times does not coincide. Without
/// random numbers it is always the same: that is no reason to do nothing.
pub(crate) fn spread() -> f64 {
    getrandom::u32().map_or(0.5, |random| f64::from(random) / f64::from(u32::MAX))
}

/// A name that can't be guessed: so many random bytes in hexadecimal.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn hex_name(bytes: usize) -> Result<String, getrandom::Error> {
    let mut random = vec![0_u8; bytes];
    getrandom::fill(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
