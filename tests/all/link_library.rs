//! The library that the C header is built into: programs of other releases go on working with it,
//! and build systems find it.

use std::path::{Path, PathBuf};
use std::process::Command;

use ringgate_io::Choice;
use ringgate_link::announce::{Announced, Announcement};

use crate::folder::Folder;
use crate::link_gateway::{GatewayLink, listen};
use crate::link_program::Game;
use crate::link_whole::serve_and_crash_and_return;
use crate::token_languages::run_well;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn headers() -> PathBuf {
    repository().join("crates/link/include")
}

fn cc() -> Command {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]);
    command
}

/// Builds the shared library of a folder's header, and says where it is.
pub(crate) fn build_library(folder: &Folder, headers: &Path) -> PathBuf {
    let library = folder.join("libringgate_backend.so.1");
    let mut build = cc();
    build.args(["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,defs"]);
    build.args(["-Wl,-soname,libringgate_backend.so.1", "-I"]).arg(headers);
    build.arg(repository().join("crates/link/c/ringgate_backend.c")).arg("-o").arg(&library);
    run_well(&mut build);
    library
}

/// The header of today's library.
pub(crate) fn build_todays_library(folder: &Folder) -> PathBuf {
    build_library(folder, &headers())
}

/// A program that was built with one header, run with the library of another.
fn link_and_serve(built_with: &Path, run_with: &Path) {
    let (one, other) = (Folder::new(), Folder::new());
    let library = build_library(&one, built_with);
    let program = one.join("program");
    let mut build = cc();
    build.arg("-I").arg(built_with).arg(repository().join("tests/all/link_header/linked.c"));
    build.arg(&library).arg("-o").arg(&program);
    run_well(&mut build);
    build_library(&other, run_with);
    serve_and_crash_and_return(Choice::Mmsg, || {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", other.join(""));
        command
    });
}

/// Today's header with fields behind the last of each struct, as a later release may have them.
fn later_headers(folder: &Folder) -> PathBuf {
    let today = std::fs::read_to_string(headers().join("ringgate_backend.h")).expect("the header");
    let mut later = today.clone();
    for name in ["rg_event", "rg_stats", "rg_options", "rg_announcement", "rg_label"] {
        let start = later.find(&format!("struct {name} {{")).expect("the struct");
        let end = start + later[start..].find("\n};").expect("its end");
        later.insert_str(end, "\n    uint64_t of_a_later_release[3];");
    }
    folder.file("ringgate_backend.h", later, 0o644);
    folder.join("")
}

/// The header as it was when the library's first version was released is kept for ever.
#[test]
fn a_program_of_the_first_version_works_with_todays_library() {
    link_and_serve(&repository().join("tests/fixtures/abi_1"), &headers());
}

/// So is that of the last release, with an example of it.
#[test]
fn programs_of_version_1_1_work_with_todays_library_and_are_built_with_its_header() {
    let then = repository().join("tests/fixtures/abi_1_1");
    link_and_serve(&then, &headers());
    let folder = Folder::new();
    for headers in [&then, &headers()] {
        let mut build = cc();
        build.arg("-I").arg(headers).arg(then.join("messages.c")).arg("-c");
        run_well(build.arg("-o").arg(folder.join("object")));
    }
}

#[test]
fn a_program_of_today_works_with_a_later_library() {
    let later = Folder::new();
    link_and_serve(&headers(), &later_headers(&later));
}

#[test]
fn a_program_of_a_later_release_works_with_todays_library() {
    let later = Folder::new();
    link_and_serve(&later_headers(&later), &headers());
}

/// Labels are passed as an array, so the library has to know how far one is from the next.
#[test]
fn labels_of_a_program_of_a_later_release_are_read_where_they_stand() {
    let later = Folder::new();
    announce_labels(&headers(), &headers());
    announce_labels(&later_headers(&later), &headers());
    announce_labels(&headers(), &later_headers(&later));
}

/// A program that announces itself with two labels: by a call of version 1.1 first.
fn announce_labels(built_with: &Path, run_with: &Path) {
    let (one, other, run_dir) = (Folder::new(), Folder::new(), Folder::new());
    let program = one.join("program");
    let mut build = cc();
    build.arg("-I").arg(built_with).arg(repository().join("tests/all/link_header/labels.c"));
    build.arg(build_library(&one, built_with)).arg("-o").arg(&program);
    run_well(&mut build);
    build_library(&other, run_with);
    let listener = listen(&run_dir.join("announce.sock"));
    let mut command = Command::new(&program);
    command.env("LD_LIBRARY_PATH", other.join(""));
    let game = Game::run(command, run_dir.path(), "arena-1");
    let gateway = GatewayLink::accept(&listener, 0);
    for mode in ["before", "now"] {
        let record = gateway.receive().expect("it announces itself");
        let said = Announced::decode(&record).expect("by the codec");
        let labels = Announcement::new("arena", 4).label("map", "dust").label("mode", mode);
        assert_eq!(said.what, labels);
    }
    game.end();
}

