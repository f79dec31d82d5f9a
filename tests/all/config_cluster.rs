//! `[cluster]`: what is read, and every mistake by name.

use ringgate::config::keys::KeySources;
use ringgate::config::{Config, parse};

use crate::folder::{Folder, IDENTITY};

const REST: &str = "[[listener]]\nname = \"main\"\nprotocol = \"plain\"\nbind = [\"127.0.0.1:40000\"]\n\
                    backends = [\"shooter\"]\nroute = \"least-players\"\n\
                    [[backend]]\nname = \"shooter\"\nlink = \"udp\"\naddress = \"127.0.0.1:7778\"\nslots = 8\n";
const FLEET: &str =
    "[fleet]\nendpoints = [\"http://127.0.0.1:2379\"]\nprefix = \"/f\"\nname = \"gate-1\"\n";
const CLUSTER: &str = "[cluster]\nname = \"fra\"\nbind = \"127.0.0.1:4700\"\nca = \"cluster-ca.pem\"\n\
                       certificate = \"member.pem\"\nkey = \"member.key\"\n";

fn read(folder: &Folder, text: &str) -> Result<Config, String> {
    let sources = KeySources::new(&|_| None, None);
    let parsed = parse(&format!("{REST}{text}"), &folder.join("gate.toml"), &sources);
    parsed.map_err(|mistakes| mistakes.to_string())
}

#[test]
fn a_cluster_is_read_and_its_mistakes_are_named() {
    let folder = Folder::new();
    for (name, text, mode) in IDENTITY {
        folder.file(name, text, mode);
    }
    let config = read(&folder, &[FLEET, CLUSTER].concat()).expect("it is sound");
    let notices = config.notices();
    assert!(notices[0].starts_with("cluster \"fra\": without an [[agent]]"), "{notices:?}");
    let cluster = config.cluster.expect("it is there");
    assert_eq!((&*cluster.name, &*cluster.entrance()), ("fra", "127.0.0.1:4700"));
    let name = "gate-1.fra.ringgate-cluster".to_owned();
    assert_eq!(cluster.certified_name("gate-1"), (name, true));
    assert!(!cluster.certified_name("gate-2").1);

    for (text, said) in [
        (
            CLUSTER.to_owned(),
            "cluster.name: found a cluster without a fleet, expected a table [fleet]",
        ),
        (
            [FLEET, &CLUSTER.replace("127.0.0.1:4700", "0.0.0.0:4700")].concat(),
            "cluster.public: found nothing, and 0.0.0.0:4700, expected what others dial",
        ),
        (
            [&FLEET.replace("gate-1", "gate-1-"), CLUSTER].concat(),
            "cluster.name: [cluster]: a member is called as a host is",
        ),
        ([FLEET, &CLUSTER.replace("member.key", "no.key")].concat(), "cluster.key: "),
        (
            [FLEET, &CLUSTER.replace("\"fra\"", "\"_fra\"")].concat(),
            "cluster.name: found \"_fra\", expected a name that begins with a letter or a digit",
        ),
        (
            [FLEET, &CLUSTER.replace("127.0.0.1:4700", "127.0.0.1:40000")].concat(),
            "listener[0].bind[0]: found 127.0.0.1:40000, where agents or a cluster's members connect",
        ),
    ] {
        let mistakes = read(&folder, &text).expect_err("there is a mistake");
        assert!(mistakes.contains(said), "{mistakes}");
    }
    let agent = "[[agent]]\nname = \"a.fra.ringgate-cluster\"\nbind = \"127.0.0.1:7400\"\nca = \"agents-ca.pem\"\n\
                 certificate = \"gateway.pem\"\nkey = \"gateway.key\"\nbackends = []\n";
    let mistakes = read(&folder, agent).expect_err("it is a member's name");
    assert!(mistakes.contains("agent[0].name: found \"a.fra.ringgate-cluster\""), "{mistakes}");
}
