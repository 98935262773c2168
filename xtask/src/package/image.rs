//! The container image: the commands, the provider, the system libraries that these load, and
//! an example job as the default command.
//!
//! Format: the archive of `docker save` (OCI image specification v1 for the configuration), which
//! `docker load` and `podman load` read. It has one layer and no shell. The layer is compressed
//! and not the archive, because Podman 4 does not load compressed archives.

use super::archive::{complete, gzip, mode_of, sha256_hex, Tar};
use super::{deb, Staged, VERSION};
use crate::run::output_of;
use serde_json::json;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The default command of a container, after `weft`.
const EXAMPLE: [&str; 6] = ["run", "-n", "4", "weft", "app", "asp"];

/// Makes the image in `out`.
pub fn make(staged: &Staged, out: &Path) -> Result<PathBuf, String> {
    let file = out.join(format!("weft-{VERSION}-image.tar"));
    let failed = |e: io::Error| format!("{}: {e}", file.display());
    let layer = layer(staged)?;
    let layer_id = sha256_hex(&layer);
    let config = json!({
        "architecture": deb::architecture(),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/bin", "HOME=/tmp"],
            "Entrypoint": ["/usr/bin/weft"],
            "Cmd": EXAMPLE,
            "WorkingDir": "/tmp",
            "Labels": { "org.opencontainers.image.version": VERSION },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_id}")] },
        "history": [{ "created_by": "cargo xtask package" }],
    })
    .to_string();
    let config_name = format!("{}.json", sha256_hex(config.as_bytes()));
    let layer_name = format!("{layer_id}/layer.tar");
    let manifest = json!([{
        "Config": config_name,
        "RepoTags": [format!("weft:{VERSION}")],
        "Layers": [layer_name],
    }])
    .to_string();
    let mut tar = Tar::new(Vec::new());
    tar.bytes(&config_name, config.as_bytes(), 0o644).map_err(failed)?;
    tar.folder(&format!("{layer_id}/"), 0o755).map_err(failed)?;
    let layer = gzip(&layer).map_err(failed)?;
    tar.bytes(&layer_name, &layer, 0o644).map_err(failed)?;
    tar.bytes("manifest.json", manifest.as_bytes(), 0o644).map_err(failed)?;
    let image = tar.finish().map_err(failed)?;
    complete(&file, |part| std::fs::write(part, image).map_err(failed))
}

/// Makes the file system of the image.
fn layer(staged: &Staged) -> Result<Vec<u8>, String> {
    let mut tar = Tar::new(Vec::new());
    let failed = |e: io::Error| format!("the layer: {e}");
    for (folder, mode) in [("etc/", 0o755), ("tmp/", 0o1777), ("usr/", 0o755)] {
        tar.folder(folder, mode).map_err(failed)?;
    }
    let users =
        "root:x:0:0:root:/tmp:/sbin/nologin\nnobody:x:65534:65534:nobody:/tmp:/sbin/nologin\n";
    tar.bytes("etc/passwd", users.as_bytes(), 0o644).map_err(failed)?;
    tar.bytes("etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644).map_err(failed)?;
    let runs = |name: &&String| name.starts_with("bin/") || name.contains(".so");
    for name in staged.names.iter().filter(runs) {
        let from = staged.root().join(name);
        match std::fs::read_link(&from) {
            Ok(to) => tar.link(&format!("usr/{name}"), &to),
            Err(_) => tar.file(&format!("usr/{name}"), &from, mode_of(&from)),
        }
        .map_err(failed)?;
    }
    for library in libraries(staged)? {
        let name = library.strip_prefix("/").unwrap_or(&library).display().to_string();
        tar.file(&name, &library, 0o755).map_err(failed)?;
    }
    tar.finish().map_err(failed)
}

/// Returns the system libraries that programs and libraries load, including the dynamic loader, at
/// the paths where the loader searches for them.
fn libraries(staged: &Staged) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for file in staged.binaries() {
        let text = output_of(Command::new("ldd").arg(&file));
        let text = text.ok_or_else(|| format!("ldd {} failed", file.display()))?;
        // The output is `libc.so.6 => /lib/libc.so.6 (0x...)` and `/lib64/ld-linux-x86-64.so.2
        // (0x...)`.
        let words = text.split_whitespace().filter(|word| word.starts_with('/'));
        let here = staged.root();
        found.extend(words.map(PathBuf::from).filter(|path| !path.starts_with(&here)));
    }
    Ok(found)
}