/// Each function with the minor version that it came with: a new one has a version of its own, once
/// the last version was released.
#[test]
fn a_function_comes_with_a_version() {
    let header = headers().join("ringgate_backend.h");
    let header = std::fs::read_to_string(header).expect("the header");
    let declared = header.lines().filter_map(|line| {
        let names = line.strip_prefix("RG_API ")?.split('(').next()?;
        names.rsplit([' ', '*']).next()
    });
    let mut declared: Vec<_> = declared.collect();
    declared.sort_unstable();
    let list = repository().join("tests/fixtures/abi_1/functions");
    let list = std::fs::read_to_string(list).expect("the list");
    let rows = list.lines().map(|line| line.split_once(' ').expect("a number and a name"));
    let mut listed: Vec<_> = rows.clone().map(|(_, name)| name).collect();
    listed.sort_unstable();
    assert_eq!(declared, listed);
    let last = rows.map(|(minor, _)| minor).max().expect("one at least");
    assert!(header.contains(&format!("\n#define RG_LIBRARY_MINOR {last}\n")), "{last}");
}

/// Structs only grow at their ends: what the first version's header declares stands where it stood.
#[test]
fn fields_stay_where_they_were() {
    let folder = Folder::new();
    let offsets = |headers: &Path| {
        let source = repository().join("tests/all/link_header/offsets.c");
        let program = folder.join("offsets");
        run_well(cc().arg("-I").arg(headers).arg(source).arg("-o").arg(&program));
        let output = Command::new(&program).output().expect("it was just built");
        String::from_utf8(output.stdout).expect("text")
    };
    let first = offsets(&repository().join("tests/fixtures/abi_1"));
    assert!(first.lines().count() > 30, "{first}");
    assert_eq!(offsets(&headers()), first);
}

