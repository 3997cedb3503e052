//! Who counts requests.

/// Is told what is requested and received. It must not wait.
pub trait RequestObserver: Send + Sync {
    /// A request waits until others to the same host have ended, until the result is dropped.
    fn queue(&self) -> Box<dyn Send + Sync>;

    /// A request was answered, with this status, or has failed with the code of an error. `kind`: what it was for.
    fn count_request(&self, kind: &'static str, result: Result<u16, &'static str>);

    /// Gets the lengths of what is received of a body. `kind`: what the request was for.
    fn received(&self, kind: &'static str) -> BytesObserver;
}

/// Is told how many bytes were received.
pub type BytesObserver = Box<dyn Fn(usize) + Send + Sync>;
