//! The client as C calls it; `crates/client-c/include/ringgate_client.h` describes each function.
//!
//! Unsafe code cannot be avoided at this boundary: a caller in C hands over pointers, and nothing
//! but its word says what they point at. Every function here turns them into references or
//! slices first ([`raw`]), and calls safe code with these. A null pointer is answered with
//! [`ERROR_NULL`], never followed.
#![allow(unsafe_code, reason = "pointers and names that C links to")]

mod raw;
mod text;
mod types;

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::Duration;

use ringgate_client::{Client, Options, SendError};
use ringgate_core::netcode::ConnectToken;

pub use types::{CEvent, COptions, CQuality, CStatistics};
use types::{
    ERROR_CLOSED, ERROR_EMPTY, ERROR_FULL, ERROR_KIND, ERROR_NULL, ERROR_OPTION, ERROR_SYSTEM,
    ERROR_TOKEN, ERROR_TOO_LONG, OK,
};

/// What C knows as `rgc_client`.
#[derive(Debug)]
pub struct Handle {
    client: Client,
    user: *mut c_void,
}

/// # Safety
/// `token` points at `token_bytes` bytes, `options` at its size, `error` at an int; each may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_connect(
    token: *const c_void,
    token_bytes: usize,
    options: *const COptions,
    error: *mut c_int,
) -> *mut Handle {
    // SAFETY: as our own caller promises.
    let token = unsafe { raw::bytes(token, token_bytes) };
    // SAFETY: as our own caller promises.
    let options = unsafe { raw::read(options) };
    let connected = token.ok_or(ERROR_NULL).and_then(|token| connect(token, options?));
    let (handle, code) = match connected {
        Ok(handle) => (Box::into_raw(Box::new(handle)), OK),
        Err(code) => (ptr::null_mut(), code),
    };
    // SAFETY: as our own caller promises.
    if let Some(error) = unsafe { error.as_mut() } {
        *error = code;
    }
    handle
}

