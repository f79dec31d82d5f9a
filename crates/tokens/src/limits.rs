//! How much of anything a caller may send. What is larger is refused before it is read.

/// Tokens of a batch.
pub const BATCH_MAX: usize = 256;
/// Bytes of a body that asks for one token or one place.
pub const BODY_BYTES_MAX: usize = 8 << 10;
/// Bytes of a body that asks for many.
pub const BATCH_BODY_BYTES_MAX: usize = 512 << 10;
/// Gateways of a token. netcode has 32; a player who has tried four tries no more.
pub const ADDRESSES_MAX: usize = 8;
/// Labels that a backend is chosen by.
pub const LABELS_MAX: usize = 16;
/// Regions, in the order in which they are tried.
pub const REGIONS_MAX: usize = 8;
/// Gateways that are asked by name.
pub const GATEWAYS_MAX: usize = 64;
/// Sessions that each gateway shows.
pub const LIMIT_MAX: u64 = 1000;
/// Seconds that gateways may take for an answer.
pub const WITHIN_S_MAX: u64 = 30;
/// Seconds that a trace may go on.
pub const FOR_S_MAX: u64 = 60;
/// Seconds that a drain may take.
pub const DEADLINE_S_MAX: u64 = 24 * 3600;
/// Bytes of a text within a body, and of what an answer quotes of it.
pub const TEXT_BYTES_MAX: usize = 256;
/// Bytes of an idempotency key.
pub const KEY_BYTES_MAX: usize = 64;
/// Callers that a service knows.
pub const CALLERS_MAX: usize = 256;
/// Bytes of a request's head.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
