//! Tokens and secrets of callbacks: random, so that they can't be guessed.

use crate::engine::EngineError;
use crate::random::hex_name;
use crate::store::CallbackKeys;

/// The length of a secret, in bytes before it is written in hexadecimal: well under the 200 bytes that WebSub allows.
const SECRET_BYTES: usize = 32;
/// The length of a token, in bytes before it is written in hexadecimal.
const TOKEN_BYTES: usize = 24;

/// New keys. `is_signed`: with a secret.
pub(super) fn fresh_keys(is_signed: bool) -> Result<CallbackKeys, EngineError> {
    let random = |bytes| hex_name(bytes).map_err(|error| EngineError::Random(error.to_string()));
    let secret = is_signed.then(|| random(SECRET_BYTES)).transpose()?;
    let token = random(TOKEN_BYTES)?;
    Ok(CallbackKeys { token, secret })
}
