//! The processes of a rank: its first process and all that descend from it.

use rustix::process::{kill_process, Pid, Signal};

/// Returns the children of a process.
fn children(pid: Pid) -> Vec<Pid> {
    let path = format!("/proc/{}/task", pid.as_raw_nonzero());
    let threads = std::fs::read_dir(path).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| std::fs::read_to_string(t.path().join("children")).ok());
    let numbers = |list: String| -> Vec<i32> {
        list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    lists.flat_map(numbers).filter_map(Pid::from_raw).collect()
}

/// Lists a process and its descendants.
pub fn of(root: Pid) -> Vec<Pid> {
    let mut all = vec![root];
    let mut at = 0;
    while let Some(&pid) = all.get(at) {
        let new: Vec<Pid> = children(pid).into_iter().filter(|pid| !all.contains(pid)).collect();
        all.extend(new);
        at += 1;
    }
    all
}

/// Sends a signal to a process and its descendants.
pub fn signal(root: Pid, signal: Signal) {
    for pid in of(root) {
        // The process may have ended just now.
        let _ = kill_process(pid, signal);
    }
}
