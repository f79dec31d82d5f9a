//! Users and passwords, and TLS with certificates on both sides.

#[cfg(feature = "tls")]
use std::path::Path;
#[cfg(feature = "tls")]
use std::process::{Command, Stdio};
use std::sync::Arc;

#[cfg(feature = "tls")]
use ringgate_fleet::etcd::TlsFiles;
use ringgate_fleet::etcd::kv::Range;
use ringgate_fleet::etcd::txn::Put;
use ringgate_fleet::etcd::{Client, Code, Credentials, Error, Options};

#[cfg(feature = "tls")]
use super::rig::skip;
use super::rig::{Etcd, is_installed, until};
use super::watcher::{PREFIX, Watcher};
use crate::own::own_ip;

fn with_user(options: Options, user: &str, password: &str) -> Client {
    let password = Arc::new(zeroize::Zeroizing::new(password.to_owned()));
    let credentials = Some(Credentials { user: user.into(), password });
    Client::new(Options { credentials, ..options }).expect("the options are sound")
}

#[tokio::test]
async fn a_user_logs_in_and_again_when_the_server_has_forgotten() {
    if !is_installed() {
        return;
    }
    let mut etcd = Etcd::start().await;
    let user = with_user(etcd.options(), "gateway", "secret");
    assert!(user.range(&Range::one("/")).await.is_ok(), "nobody has to log in yet");
    etcd.ctl(&["user", "add", "root:root"]);
    etcd.ctl(&["user", "add", "gateway:secret"]);
    etcd.ctl(&["role", "add", "fleet"]);
    etcd.ctl(&["role", "grant-permission", "fleet", "--prefix=true", "readwrite", "/f/"]);
    etcd.ctl(&["user", "grant-role", "gateway", "fleet"]);
    etcd.ctl(&["auth", "enable"]);

    let put = Put { key: format!("{PREFIX}gateway/g").into(), value: "1".into(), lease: 0 };
    user.put(&put).await.expect("it logs in when it is told to");
    let beyond = user.range(&Range::one("/other")).await;
    let is_refused =
        |it| matches!(it, Err(Error::Status { code, .. }) if code == Code::PERMISSION_DENIED);
    assert!(is_refused(beyond));
    let watcher = Watcher::start(user.clone());
    watcher.is_current().await;

    etcd.members[0].kill();
    etcd.members[0].start();
    until("the server is back", async || user.put(&put).await.is_ok()).await;
    user.put(&Put { value: "2".into(), ..put.clone() }).await.unwrap();
    watcher.holds("gateway/g", "2").await;

    let wrong = with_user(etcd.options(), "gateway", "wrong");
    assert!(matches!(wrong.put(&put).await, Err(Error::Status { .. })));
    let nobody = etcd.client();
    assert!(matches!(nobody.put(&put).await, Err(Error::Status { .. })));
}

/// With users, whoever has a certificate needs no password: its name is the user.
#[cfg(feature = "tls")]
async fn name_is_user(etcd: &Etcd, client: &Client, put: &Put) {
    let path = |name: &str| etcd.folder.path(name).to_string_lossy().into_owned();
    let (ca, own, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let proof = ["--cacert", &ca, "--cert", &own, "--key", &key];
    for words in [
        "user add root:root",
        "user add client --no-password",
        "role add fleet",
        "role grant-permission fleet --prefix=true readwrite /f/",
        "user grant-role client fleet",
        "auth enable",
    ] {
        etcd.ctl(&[&proof[..], &words.split(' ').collect::<Vec<_>>()].concat());
    }
    client.put(put).await.expect("the user may do that");
    let beyond = client.range(&Range::one("/other")).await;
    let denied = Code::PERMISSION_DENIED;
    assert!(matches!(beyond, Err(Error::Status { code, .. }) if code == denied));
}

/// Runs openssl in a folder.
#[cfg(feature = "tls")]
fn openssl(folder: &Path, arguments: &str) -> bool {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(arguments.split(' ')).stdin(Stdio::null());
    command.output().is_ok_and(|said| said.status.success())
}

/// An authority, and what it has signed: `server`, with the address as its name, and `client`.
#[cfg(feature = "tls")]
fn certificates(folder: &Path) -> bool {
    std::fs::write(folder.join("server.ext"), format!("subjectAltName=IP:{}", own_ip()))
        .expect("it is our folder");
    std::fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth")
        .expect("it is our folder");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test");
    let sign = |name: &str| {
        let asks = format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}");
        let signs = format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile {name}.ext -out {name}.pem"
        );
        openssl(folder, &asks) && openssl(folder, &signs)
    };
    openssl(folder, &authority) && sign("server") && sign("client")
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn both_sides_prove_who_they_are() {
    if !is_installed() {
        return;
    }
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("openssl is not there");
    }
    let etcd = Etcd::launch(1, "https", |folder| {
        assert!(certificates(&folder.0), "openssl makes certificates");
        let path = |name: &str| folder.path(name).to_string_lossy().into_owned();
        [
            "--client-cert-auth",
            "--trusted-ca-file",
            &path("ca.pem"),
            "--cert-file",
            &path("server.pem"),
            "--key-file",
            &path("server.key"),
        ]
        .map(str::to_owned)
        .into()
    });
    let folder = &etcd.folder;
    let own = Some((folder.path("client.pem"), folder.path("client.key")));
    let tls = TlsFiles { ca: folder.path("ca.pem"), own: own.clone() };
    let client = Client::new(Options { tls: Some(tls.clone()), ..etcd.options() }).unwrap();
    etcd.answers(&client).await;
    let watcher = Watcher::start(client.clone());
    watcher.is_current().await;
    let put = Put { key: format!("{PREFIX}gateway/g").into(), value: "1".into(), lease: 0 };
    client.put(&put).await.unwrap();
    watcher.holds("gateway/g", "1").await;

    name_is_user(&etcd, &client, &put).await;

    let unproven = TlsFiles { own: None, ..tls.clone() };
    let unproven = Client::new(Options { tls: Some(unproven), ..etcd.options() }).unwrap();
    assert!(unproven.put(&put).await.is_err(), "the server asks who we are");
    let stranger = TlsFiles { ca: folder.path("client.pem"), own };
    let stranger = Client::new(Options { tls: Some(stranger), ..etcd.options() }).unwrap();
    assert!(stranger.put(&put).await.is_err(), "we ask who the server is");
    let plain = Client::new(etcd.options()).unwrap();
    assert!(matches!(plain.put(&put).await, Err(Error::Config(_))), "a CA has to be named");
    let missing = TlsFiles { ca: folder.path("nothing"), ..tls };
    let missing = Client::new(Options { tls: Some(missing), ..etcd.options() });
    assert!(matches!(missing.unwrap_err(), Error::Config(why) if why.contains("nothing")));
}
