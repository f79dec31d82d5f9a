//! The library from C: the header with every warning, the functions under sanitizers, the example
//! and the installed files through pkg-config.

#[path = "../../client/tests/all/far_end.rs"]
#[allow(dead_code, reason = "the client's own tests ask it more")]
mod far_end;

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use far_end::{FarEnd, token};

const WARNINGS: [&str; 7] =
    ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Werror", "-pedantic"];

/// What the static library needs of the system.
const SYSTEM: [&str; 6] = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// Where today's header is, and that of the first version, with programs of its release. Those are
/// kept as they were.
const HEADERS: &str = "crates/client-c/include";
const FIRST: &str = "crates/client-c/tests/abi_0_1";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Where cargo has put the libraries that this test was built with.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the system knows");
    test.parent().expect("a folder").to_path_buf()
}

/// A folder of its own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringgate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    /// A token for a server, in a file.
    fn token(&self, server: &FarEnd, client_id: u64) -> PathBuf {
        let path = self.0.join(format!("{client_id}.token"));
        let token = token(client_id, &[server.address], 60);
        std::fs::write(&path, token.to_bytes()).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn compile(source: &Path, program: &Path, more: &[&str]) -> bool {
    compile_with(&here(HEADERS), source, program, more)
}

fn compile_with(headers: &Path, source: &Path, program: &Path, more: &[&str]) -> bool {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=c99", "-g"]).args(WARNINGS).arg("-I").arg(headers);
    command.arg(source).arg("-o").arg(program).args(more);
    command.status().expect("there is a C compiler: Rust links with it").success()
}

fn run(program: &Path, token: &Path, more: &[&str]) -> String {
    let ended = Command::new(program).arg(token).args(more).output().expect("it was compiled");
    text(&ended)
}

fn text(ended: &Output) -> String {
    let (out, err) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{}: {out}{err}", ended.status);
    out.into_owned()
}

#[test]
fn every_function_answers_as_the_header_says() {
    let (folder, server) = (Folder::new("faces"), FarEnd::start(4, ""));
    let program = folder.0.join("faces");
    let library = built().join("libringgate_client_c.a").display().to_string();
    let with = |sanitizers: &[&str]| {
        let more = [&[library.as_str()], sanitizers, &SYSTEM].concat();
        compile(&here("crates/client-c/tests/c/faces.c"), &program, &more)
    };
    let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    if !with(&sanitizers) {
        println!("tested without sanitizers: the compiler has none");
        assert!(with(&[]), "it compiles");
    }
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = silent.local_addr().expect("a bound socket has one");
    let for_silent = folder.0.join("silent.token");
    std::fs::write(&for_silent, token(2, &[address], 1).to_bytes()).expect("a file");
    let more = for_silent.to_str().expect("text");
    assert_eq!(run(&program, &folder.token(&server, 1), &[more]), "done\n");
}

#[test]
fn the_header_is_cpp_too() {
    let folder = Folder::new("cpp");
    let source = folder.0.join("it.cpp");
    let uses = "#include \"ringgate_client.h\"\n\
        int main() {\n\
        rgc_event event = RGC_EVENT_INIT;\n\
        rgc_quality_t quality = RGC_QUALITY_INIT;\n\
        rgc_statistics_t counts = RGC_STATISTICS_INIT;\n\
        rgc_quality(nullptr, &quality);\n\
        return rgc_next(nullptr, &event) + rgc_statistics(nullptr, &counts); }\n";
    std::fs::write(&source, uses).expect("a file");
    let mut command = Command::new("c++");
    let flags =
        ["-std=c++11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"];
    match command.args(flags).arg("-I").arg(here(HEADERS)).arg(source).status() {
        Ok(status) => assert!(status.success()),
        Err(why) => eprintln!("SKIPPED: there is no C++ compiler: {why}"),
    }
}

#[test]
fn the_example_is_built_through_pkg_config_and_plays() {
    if !has("make") {
        return;
    }
    let (folder, server) = (Folder::new("installed"), FarEnd::start(4, "PktLoss=3 PktLag=5"));
    // What was built for one place is installed in another.
    text(&make("all", &folder).output().expect("it is there"));
    install(&folder);
    let file = folder.0.join("lib/pkgconfig/ringgate-client.pc");
    for name in
        ["pkgconfig/ringgate-client.pc", "cmake/ringgate-client/ringgate-client-config.cmake"]
    {
        let written = std::fs::read_to_string(folder.0.join("lib").join(name)).expect(name);
        assert!(!written.contains("/usr/local"), "{written}");
    }
    let flags = match Command::new("pkg-config").args(["--cflags", "--libs"]).arg(&file).output() {
        Ok(said) => text(&said),
        Err(why) => {
            eprintln!("SKIPPED: there is no pkg-config: {why}");
            let folder = folder.0.display();
            format!("-I{folder}/include -L{folder}/lib -lringgate_client")
        }
    };
    let found = format!("-Wl,-rpath,{}", folder.0.join("lib").display());
    let mut more: Vec<_> = flags.split_whitespace().collect();
    more.push(&found);
    let program = folder.0.join("bot");
    assert!(compile(&here("crates/client-c/examples/bot.c"), &program, &more), "it compiles");
    let said = run(&program, &folder.token(&server, 1), &["1"]);
    assert!(said.contains("in slot 0 of 127.0.0.1:") && said.ends_with("snapshots\n"), "{said}");
    assert!(said.contains("line 0\n") && said.contains(", 0 lost\n"), "{said}");
    assert!(said.contains("\nleft\n"), "{said}");
}

/// Whether a program is there. Says so where it is not, which CI does not allow.
fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    assert!(is_there || std::env::var_os("REQUIRE_LANGUAGES").is_none(), "{program} is required");
    if !is_there {
        eprintln!("SKIPPED: there is no {program}");
    }
    is_there
}

