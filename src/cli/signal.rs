//! Being asked to stop, or to read files again, for commands without a control plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// A flag that SIGTERM and SIGINT raise; then `wake` is called, so that a sleeping thread
/// looks at it.
pub(super) fn stop_flag(wake: impl Fn() + Send + 'static) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&flag);
    on_signals([SignalKind::terminate(), SignalKind::interrupt()], move || {
        raised.store(true, Ordering::Relaxed);
        wake();
        false
    })?;
    Ok(flag)
}

/// SIGHUP ends nothing from now on: each time `handle` is called.
pub(super) fn on_hang_ups(handle: impl Fn() + Send + 'static) -> Result<(), Failure> {
    on_signals([SignalKind::hangup()], move || {
        handle();
        true
    })
}

/// Calls `handle` when one of the signals has come, in a thread of its own, for as long as it says
/// so.
fn on_signals<const N: usize>(
    kinds: [SignalKind; N],
    handle: impl Fn() -> bool + Send + 'static,
) -> Result<(), Failure> {
    let fail = |why| Failure::failed(format_args!("cannot catch signals: {why}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().map_err(fail)?;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for kind in kinds {
        let _guard = runtime.enter();
        let (mut caught, tell) = (signal(kind).map_err(fail)?, tell.clone());
        runtime
            .spawn(async move { while caught.recv().await.is_some() && tell.send(()).is_ok() {} });
    }
    let wait = move || {
        runtime.block_on(async { while told.recv().await.is_some() && handle() {} });
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(fail)?;
    Ok(())
}