#[test]
fn build_systems_find_what_make_installs() {
    let works = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !works("make") || !works("pkg-config") {
        assert!(
            std::env::var_os("REQUIRE_LANGUAGES").is_none(),
            "make and pkg-config are required"
        );
        return eprintln!("SKIPPED: make or pkg-config is missing");
    }
    let (built, root) = (Folder::new(), Folder::new());
    let prefix = root.join("usr");
    let make = |target: &str, prefix: Option<&Path>| {
        let mut make = Command::new("make");
        make.args(["--silent", "-C"]).arg(repository().join("crates/link/c")).arg(target);
        make.arg(format!("BUILD={}", built.join("objects").display()));
        make.args(prefix.map(|prefix| format!("PREFIX={}", prefix.display())));
        run_well(make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL"));
    };
    // What was built for one place is installed in another.
    make("all", None);
    make("install", Some(&prefix));
    let file = |name: &str| std::fs::read_to_string(prefix.join("lib").join(name)).expect(name);
    let mut found = file("pkgconfig/ringgate-backend.pc");
    found.push_str(&file("cmake/ringgate-backend/ringgate-backend-config.cmake"));
    assert!(!found.contains("/usr/local"), "{found}");
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "--print-errors", "ringgate-backend"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output()
        .expect("it is there");
    let flags = String::from_utf8(asked.stdout).expect("text");
    let source = repository().join("tests/all/link_header/linked.c");
    for linking in [&[][..], &["-static"]] {
        let program = root.join("program");
        let mut build = cc();
        build.arg(&source).args(flags.split_whitespace()).args(linking).arg("-o").arg(&program);
        run_well(&mut build);
    }
    cmake_finds_it(&prefix);
}

#[test]
fn the_debian_package_holds_all_of_it() {
    let works = |name: &str| Command::new(name).arg("--version").output().is_ok();
    if !works("dpkg-deb") || !works("make") {
        return eprintln!("SKIPPED: dpkg-deb or make is missing");
    }
    let (out, root) = (Folder::new(), Folder::new());
    let mut build = Command::new("make");
    build.arg("-C").arg(repository().join("crates/link/c")).arg("deb");
    build.arg(format!("OUT={}", out.join("").display()));
    build.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    run_well(&mut build);
    let package = std::fs::read_dir(out.join("")).expect("a folder").next().expect("a package");
    let package = package.expect("an entry").path();
    run_well(Command::new("dpkg-deb").arg("-x").arg(package).arg(root.join("")));
    let triplet = std::fs::read_dir(root.join("usr/lib")).expect("a folder").next();
    let libraries = triplet.expect("one architecture").expect("an entry").path();
    let program = root.join("program");
    let mut link = cc();
    link.arg("-I").arg(root.join("usr/include"));
    link.arg(repository().join("tests/all/link_header/linked.c"));
    link.arg("-L").arg(libraries).args(["-lringgate_backend", "-o"]).arg(program);
    run_well(&mut link);
}

fn cmake_finds_it(prefix: &Path) {
    if Command::new("cmake").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: cmake is missing");
    }
    let folder = Folder::new();
    let source = repository().join("tests/all/link_header/linked.c");
    let project = format!(
        "cmake_minimum_required(VERSION 3.13)\nproject(game C)\n\
         find_package(ringgate-backend 1.0 REQUIRED)\n\
         add_executable(game {source})\ntarget_link_libraries(game ringgate::backend)\n\
         add_executable(static {source})\ntarget_link_libraries(static ringgate::backend_static)\n",
        source = source.display()
    );
    folder.file("CMakeLists.txt", project, 0o644);
    let build = folder.join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(folder.join("")).arg("-B").arg(&build);
    run_well(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run_well(Command::new("cmake").arg("--build").arg(&build));
}

/// In C++ a function hides a struct of its name, so the struct has another one too.
#[test]
fn a_program_in_cpp_can_name_what_was_counted() {
    if Command::new("c++").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: there is no C++ compiler");
    }
    let folder = Folder::new();
    let uses = "#include \"ringgate_backend.h\"\n\
        int main() { rg_stats_t stats = rg_stats(nullptr); rg_stats_t more = stats;\n\
        struct rg_stats old = more; return old.bundles_sent > 0; }\n";
    folder.file("it.cpp", uses, 0o644);
    let mut compile = Command::new("c++");
    compile.args(["-std=c++11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]);
    compile.arg("-fsyntax-only").arg("-I").arg(headers()).arg(folder.join("it.cpp"));
    run_well(&mut compile);
}

/// What every compiler and analyser at hand has to say about the header, the library and the
/// examples: nothing.
#[test]
fn compilers_and_analysers_have_nothing_to_say() {
    let root = repository();
    let examples = std::fs::read_dir(root.join("crates/link/examples/c")).expect("the examples");
    let examples: Vec<_> = examples.map(|it| it.expect("an entry").path()).collect();
    let library = root.join("crates/link/c/ringgate_backend.c");
    // The examples are C; the header is for both. Each example has all of the library in it, so
    // what analyses an example analyses the library.
    let in_both = [library];
    let object = Folder::new();
    let mut asked = 0;
    for (compiler, more, sources) in [
        ("gcc", &["-std=c99", "-fanalyzer"][..], &examples[..]),
        ("clang", &["-std=c99", "--analyze", "-Xanalyzer", "-analyzer-werror"], &examples),
        // What clang warns of, and what another C is, is known without code.
        ("clang", &["-std=c99", "-fsyntax-only"], &examples),
        ("gcc", &["-std=c17", "-fsyntax-only"], &examples),
        ("clang", &["-std=c99"], &in_both),
        ("gcc", &["-std=c17"], &in_both),
        ("g++", &["-x", "c++", "-std=c++11"], &in_both),
        ("g++", &["-x", "c++", "-std=c++20"], &in_both),
        ("clang++", &["-x", "c++", "-std=c++20"], &in_both),
    ] {
        let is_asked_for = std::env::var_os("REQUIRE_LANGUAGES").is_some();
        if more.iter().any(|it| it.contains("analyze")) && !is_asked_for {
            eprintln!("SKIPPED: REQUIRE_LANGUAGES=1 has {compiler} analyse the library, too");
            continue;
        }
        if Command::new(compiler).arg("--version").output().is_err() {
            assert!(!is_asked_for, "{compiler} is required");
            eprintln!("SKIPPED: {compiler} is missing");
            continue;
        }
        for source in sources {
            let mut compile = Command::new(compiler);
            compile.args(["-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic"]);
            compile.args(more).arg("-I").arg(headers()).arg("-c").arg(source);
            run_well(compile.arg("-o").arg(object.join("object")));
            asked += 1;
        }
    }
    assert!(asked > 0, "there is a C compiler: Rust links with it");
}