fn make(target: &str, folder: &Folder) -> Command {
    let mut make = Command::new("make");
    make.arg("-C").arg(here("crates/client-c")).arg(target);
    make.arg(format!("BUILT={}", built().display()));
    make.arg(format!("BUILD={}", folder.0.join("made").display()));
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make
}

fn install(folder: &Folder) {
    let prefix = format!("PREFIX={}", folder.0.display());
    text(&make("install", folder).arg(prefix).output().expect("it is there"));
}

#[test]
fn cmake_finds_what_make_installs() {
    if !has("make") || !has("cmake") {
        return;
    }
    let folder = Folder::new("cmake");
    install(&folder);
    let project = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(bots C)\n\
         find_package(ringgate-client 0.1 REQUIRED)\n\
         add_executable(bot {source})\ntarget_link_libraries(bot ringgate::client)\n\
         add_executable(static {source})\ntarget_link_libraries(static ringgate::client_static)\n",
        source = here("crates/client-c/examples/bot.c").display()
    );
    std::fs::write(folder.0.join("CMakeLists.txt"), project).expect("a file");
    let (prefix, build) = (folder.0.display(), folder.0.join("build"));
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&folder.0).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={prefix}"));
    text(&configure.output().expect("it is there"));
    text(&Command::new("cmake").arg("--build").arg(&build).output().expect("it is there"));
    let server = FarEnd::start(4, "");
    for (client_id, program) in [(1, "bot"), (2, "static")] {
        let said = run(&build.join(program), &folder.token(&server, client_id), &["1"]);
        assert!(said.contains("\nleft\n"), "{said}");
    }
}

#[test]
fn the_debian_package_holds_all_of_it() {
    if !has("make") || !has("dpkg-deb") {
        return;
    }
    let folder = Folder::new("debian");
    let out = format!("OUT={}", folder.0.display());
    let mut make = make("deb", &folder);
    // Quicker, and not what is tested.
    make.arg(out).env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    text(&make.output().expect("it is there"));
    let files = std::fs::read_dir(&folder.0).expect("a folder");
    let mut names = files.map(|file| file.expect("an entry").file_name());
    let package = names.find(|name| name.to_string_lossy().ends_with(".deb")).expect("a package");
    let mut list = Command::new("dpkg-deb");
    let listed = text(&list.arg("-c").arg(folder.0.join(package)).output().expect("it is there"));
    for file in [
        "/usr/include/ringgate_client.h",
        "/libringgate_client.so.0",
        "/libringgate_client.a",
        "/pkgconfig/ringgate-client.pc",
        "/cmake/ringgate-client/ringgate-client-config.cmake",
        "/examples/bot.c",
    ] {
        assert!(listed.contains(file), "{file} is not in\n{listed}");
    }
}

