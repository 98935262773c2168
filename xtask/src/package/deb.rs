//! Debian packages: `weft` (command, MPI provider, C library), `weft-agent` (the agent, its unit
//! and its user), `weft-bench` (benchmarks and papers), `libweft-dev` (header, static library,
//! examples).
//!
//! Format: deb(5), Debian Policy chapters 5 and 10. `dpkg-deb` writes the archives.

use super::archive::{complete, mode_of};
use super::{is_of_benches, Scratch, Staged, ARCHITECTURE, VERSION};
use crate::run::succeeds;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package: its name, its own fields of the control file, and its description's lines.
struct Package {
    name: &'static str,
    section: &'static str,
    depends: &'static str,
    recommends: &'static str,
    description: &'static [&'static str],
}

const PACKAGES: [Package; 4] = [
    Package {
        name: "weft",
        section: "net",
        depends: "libc6 (>= @GLIBC@), libgcc-s1",
        recommends: "weft-agent",
        description: &[
            "message passing over plain Ethernet and shared memory",
            "The command weft, the libfabric provider that unmodified MPI programs load, and the",
            "C library. No kernel module and no special network card are needed.",
        ],
    },
    Package {
        name: "weft-agent",
        section: "net",
        depends: "libc6 (>= @GLIBC@), libgcc-s1",
        recommends: "weft",
        description: &[
            "agent of weft: message passing for ranks without rights",
            "The agent weftd owns raw sockets of a host and serves ranks that may open none. Its",
            "unit starts it with CAP_NET_RAW alone, as a user of its own.",
        ],
    },
    Package {
        name: "weft-bench",
        section: "net",
        depends: "libc6 (>= @GLIBC@), libgcc-s1, weft (= @VERSION@)",
        recommends: "iperf3",
        description: &[
            "benchmarks of weft, and programs that reproduce papers",
            "The commands weft bench, and the applications and simulated clusters of four papers,",
            "which weft finds when they are installed.",
        ],
    },
    Package {
        name: "libweft-dev",
        section: "libdevel",
        depends: "weft (= @VERSION@)",
        recommends: "pkg-config",
        description: &[
            "message passing over plain Ethernet and shared memory: C interface",
            "The headers weft.h, crl.h, vipl.h and myriexpress.h, the static library, manual pages",
            "of the functions and examples.",
        ],
    },
];

/// Returns the package to which a file of an installation belongs.
fn owner_of(name: &str) -> &'static str {
    let development =
        ["include/", "lib/pkgconfig/", "lib/cmake/", "share/man/man3/", "share/weft/examples/"];
    let links = ["lib/libweft.so", "lib/libvipl.so"];
    let agent = ["bin/weftd", "lib/systemd/", "lib/sysusers.d/", "share/man/man8/"];
    let starts = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
    if starts(&development) || name.ends_with(".a") || links.contains(&name) {
        "libweft-dev"
    } else if starts(&agent) || is_completion(name, "weftd") {
        "weft-agent"
    } else if is_of_benches(name) {
        "weft-bench"
    } else {
        "weft"
    }
}

/// True for a completion script of a command.
fn is_completion(name: &str, command: &str) -> bool {
    let of = ["completions", "site-functions", "vendor_completions.d"];
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let is_its = file.trim_start_matches('_').trim_end_matches(".fish") == command;
    is_its && of.iter().any(|end| folder.ends_with(end))
}

/// Returns a file's path in a Debian system, below the prefix.
fn place_of(name: &str) -> String {
    name.replace("share/zsh/site-functions/", "share/zsh/vendor-completions/")
}

