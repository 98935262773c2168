//! Finding the pages of other processes of this machine.

use super::{merge, Snapshot, NAME};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most attempts to read while the rank writes.
const TRIES: usize = 16;

fn is_page(link: &Path) -> bool {
    let target = std::fs::read_link(link).unwrap_or_default();
    let name = target.to_str().and_then(|text| text.strip_prefix("/memfd:"));
    name.is_some_and(|name| name.strip_suffix(" (deleted)").unwrap_or(name) == NAME)
}

/// Returns the counters of all ranks on this machine that this process may read (those of the same
/// user), ordered by job and rank.
///
/// # Errors
/// `/proc` cannot be read. A process that ends meanwhile is left out.
pub fn scan() -> io::Result<Vec<Snapshot>> {
    // A page appears again in children that have not called exec; the file's identity shows it.
    let mut pages: BTreeMap<(u64, u64), Snapshot> = BTreeMap::new();
    for process in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(open) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for link in open.flatten().map(|entry| entry.path()).filter(|link| is_page(link)) {
            let Ok(file) = File::open(&link) else { continue };
            let Ok(meta) = file.metadata() else { continue };
            if let Some(snapshot) = weft_cluster::counters::read(pid, &file, TRIES) {
                pages.entry((meta.dev(), meta.ino())).or_insert(snapshot);
            }
        }
    }
    Ok(merge(pages.into_values()))
}