/// Nothing but the header's functions may be seen in the shared library.
#[test]
fn the_shared_library_shows_what_the_header_declares() {
    let library = built().join("libringgate_client_c.so");
    let said = match Command::new("nm").args(["-D", "--defined-only"]).arg(library).output() {
        Ok(said) => text(&said),
        Err(why) => return eprintln!("SKIPPED: there is no nm: {why}"),
    };
    let mut shown: Vec<_> =
        said.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    shown.sort_unstable();
    assert_eq!(shown, declared(&header()));
}

fn header() -> String {
    std::fs::read_to_string(here(HEADERS).join("ringgate_client.h")).expect("the header")
}

/// The functions of a header, in alphabetical order.
fn declared(header: &str) -> Vec<&str> {
    let declarations = header.lines().filter(|line| line.starts_with("RGC_API"));
    let names = declarations.filter_map(|line| {
        let before = line.split('(').next()?;
        before.rsplit([' ', '*']).next()
    });
    let mut declared: Vec<_> = names.collect();
    declared.sort_unstable();
    declared
}

/// Each function with the minor version that it came with: a new one has a version of its own, once
/// the last version was released.
#[test]
fn a_function_comes_with_a_version() {
    let (header, list) = (header(), here(FIRST).join("functions"));
    let list = std::fs::read_to_string(list).expect("the list");
    let rows = list.lines().map(|line| line.split_once(' ').expect("a number and a name"));
    let mut listed: Vec<_> = rows.clone().map(|(_, name)| name).collect();
    listed.sort_unstable();
    assert_eq!(declared(&header), listed);
    let first = std::fs::read_to_string(here(FIRST).join("ringgate_client.h")).expect("it");
    let mut of_first: Vec<_> = rows.clone().filter(|row| row.0 == "1").map(|row| row.1).collect();
    of_first.sort_unstable();
    assert_eq!(declared(&first), of_first);
    let last = rows.map(|(minor, _)| minor).max().expect("one at least");
    assert!(header.contains(&format!("\n#define RGC_LIBRARY_MINOR {last}\n")), "{last}");
}

/// Structs only grow at their ends: what the first header declares stands where it stood.
#[test]
fn fields_stay_where_they_were() {
    let folder = Folder::new("offsets");
    let [first, today] = [FIRST, HEADERS].map(|headers| {
        let (source, program) =
            (here("crates/client-c/tests/c/offsets.c"), folder.0.join("offsets"));
        assert!(compile_with(&here(headers), &source, &program, &[]), "it compiles");
        text(&Command::new(&program).output().expect("it was compiled"))
    });
    assert!(first.lines().count() > 30, "{first}");
    assert_eq!(today, first);
}

/// As they were built then, and when they are built again with today's header.
#[test]
fn programs_of_the_first_version_work_with_todays_library() {
    let (folder, server) = (Folder::new("first"), FarEnd::start(4, ""));
    let library = built().join("libringgate_client_c.a").display().to_string();
    let more = [&[library.as_str()][..], &SYSTEM].concat();
    for (client_id, headers) in (1..).step_by(2).zip([FIRST, HEADERS]) {
        let run_it = |name: &str, client_id, arguments: &[&str]| {
            let (source, program) = (here(FIRST).join(name), folder.0.join("program"));
            assert!(compile_with(&here(headers), &source, &program, &more), "{name} compiles");
            run(&program, &folder.token(&server, client_id), arguments)
        };
        assert_eq!(run_it("faces.c", client_id, &[]), "done\n");
        let said = run_it("bot.c", client_id + 1, &["1"]);
        assert!(said.contains("line 0\n") && said.contains("\nleft\n"), "{said}");
    }
}
