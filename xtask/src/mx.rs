//! The library of MX with the version nodes that programs of the time ask for.
//!
//! The compiler gives the linker a list of its own for a shared library, without nodes, and no
//! linker takes both. So the library is linked here, from the static one.

use crate::run::{cargo, succeeds};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Nodes, each with its functions. All others have no version.
const NODES: &[(&str, &[&str])] = &[
    ("MX_0.9", &["mx_open_endpoint", "mx_decompose_endpoint_addr"]),
    ("MX_0.91", &["mx_get_info", "mx_test", "mx_wait", "mx_iprobe"]),
    ("MX_0.92", &["mx__init_api"]),
];

/// Options of the linker.
const OPTIONS: &[&str] = &[
    "-shared",
    "-Wl,-soname,libmyriexpress.so",
    // Its threads may run after `dlclose`: the library stays mapped.
    "-Wl,-z,nodelete",
    "-Wl,-z,relro,-z,now",
    "-Wl,--gc-sections",
];
/// Libraries of the system that the compiler's own need.
const SYSTEM: &[&str] = &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"];

/// Links the library in the folder of built files; returns it.
///
/// # Errors
/// A build failed, and printed its errors.
pub fn library(
    built: &Path,
    debug: bool,
    commit: Option<(&str, String)>,
) -> Result<PathBuf, String> {
    let mut build = cargo(&["rustc", "--package", "weft-mx", "--lib", "--crate-type", "staticlib"]);
    if !debug {
        build.args(["--profile", "dist"]);
    }
    build.envs(commit);
    if !succeeds(&mut build) {
        return Err("weft-mx does not build".into());
    }
    let library = built.join("libmyriexpress.so");
    let map = crate::root().join("faces/mx/symbols.map");
    let mut cc = Command::new("cc");
    cc.args(OPTIONS).arg(format!("-Wl,--version-script={}", map.display()));
    if !debug {
        cc.arg("-s");
    }
    cc.arg("-o").arg(&library);
    cc.arg("-Wl,--whole-archive").arg(built.join("libweft_mx.a")).arg("-Wl,--no-whole-archive");
    match succeeds(cc.args(SYSTEM)) {
        true => Ok(library),
        false => Err("libmyriexpress.so does not link".into()),
    }
}

/// Says what is wrong with the exported names of a library, as `readelf --dyn-syms` lists them.
pub fn check(symbols: &str) -> Result<(), String> {
    let mut found = 0;
    for line in symbols.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, _, _, kind, "GLOBAL" | "WEAK", _, section, name, ..] = &words[..] else {
            continue;
        };
        if section == "UND" || section == "ABS" {
            continue;
        }
        let (name, node) = name.split_once("@@").map_or((name, None), |(a, b)| (a, Some(b)));
        let wanted = NODES.iter().find(|(_, names)| names.contains(&name)).map(|(node, _)| *node);
        if !name.to_lowercase().starts_with("mx_") {
            return Err(format!("{name} ({kind}) is exported"));
        }
        if node != wanted {
            return Err(format!("{name} has the version {node:?} and not {wanted:?}"));
        }
        found += usize::from(node.is_some());
    }
    let all: usize = NODES.iter().map(|(_, names)| names.len()).sum();
    match found == all {
        true => Ok(()),
        false => Err(format!("{found} of {all} functions have a version")),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn check__each_function_has_its_node_and_no_other_name_is_exported() {
        let line = |name: &str| format!("1: 0000 80 FUNC GLOBAL DEFAULT 13 {name}\n");
        let good: String = NODES
            .iter()
            .flat_map(|(node, names)| {
                names.iter().map(move |name| line(&format!("{name}@@{node}")))
            })
            .chain([line("mx_isend"), "2: 0 0 OBJECT GLOBAL DEFAULT ABS MX_0.9\n".into()])
            .collect();
        assert_eq!(check(&good), Ok(()));
        assert!(check("").is_err());
        assert!(check(&format!("{good}{}", line("rust_begin"))).is_err());
        assert!(check(&good.replace("mx_test@@MX_0.91", "mx_test")).is_err());
        assert!(check(&good.replace("mx_isend", "mx_isend@@MX_0.9")).is_err());
    }

    #[test]
    fn nodes__are_those_of_the_linkers_file() {
        let map = std::fs::read_to_string(crate::root().join("faces/mx/symbols.map")).unwrap();
        for (node, names) in NODES {
            let after = map.split(&format!("\n{node} {{")).nth(1).unwrap();
            let body = after.split('}').next().unwrap();
            let listed: Vec<&str> = body.split(';').map(str::trim).collect();
            for name in *names {
                assert!(listed.iter().any(|of| of.ends_with(name)), "{name} in {node}");
            }
        }
    }
}
