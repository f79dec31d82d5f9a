//! What a process answers over HTTP: pages by their paths, whom each is for, and what can be asked
//! for.
//!
//! `site` finds a page and lets a request have it, by what `access` says of who comes; `rounds` has
//! everything published first for a page as of now. `asked` is what an operator asks of a process
//! whatever its role. `operators` are the doors for them: the admin address and the control socket.

mod access;
mod answer;
pub mod asked;
mod object;
pub mod operators;
mod query;
mod rounds;
mod site;

pub use access::{AccessRefusal, IsToken, Right, Rules, Several, Visitor, bearer, note, only};
pub use answer::{
    Answer, Content, JSON, NotDone, Reply, SCHEMA, as_json, document, stopping, text, typed,
    verdict,
};
pub use object::{Maybe, PageField};
pub use query::{Query, wrong};
pub use rounds::{Rounds, hear, left};
pub use site::{For, Making, Page, Pages, Site, Visit, pages};