/// Returns the architecture as Debian names it.
pub fn architecture() -> &'static str {
    match ARCHITECTURE {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Makes the packages in `out`.
pub fn make(staged: &Staged, out: &Path) -> Result<Vec<PathBuf>, String> {
    let (major, minor) = staged.glibc(&[])?;
    let glibc = format!("{major}.{minor}");
    PACKAGES.iter().map(|package| build(package, staged, &glibc, out)).collect()
}

fn build(package: &Package, staged: &Staged, glibc: &str, out: &Path) -> Result<PathBuf, String> {
    let tree = Scratch::new(&format!("deb-{}", package.name))?;
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    let mut bytes = 0;
    for name in staged.names.iter().filter(|name| owner_of(name) == package.name) {
        let from = staged.root().join(name);
        let to = tree.0.join(staged.prefix.trim_start_matches('/')).join(place_of(name));
        let folder = to.parent().unwrap_or(&to);
        fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
        if let Ok(target) = fs::read_link(&from) {
            std::os::unix::fs::symlink(target, &to).map_err(|e| failed(&to, e))?;
            continue;
        }
        bytes += fs::copy(&from, &to).map_err(|e| failed(&to, e))?;
        let mode = fs::Permissions::from_mode(mode_of(&from));
        fs::set_permissions(&to, mode).map_err(|e| failed(&to, e))?;
    }
    let documents = format!("usr/share/doc/{}", package.name);
    let documents = tree.0.join(documents);
    fs::create_dir_all(&documents).map_err(|e| failed(&documents, e))?;
    fs::write(documents.join("copyright"), copyright()?).map_err(|e| failed(&documents, e))?;
    let control = tree.0.join("DEBIAN");
    fs::create_dir_all(&control).map_err(|e| failed(&control, e))?;
    let write = |name: &str, text: &str, mode: u32| {
        let path = control.join(name);
        fs::write(&path, text).map_err(|e| failed(&path, e))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).map_err(|e| failed(&path, e))
    };
    write("control", &control_of(package, glibc, bytes), 0o644)?;
    for script in ["postinst", "prerm", "postrm"] {
        let source = crate::root().join(format!("dist/{}.{script}", package.name));
        if let Ok(text) = fs::read_to_string(&source) {
            write(script, &text, 0o755)?;
        }
    }
    let file = out.join(format!("{}_{VERSION}_{}.deb", package.name, architecture()));
    complete(&file, |part| {
        let mut dpkg = Command::new("dpkg-deb");
        // An unoptimised build is ten times as long, and thrown away.
        let compression = if staged.debug { "-Znone" } else { "-Zxz" };
        dpkg.args(["--root-owner-group", compression, "--build"]).arg(&tree.0).arg(part);
        match succeeds(&mut dpkg) {
            true => Ok(()),
            false => Err("dpkg-deb failed; it is in Debian's package dpkg".into()),
        }
    })
}

/// Returns the text about the licences, as Debian Policy 12.5 asks.
fn copyright() -> Result<String, String> {
    let path = crate::root().join("LICENSE-MIT");
    let mit = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!(
        "Licence: MIT or Apache-2.0, at your choice.\n\n{mit}\n\
         The Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

fn control_of(package: &Package, glibc: &str, bytes: u64) -> String {
    let depends = package.depends.replace("@GLIBC@", glibc).replace("@VERSION@", VERSION);
    let (summary, rest) = package.description.split_first().unwrap_or((&"", &[]));
    let rest: String = rest.iter().map(|line| format!(" {line}\n")).collect();
    format!(
        "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nSection: {}\nPriority: optional\n\
         Maintainer: The weft developers <weft@localhost>\nInstalled-Size: {}\nDepends: {depends}\n\
         Recommends: {}\nDescription: {summary}\n{rest}",
        package.name,
        architecture(),
        package.section,
        bytes.div_ceil(1024),
        package.recommends,
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn owner_of__every_package_has_its_own() {
        for (name, package) in [
            ("bin/weft", "weft"),
            ("bin/weftd", "weft-agent"),
            ("bin/weft-bench", "weft-bench"),
            ("bin/weft-papers", "weft-bench"),
            ("share/man/man1/weft-bench-mpi.1", "weft-bench"),
            ("lib/libweft.so.0", "weft"),
            ("lib/libweft.so", "libweft-dev"),
            ("lib/libweft.a", "libweft-dev"),
            ("lib/libvipl.so.0", "weft"),
            ("lib/libvipl.so", "libweft-dev"),
            ("include/vipl.h", "libweft-dev"),
            ("include/crl.h", "libweft-dev"),
            ("lib/libmyriexpress.so", "weft"),
            ("lib/libopen-mx.so.0", "weft"),
            ("lib/systemd/system/weftd.service", "weft-agent"),
            ("share/man/man1/weft-run.1", "weft"),
            ("share/man/man8/weftd.8", "weft-agent"),
            ("share/bash-completion/completions/weft", "weft"),
            ("share/bash-completion/completions/weftd", "weft-agent"),
            ("share/zsh/site-functions/_weftd", "weft-agent"),
            ("share/fish/vendor_completions.d/weftd.fish", "weft-agent"),
        ] {
            assert_eq!(owner_of(name), package, "{name}");
        }
    }

    #[test]
    fn control_of__names_version_and_dependencies() {
        let text = control_of(&PACKAGES[3], "2.34", 2049);
        assert!(text.contains(&format!("Depends: weft (= {VERSION})\n")), "{text}");
        assert!(text.contains("Installed-Size: 3\n") && text.ends_with("examples.\n"), "{text}");
    }
}
