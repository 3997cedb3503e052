//! Runs requests to an object store for threads that block.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

/// Its thread waits for sockets; the requests are made by the threads that wait for them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("objects")
        .enable_all()
        .build();
    runtime.expect("a thread can be started")
});

/// Waits for an answer. Not for threads that run async code.
pub(super) fn block_on<T>(request: impl Future<Output = T>) -> T {
    RUNTIME.block_on(request)
}
