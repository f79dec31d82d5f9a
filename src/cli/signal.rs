//! Being asked to stop, for commands without a control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringgate_process::signals;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// A flag that SIGTERM and SIGINT raise; then `wake` is called, so that a sleeping thread
/// looks at it.
pub(super) fn stop_flag(wake: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let fail = |why| Failure::failed(format_args!("cannot catch signals: {why}"));
    signals::check_room().map_err(fail)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(fail)?;
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    let caught = |kind| {
        let _guard = runtime.enter();
        signal(kind).map_err(fail)
    };
    let (mut terminate, mut interrupt) =
        (caught(SignalKind::terminate())?, caught(SignalKind::interrupt())?);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
        raised.store(true, Ordering::Relaxed);
        wake();
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(fail)?;
    Ok(flag)
}