/// # Safety
/// `client` is null or from [`rgc_connect`], and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_free(client: *mut Handle) {
    if !client.is_null() {
        // SAFETY: it is from a box, and this is its last use.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_user(client: *const Handle) -> *mut c_void {
    // SAFETY: as our own caller promises.
    unsafe { client.as_ref() }.map_or(ptr::null_mut(), |handle| handle.user)
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_turn_for(client: *mut Handle, wait_ns: i64) -> c_int {
    let wait = Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(0));
    // SAFETY: as our own caller promises.
    turn(unsafe { client.as_mut() }, wait)
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_turn_forever(client: *mut Handle) -> c_int {
    // SAFETY: as our own caller promises.
    turn(unsafe { client.as_mut() }, WAIT_MAX)
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_turn(client: *mut Handle, wait_ns: i64) -> c_int {
    let wait = u64::try_from(wait_ns).map_or(Duration::ZERO, Duration::from_nanos);
    // SAFETY: as our own caller promises.
    turn(unsafe { client.as_mut() }, if wait_ns == -1 { WAIT_MAX } else { wait })
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_flush(client: *mut Handle) -> c_int {
    // SAFETY: as our own caller promises.
    with(unsafe { client.as_mut() }, |handle| {
        handle.client.flush();
        OK
    })
}

/// # Safety
/// As [`rgc_free`], and `event` points at as many bytes as its size says, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_next(client: *mut Handle, event: *mut CEvent) -> c_int {
    // SAFETY: as our own caller promises.
    let Some(handle) = (unsafe { client.as_mut() }) else { return ERROR_NULL };
    // SAFETY: as our own caller promises.
    let size = match unsafe { raw::size(event) } {
        Ok(size) => size,
        Err(code) => return code,
    };
    let Some(next) = handle.client.poll_event() else { return 0 };
    let found = CEvent::of(&next);
    // SAFETY: as our own caller promises, it has that size.
    unsafe { raw::write(event, &found, size) };
    1
}

/// # Safety
/// As [`rgc_free`], and `bytes` points at `bytes_len` bytes, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_send(
    client: *mut Handle,
    kind: u32,
    channel: u8,
    bytes: *const c_void,
    bytes_len: usize,
    token: u64,
) -> c_int {
    // SAFETY: as our own caller promises.
    let Some(message) = (unsafe { raw::bytes(bytes, bytes_len) }) else { return ERROR_NULL };
    // SAFETY: as our own caller promises.
    with(unsafe { client.as_mut() }, |handle| {
        let Some(channel) = types::channel(kind, channel) else { return ERROR_KIND };
        let token = (token != 0).then_some(token);
        match handle.client.send(channel, message, token) {
            Ok(()) => OK,
            Err(SendError::Closed) => ERROR_CLOSED,
            Err(SendError::Empty) => ERROR_EMPTY,
            Err(SendError::Full) => ERROR_FULL,
            Err(SendError::TooLong) => ERROR_TOO_LONG,
        }
    })
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_message_bytes_max(client: *const Handle, kind: u32) -> usize {
    // SAFETY: as our own caller promises.
    let (handle, channel) = (unsafe { client.as_ref() }, types::channel(kind, 0));
    let longest = |(handle, channel): (&Handle, _)| handle.client.message_bytes_max(channel);
    handle.zip(channel).map_or(0, longest)
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_disconnect(client: *mut Handle) -> c_int {
    // SAFETY: as our own caller promises.
    with(unsafe { client.as_mut() }, |handle| {
        handle.client.disconnect();
        OK
    })
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_disconnect_after(client: *mut Handle, linger_ns: i64) -> c_int {
    let linger = Duration::from_nanos(u64::try_from(linger_ns).unwrap_or(0));
    // SAFETY: as our own caller promises.
    with(unsafe { client.as_mut() }, |handle| {
        handle.client.disconnect_after(linger);
        OK
    })
}

/// # Safety
/// As [`rgc_free`], `reason` points at a number, or is null, and `text` at `text_bytes` bytes, or
/// is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_farewell(
    client: *const Handle,
    reason: *mut u32,
    text: *mut c_char,
    text_bytes: usize,
) -> c_int {
    // SAFETY: as our own caller promises.
    let Some(handle) = (unsafe { client.as_ref() }) else { return ERROR_NULL };
    let Some(farewell) = handle.client.farewell() else { return 0 };
    // SAFETY: as our own caller promises.
    if let Some(reason) = unsafe { reason.as_mut() } {
        *reason = farewell.reason.into();
    }
    // SAFETY: as our own caller promises.
    unsafe { raw::write_text(text, text_bytes, &farewell.text) };
    1
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_is_connected(client: *const Handle) -> c_int {
    // SAFETY: as our own caller promises.
    let handle = unsafe { client.as_ref() };
    handle.is_some_and(|handle| handle.client.is_connected()).into()
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_is_finished(client: *const Handle) -> c_int {
    // SAFETY: as our own caller promises.
    let handle = unsafe { client.as_ref() };
    handle.is_none_or(|handle| handle.client.is_finished()).into()
}

/// # Safety
/// As [`rgc_free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_has_delivered_all(client: *const Handle) -> c_int {
    // SAFETY: as our own caller promises.
    let handle = unsafe { client.as_ref() };
    handle.is_some_and(|handle| handle.client.has_delivered_all()).into()
}

/// # Safety
/// As [`rgc_free`], and `quality` points at as many bytes as its size says, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_quality(client: *const Handle, quality: *mut CQuality) -> c_int {
    // SAFETY: as our own caller promises.
    let Some(handle) = (unsafe { client.as_ref() }) else { return ERROR_NULL };
    let Some(found) = handle.client.quality() else { return ERROR_CLOSED };
    // SAFETY: as our own caller promises.
    unsafe { raw::answer(quality, &CQuality::of(&found)) }
}

/// # Safety
/// As [`rgc_free`], and `statistics` points at as many bytes as its size says, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgc_statistics(
    client: *const Handle,
    statistics: *mut CStatistics,
) -> c_int {
    // SAFETY: as our own caller promises.
    let Some(handle) = (unsafe { client.as_ref() }) else { return ERROR_NULL };
    let found = CStatistics::of(&handle.client);
    // SAFETY: as our own caller promises.
    unsafe { raw::answer(statistics, &found) }
}

/// What a code that is not 1 or 0 means, in a few words.
#[unsafe(no_mangle)]
pub extern "C" fn rgc_error_text(code: c_int) -> *const c_char {
    text::of_error(code).as_ptr()
}

/// Why a connection is over, in a few words.
#[unsafe(no_mangle)]
pub extern "C" fn rgc_reason_text(reason: u32) -> *const c_char {
    text::of_reason(reason).as_ptr()
}

/// The library's version, which may be newer than the header's.
#[unsafe(no_mangle)]
pub const extern "C" fn rgc_library_version() -> u32 {
    LIBRARY_MAJOR << 16 | LIBRARY_MINOR
}

/// The release that the library is of.
#[unsafe(no_mangle)]
pub extern "C" fn rgc_version_text() -> *const c_char {
    text::VERSION.as_ptr()
}

fn connect(token: &[u8], options: Option<COptions>) -> Result<Handle, c_int> {
    let token = ConnectToken::decode(token).map_err(|_| ERROR_TOKEN)?;
    let user = options.as_ref().map_or(ptr::null_mut(), |options| options.user);
    let options = match options {
        Some(options) => options.checked().ok_or(ERROR_OPTION)?,
        None => Options::default(),
    };
    let client = Client::connect(&token, &options).map_err(|_| ERROR_SYSTEM)?;
    Ok(Handle { client, user })
}

fn turn(handle: Option<&mut Handle>, wait: Duration) -> c_int {
    with(handle, |handle| handle.client.turn(wait.min(WAIT_MAX)).map_or(ERROR_SYSTEM, |()| OK))
}

fn with(handle: Option<&mut Handle>, act: impl FnOnce(&mut Handle) -> c_int) -> c_int {
    handle.map_or(ERROR_NULL, act)
}

/// A turn returns when netcode has something to say, which is ten times a second.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// As the header has them.
const LIBRARY_MAJOR: u32 = 0;
const LIBRARY_MINOR: u32 = 2;
