//! Values and keys that anybody may have written to etcd: each is refused, or is read, and written
//! again it is the same.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use ringgate_core::secret::Key;
use ringgate_fleet::keyspace::{Keyspace, classify};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{
    Backend, Ban, Gateway, ListenerKey, PlayerClaim, Stored, TokenClaim,
};

fuzz_target!(|data: &[u8]| {
    comes_back::<Backend>(data);
    comes_back::<Ban>(data);
    comes_back::<Gateway>(data);
    comes_back::<PlayerClaim>(data);
    comes_back::<TokenClaim>(data);
    if let Some(key) = comes_back::<ListenerKey>(data) {
        let fleet = FleetKey::new(Key::from_bytes([1; 32]));
        assert!(fleet.open(b"/f/truth/key/main/1", &key).is_err(), "nobody can forge that");
    }
    let keyspace = Keyspace::new("/f").expect("it is one");
    if let Some(place) = keyspace.place(data) {
        assert_eq!(keyspace.key(&place), data, "one place has one key");
    }
    classify(data);
});

fn comes_back<T: Stored + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let value = T::decode(data).ok()?;
    // What was read may be too long once it is written with all its escapes.
    if let Ok(written) = value.encode() {
        assert_eq!(T::decode(&written).as_ref(), Ok(&value));
    }
    Some(value)
}
