//! Authentication without sending the password, by SCRAM (RFC 5802, RFC 7677), which also proves that the server knows it.
//!
//! `sasl` computes it. What it does not check of a challenge is checked here: whether it is to this request, and how much time it takes.
//! Nothing but SCRAM is used: a server that could ask for the password itself would get it.

use sasl::client::{Mechanism, mechanisms};
use sasl::common::ChannelBinding;
use sasl::common::scram::{Sha1, Sha256};

use super::error::XmppError;

/// How many iterations a server may ask for: fewer do not protect the password, more only cost time.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=500_000;
/// The longest message of a server, in bytes.
const LONGEST: usize = 8 << 10;

/// An authentication.
pub(super) struct Scram {
    mechanism: Box<dyn Mechanism + Send>,
    /// The first message, without channel binding.
    first: Vec<u8>,
}

impl Scram {
    /// The mechanisms that are used, the best first.
    pub(super) const NAMES: [&'static str; 2] = ["SCRAM-SHA-256", "SCRAM-SHA-1"];

    /// Begins an authentication by one of these mechanisms.
    pub(super) fn new(name: &str, user: &str, password: &str) -> Result<Self, XmppError> {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let binding = ChannelBinding::None;
        let mechanism = if name == Self::NAMES[0] {
            mechanisms::Scram::<Sha256>::new(user, password, binding).map(boxed)
        } else {
            mechanisms::Scram::<Sha1>::new(user, password, binding).map(boxed)
        };
        let mut mechanism = mechanism.map_err(|_| failed("there are no random numbers"))?;
        Ok(Self {
            first: mechanism.initial(),
            mechanism,
        })
    }

    /// The first message.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Answers the challenge of the server. It takes a while: a second at most.
    pub(super) fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>, XmppError> {
        let violation = |why| failed(&format!("the server violates SCRAM: {why}"));
        self.check_challenge(challenge).map_err(violation)?;
        let answer = self.mechanism.response(challenge);
        answer.map_err(|_| violation("the salt is not base64"))
    }

    fn check_challenge(&self, challenge: &[u8]) -> Result<(), &'static str> {
        let challenge = match std::str::from_utf8(challenge) {
            Ok(text) if text.len() <= LONGEST => text,
            _ => return Err("the challenge is no text, or too long"),
        };
        let mut fields = challenge.split(',');
        let mut field = |name: &str| fields.next().and_then(|it| it.strip_prefix(name));
        let (Some(nonce), Some(_), Some(iterations)) = (field("r="), field("s="), field("i="))
        else {
            return Err("the challenge is incomplete, or has an extension");
        };
        // The last field of a name is the one that is used.
        if fields.any(|it| ["r=", "s=", "i="].iter().any(|name| it.starts_with(name))) {
            return Err("the challenge has a field twice");
        }
        let own = self.first.rsplit(|byte| *byte == b',').next();
        let own = own.and_then(|field| field.strip_prefix(b"r="));
        let added = own.and_then(|own| nonce.as_bytes().strip_prefix(own));
        if !added.is_some_and(|it| !it.is_empty() && it.iter().all(u8::is_ascii_graphic)) {
            return Err("the challenge is not to this request");
        }
        let iterations = iterations.parse();
        if iterations.is_ok_and(|count| ITERATIONS.contains(&count)) {
            Ok(())
        } else {
            Err("the number of iterations is below 4096 or above 500,000")
        }
    }

    /// Checks the last message of the server.
    pub(super) fn check(&mut self, last: &[u8]) -> Result<(), XmppError> {
        let checked = self.mechanism.success(last);
        checked.map_err(|_| failed("the server does not prove that it knows the password"))
    }
}

fn failed(why: &str) -> XmppError {
    XmppError::Authentication(why.to_owned())
}

fn boxed(mechanism: impl Mechanism + Send + 'static) -> Box<dyn Mechanism + Send> {
    Box::new(mechanism)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_has_to_prove_that_it_knows_the_password() {
        let unproven = failed("the server does not prove that it knows the password");
        for name in Scram::NAMES {
            let mut scram = Scram::new(name, "user", "pencil").unwrap();
            let first = String::from_utf8(scram.first().to_vec()).unwrap();
            let nonce = first.strip_prefix("n,,n=user,r=").unwrap();
            let another = Scram::new(name, "user", "pencil").unwrap();
            assert_ne!(another.first(), first.as_bytes());
            assert_eq!(scram.check(b"v=AAAA"), Err(unproven.clone()));
            let challenge = format!("r={nonce}rest,s=QSXCR+Q6sek8bf92,i=4096");
            let answer = scram.answer(challenge.as_bytes()).unwrap();
            let answer = String::from_utf8(answer).unwrap();
            assert!(
                answer.starts_with(&format!("c=biws,r={nonce}rest,p=")),
                "{answer}"
            );
            for wrong in ["", "v=", "e=invalid-proof", "v=AAAA"] {
                let checked = scram.check(wrong.as_bytes());
                assert_eq!(checked, Err(unproven.clone()), "{wrong}");
            }
        }
    }

    #[test]
    fn challenges_that_weaken_or_overload_are_rejected() {
        let mut scram = Scram::new("SCRAM-SHA-1", "a,b=c", "pencil").unwrap();
        let first = String::from_utf8(scram.first().to_vec()).unwrap();
        let abc = first.strip_prefix("n,,n=a=2Cb=3Dc,r=").unwrap();
        for challenge in [
            "",
            "r=abcd,s=AAAA",
            "r=abc,s=AAAA,i=4096",
            "r=xabcd,s=AAAA,i=4096",
            "m=x,r=abcd,s=AAAA,i=4096",
            "r=abcd,s=?,i=4096",
            "r=abcd,s=AAAA,i=4095",
            "r=abcd,s=AAAA,i=500001",
            "r=abcd,s=AAAA,i=99999999999",
            "r=abcd,s=AAAA,i=4096,i=4294967295",
            "r=ab\u{7f}cd,s=AAAA,i=4096",
            "r=abc\u{7f}d,s=AAAA,i=4096",
        ] {
            let challenge = challenge.replace("abc", abc);
            let error = scram.answer(challenge.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("the server violates SCRAM"),
                "{challenge}"
            );
        }
        let right = format!("r={abc}d,s=AAAA,i=4096,x=y");
        assert!(scram.answer(right.as_bytes()).is_ok());
    }
}
