//! `cargo xtask install`: the command, the C library with its header, and a file for pkg-config.

use crate::run::{cargo, succeeds};
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn prefix(args: &[String]) -> Result<PathBuf, String> {
    match args {
        [name, folder] if name == "--prefix" => {
            std::path::absolute(folder).map_err(|e| format!("{folder}: {e}"))
        }
        _ => Err("usage: cargo xtask install --prefix DIR".into()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let folder = to.parent().unwrap_or(to);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    // A library that is in use is replaced, not overwritten.
    let _absent = std::fs::remove_file(to);
    std::fs::copy(from, to).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))?;
    println!("{}", to.display());
    Ok(())
}

/// The task.
pub fn main(args: &[String]) -> Result<bool, String> {
    let prefix = prefix(args)?;
    let build = ["build", "--release", "-p", "weft-cli", "-p", "weft-capi"];
    if !succeeds(&mut cargo(&build)) {
        return Ok(false);
    }
    let root = crate::root();
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let built = target.unwrap_or_else(|| root.join("target")).join("release");
    let capi = root.join("crates/weft-capi");
    copy(&built.join("weft"), &prefix.join("bin/weft"))?;
    copy(&built.join("libweft_capi.so"), &prefix.join("lib/libweft_capi.so"))?;
    copy(&built.join("libweft_capi.a"), &prefix.join("lib/libweft_capi.a"))?;
    copy(&capi.join("include/weft.h"), &prefix.join("include/weft.h"))?;
    let template = capi.join("weft.pc.in");
    let text = std::fs::read_to_string(&template).map_err(|e| e.to_string())?;
    let text = text.replace("@PREFIX@", &prefix.display().to_string());
    let text = text.replace("@VERSION@", VERSION);
    let file = prefix.join("lib/pkgconfig/weft.pc");
    copy(&template, &file)?;
    std::fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(true)
}
