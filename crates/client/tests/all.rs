//! The client against a netcode server of other hands, over real sockets.

#[path = "all/failing_over.rs"]
mod failing_over;
#[path = "all/far_end.rs"]
mod far_end;
#[path = "all/messages.rs"]
mod messages;
#[path = "all/overtaken.rs"]
mod overtaken;
#[path = "all/quiet.rs"]
mod quiet;
