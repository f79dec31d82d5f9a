//! Rules that are broken on purpose, around the parts: each has to be found, because a judge that
//! finds nothing holds nothing.

use super::judge::Wrong;
use super::search::{self, scopes};

/// A rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// An arbiter ends a session for whoever asks.
    AnybodyEnds,
    /// A process that begins anew under its name has the incarnation of the one before.
    IncarnationKept,
    /// A grant to a question from before a sleep counts after it.
    LateGrantsCount,
    /// Payloads of earlier owners are taken.
    LaterTermsDoNotFence,
    /// A number has the member before the term.
    MembersBeforeTerms,
    /// An arbiter opens a session whatever the time is.
    OpensAtAnyTime,
    /// An owner ends a session without asking.
    OwnerEndsAlone,
    /// A process that has slept does not notice.
    SleepUnnoticed,
    /// A taker acts before it has an answer.
    TakerDoesNotWait,
    /// A process counts a term as used when it is granted, and not when it is made.
    TermsMadeWhenGranted,
    /// A process makes terms by what it knows of the session alone.
    TermsOfOtherSessionsForgotten,
    /// An arbiter takes a claim of a session that it does not know for the first.
    UnknownIsNew,
    /// The replay window begins anew with each owner.
    WindowOfEachOwner,
}

impl Break {
    pub(crate) const ALL: &[Self] = &[
        Self::AnybodyEnds,
        Self::IncarnationKept,
        Self::LateGrantsCount,
        Self::LaterTermsDoNotFence,
        Self::MembersBeforeTerms,
        Self::OpensAtAnyTime,
        Self::OwnerEndsAlone,
        Self::SleepUnnoticed,
        Self::TakerDoesNotWait,
        Self::TermsMadeWhenGranted,
        Self::TermsOfOtherSessionsForgotten,
        Self::UnknownIsNew,
        Self::WindowOfEachOwner,
    ];
}

fn found(broken: Break, scope: super::world::Scope) -> Wrong {
    let scope = super::world::Scope { broken: Some(broken), ..scope };
    let (wrong, way) = search::search(scope).expect_err("the break is found");
    eprintln!("{broken:?}: {wrong:?} after {way:#?}");
    wrong
}

#[test]
fn an_end_by_whoever_asks_is_found() {
    assert_eq!(found(Break::AnybodyEnds, scopes::ENDS), Wrong::EndedByAnother);
}

#[test]
fn an_incarnation_that_is_used_again_is_found() {
    let scope = scopes::TWO_SESSIONS_AND_A_RESTART;
    assert_eq!(found(Break::IncarnationKept, scope), Wrong::NumberTwice);
}

#[test]
fn numbers_that_begin_with_the_member_are_found() {
    assert_eq!(found(Break::MembersBeforeTerms, scopes::PAYLOADS), Wrong::NumberTooLow);
}

#[test]
fn terms_that_are_made_by_one_session_alone_are_found() {
    let scope = scopes::TWO_SESSIONS;
    assert_eq!(found(Break::TermsOfOtherSessionsForgotten, scope), Wrong::NumberTwice);
}

#[test]
fn terms_that_are_counted_only_when_granted_are_found() {
    assert_eq!(found(Break::TermsMadeWhenGranted, scopes::TWO_SESSIONS), Wrong::NumberTwice);
}

#[test]
fn a_window_for_each_owner_is_found() {
    assert_eq!(found(Break::WindowOfEachOwner, scopes::PAYLOADS), Wrong::HandedTwice);
}

#[test]
fn payloads_of_an_earlier_owner_are_found() {
    assert_eq!(found(Break::LaterTermsDoNotFence, scopes::PAYLOADS), Wrong::OwnerWentBack);
}

#[test]
fn an_opening_that_is_taken_late_is_found() {
    assert_eq!(found(Break::OpensAtAnyTime, scopes::ENDS), Wrong::CameBack);
}

#[test]
fn a_claim_that_opens_is_found() {
    assert_eq!(found(Break::UnknownIsNew, scopes::ENDS), Wrong::CameBack);
}

#[test]
fn an_owner_that_ends_alone_is_found() {
    assert_eq!(found(Break::OwnerEndsAlone, scopes::ENDS), Wrong::EndedAlone);
}

#[test]
fn a_sleep_that_nobody_notices_is_found() {
    assert_eq!(found(Break::SleepUnnoticed, scopes::SLEEPS), Wrong::SealedStale);
}

#[test]
fn a_grant_from_before_a_sleep_is_found() {
    assert_eq!(found(Break::LateGrantsCount, scopes::SLEEPS), Wrong::SealedStale);
}

#[test]
fn a_taker_that_does_not_wait_is_found() {
    assert_eq!(found(Break::TakerDoesNotWait, scopes::PAYLOADS), Wrong::SealedUnasked);
}
