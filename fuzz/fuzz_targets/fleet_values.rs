//! Values and keys that anybody may have written to etcd, what game processes say at the announce
//! socket, and bodies of requests to the token service: each is refused, or is read, and written
//! again it is the same.
#![no_main]

#[path = "../../crates/tokens/src/limits.rs"]
#[allow(dead_code, reason = "the service's, of which only the bodies' are used here")]
mod limits;
#[path = "../../crates/tokens/src/wanted.rs"]
#[allow(dead_code, reason = "the service's, without what mints")]
mod wanted;

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use ringgate_core::secret::Key;
use ringgate_fleet::keyspace::{Class, Keyspace};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{
    Agent, Backend, Ban, Block, Gateway, Guard, ListenerKey, Ousted, Piece, PlayerClaim, Question,
    SealedText, Service, Stored, TokenClaim, What,
};
use ringgate_link::announce::{Announced, Standing};
use wanted::{WantedAnswers, WantedBatch, WantedPlace, WantedToken};

fuzz_target!(|data: &[u8]| {
    comes_back::<Agent>(data);
    comes_back::<Backend>(data);
    comes_back::<Ban>(data);
    comes_back::<Gateway>(data);
    comes_back::<PlayerClaim>(data);
    comes_back::<TokenClaim>(data);
    comes_back::<Ousted>(data);
    comes_back::<Service>(data);
    comes_back::<Block>(data);
    comes_back::<Guard>(data);
    comes_back::<Question>(data);
    comes_back::<Piece>(data);
    if let Some(text) = comes_back::<SealedText>(data) {
        let fleet = FleetKey::new(Key::from_bytes([1; 32]));
        assert!(fleet.open_text(b"/f/claim/ask/i/1", &text).is_err(), "nobody can forge that");
    }
    if let Some(key) = comes_back::<ListenerKey>(data) {
        let fleet = FleetKey::new(Key::from_bytes([1; 32]));
        assert!(fleet.open(b"/f/truth/key/main/1", &key).is_err(), "nobody can forge that");
    }
    let keyspace = Keyspace::new("/f").expect("it is one");
    if let Some(place) = keyspace.place(data) {
        assert_eq!(keyspace.key(&place), data, "one place has one key");
    }
    Class::of(data);
    if let Some(read) = Announced::decode(data) {
        let written = read.what.encode(&read.name, read.instance).expect("it was read");
        assert_eq!(Announced::decode(&written), Some(read));
    }
    Standing::decode(data);
    ask(data);
});

/// What a caller of the token service may send.
fn ask(body: &[u8]) {
    let is_fit = |place: &wanted::Where| {
        let few = place.labels.len() <= limits::LABELS_MAX
            && place.regions.len() <= limits::REGIONS_MAX;
        few && (1..=limits::ADDRESSES_MAX).contains(&place.addresses)
    };
    if let Ok(token) = WantedToken::parse(body) {
        assert!(is_fit(&token.place) && token.expire_s != Some(0) && token.timeout_s != 0);
        if let Some(backend) = token.place.backend.as_ref().map(|it| it.as_str())
            && backend.len() <= wanted::BACKEND_NAME_MAX
        {
            for tag in [None, Some(body.len() as u64)] {
                let data = wanted::user_data(backend, &token.user_data, tag);
                assert!(data.starts_with(backend.as_bytes()));
            }
        }
    }
    if let Ok(batch) = WantedBatch::parse(body) {
        assert!((1..=limits::BATCH_MAX).contains(&batch.tokens.len()));
        assert!(batch.tokens.iter().all(|token| is_fit(&token.place)));
    }
    for what in [What::Sessions, What::Kick, What::Drain, What::Undrain, What::Move, What::Trace] {
        if let Ok(WantedAnswers { query, .. }) = WantedAnswers::parse(what, body) {
            let question = Question { at: 0, by: "a".to_owned(), what, query };
            assert_eq!(question.check(), Ok(()), "what is taken can be asked");
        }
    }
    match WantedPlace::parse(body) {
        Ok(place) => assert!(is_fit(&place.place)),
        Err(why) => assert!(!why.to_string().chars().any(char::is_control)),
    }
}

fn comes_back<T: Stored + PartialEq + Debug>(data: &[u8]) -> Option<T> {
    let value = T::decode(data).ok()?;
    // What was read may be too long once it is written with all its escapes.
    if let Ok(written) = value.encode() {
        assert_eq!(T::decode(&written).as_ref(), Ok(&value));
    }
    Some(value)
}
