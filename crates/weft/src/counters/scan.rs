//! Finding the pages of other processes of this machine.

use super::{merge, Snapshot, NAME};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use weft_cluster::counters::{LEN, PROCESS};

/// Most attempts to read while the rank writes.
const TRIES: usize = 16;
/// Opening does not wait, whatever the file is.
const NO_WAIT: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits() as i32;

fn is_page(link: &Path) -> bool {
    let target = std::fs::read_link(link).unwrap_or_default();
    let name = target.to_str().and_then(|text| text.strip_prefix("/memfd:"));
    name.is_some_and(|name| name.strip_suffix(" (deleted)").unwrap_or(name) == NAME)
}

/// Returns how well a process fits as the one that writes a page: 3 where it has the page's number
/// in its own namespace and the page in its memory, as a rank; an agent that keeps the page, and a
/// child of the rank, have one at most.
fn fits(process: &Path, page: &File, inode: u64) -> u8 {
    let mut word = [0; 8];
    let own = page.read_exact_at(&mut word, PROCESS as u64 * 8).ok();
    let own = own.map(|()| u64::from_le_bytes(word).to_string());
    let text = |name: &str| std::fs::read_to_string(process.join(name)).unwrap_or_default();
    let status = text("status");
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let is_own = numbers.and_then(|all| all.split_whitespace().last()) == own.as_deref();
    let inode = inode.to_string();
    let maps = text("maps");
    let writes = maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.nth(1).is_some_and(|rights| rights.starts_with("rw"))
            && words.nth(2) == Some(inode.as_str())
    });
    2 * u8::from(writes) + u8::from(is_own)
}

/// Returns the counters of all ranks on this machine that this process may read (those of the same
/// user), ordered by job and rank.
///
/// # Errors
/// `/proc` cannot be read. A process that ends meanwhile is left out.
pub fn scan() -> io::Result<Vec<Snapshot>> {
    // A page appears again in children that have not called exec, and in the agent that keeps it;
    // the file's identity shows it.
    let mut pages: BTreeMap<(u64, u64), (u8, Snapshot)> = BTreeMap::new();
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
            let fit = fits(&process.path(), &file, meta.ino());
            let best = pages.get(&(meta.dev(), meta.ino())).map(|(best, _)| *best);
            if best.is_some_and(|best| best >= fit) {
                continue;
            }
            if let Some(snapshot) = weft_cluster::counters::read(pid, &file, TRIES) {
                pages.insert((meta.dev(), meta.ino()), (fit, snapshot));
            }
        }
    }
    Ok(merge(pages.into_values().map(|(_, snapshot)| snapshot)))
}
