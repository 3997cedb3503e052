//! Faults that tests plan for responses of the Source.

use std::time::Duration;

/// A fault of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This status without a body.
    Status(u16),
    /// 503, with `Retry-After` in seconds.
    Unavailable {
        /// The value of `Retry-After`.
        retry_after: u64,
    },
    /// `Content-Length` is right, half of the bytes are sent, and the connection is closed.
    Truncated,
    /// The right number of wrong bytes.
    WrongBytes,
    /// The right response after this delay.
    Slow(Duration),
    /// `Content-Length` is right, half of the bytes are sent, and nothing more.
    Stalled,
    /// 302 to this URI.
    Redirect(String),
}

/// The planned faults.
#[derive(Debug, Default)]
pub(super) struct PlannedFaults(Vec<PlannedFault>);

#[derive(Debug)]
struct PlannedFault {
    path: String,
    fault: Fault,
    left: usize,
}

impl PlannedFaults {
    /// Plans a fault for the next `times` requests of a path; a path that ends in `*` is a prefix.
    pub(super) fn plan(&mut self, path: &str, fault: Fault, times: usize) {
        if times > 0 {
            self.0.push(PlannedFault {
                path: path.to_owned(),
                fault,
                left: times,
            });
        }
    }

    /// Removes the faults planned for exactly this path or prefix.
    pub(super) fn heal(&mut self, path: &str) {
        self.0.retain(|planned| planned.path != path);
    }

    /// The fault of this request: the one planned first.
    pub(super) fn take(&mut self, path: &str) -> Option<Fault> {
        let found = self.0.iter().position(|planned| planned.concerns(path))?;
        let planned = &mut self.0[found];
        planned.left -= 1;
        let fault = planned.fault.clone();
        if planned.left == 0 {
            self.0.remove(found);
        }
        Some(fault)
    }
}

impl PlannedFault {
    fn concerns(&self, path: &str) -> bool {
        match self.path.strip_suffix('*') {
            Some(beginning) => path.starts_with(beginning),
            None => path == self.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_apply_in_the_order_they_were_planned() {
        let mut faults = PlannedFaults::default();
        faults.plan("/a", Fault::Status(500), 2);
        faults.plan("/a", Fault::Truncated, 1);
        faults.plan("/b/*", Fault::WrongBytes, usize::MAX);
        let applied: Vec<_> = (0..4).map(|_| faults.take("/a")).collect();
        assert_eq!(
            applied,
            [
                Some(Fault::Status(500)),
                Some(Fault::Status(500)),
                Some(Fault::Truncated),
                None
            ]
        );
        assert_eq!(faults.take("/b/c"), Some(Fault::WrongBytes));
        faults.heal("/b/*");
        assert_eq!(faults.take("/b/c"), None);
    }
}
