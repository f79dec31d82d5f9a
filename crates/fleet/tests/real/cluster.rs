//! The mirror on three members, of which one is enough to be misled by.

use super::rig::{Etcd, is_installed, until};
use super::watcher::{PREFIX, Watcher};
use crate::own::own_ip;

#[tokio::test]
async fn a_member_without_a_quorum_is_not_believed_and_its_fellows_are_found() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::launch(3, "http", |_| Vec::new());
    etcd.answers(&etcd.client()).await;
    etcd.ctl(&["put", &format!("{PREFIX}gateway/g"), "one"]);
    let watcher = Watcher::start(etcd.client());
    watcher.is_current().await;
    watcher.holds("gateway/g", "one").await;

    // Two stand still: the third answers, but it cannot know anything new.
    etcd.members[1].signal("-STOP");
    etcd.members[2].signal("-STOP");
    until("the mirror knows that it knows nothing", async || !watcher.status().is_current).await;
    etcd.members[1].signal("-CONT");
    etcd.members[2].signal("-CONT");
    watcher.is_current().await;
    assert_eq!(watcher.status().lists, 1);

    // The member that it began with is gone for good.
    etcd.members[0].kill();
    let endpoint = format!("http://{}:{}", own_ip(), etcd.members[1].port);
    until("the others have a leader and take a change", async || {
        std::process::Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoint, "put", &format!("{PREFIX}gateway/g"), "two"])
            .output()
            .is_ok_and(|said| said.status.success())
    })
    .await;
    watcher.holds("gateway/g", "two").await;
    watcher.is_current().await;
}
