//! Finding the pages of other processes of this machine.

use super::{merge, Snapshot, NAME};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use weft_cluster::counters::LEN;

/// Most attempts to read while the rank writes.
const TRIES: usize = 16;
/// Opening does not wait, whatever the file is.
const NO_WAIT: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;

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
            // A file of a stranger may have such a name: the first end of a pipe waits for another.
            let Ok(file) = File::options().read(true).custom_flags(NO_WAIT).open(&link) else {
                continue;
            };
            if !weft_sys::memory::is_steady(&file, LEN) {
                continue;
            }
            let Ok(meta) = file.metadata() else { continue };
            if let Some(snapshot) = weft_cluster::counters::read(pid, &file, TRIES) {
                pages.entry((meta.dev(), meta.ino())).or_insert(snapshot);
            }
        }
    }
    Ok(merge(pages.into_values()))
}
