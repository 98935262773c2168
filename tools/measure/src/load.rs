//! Other work for every core.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads on each core that this process may use. They compute until this value is dropped, at the
/// priority of the measured processes.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts so many threads on each core.
    pub fn start(each: usize) -> std::io::Result<Load> {
        let allowed = sched_getaffinity(None)?;
        let mut load = Load { stop: Arc::default(), threads: Vec::new() };
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        for core in cores.flat_map(|core| std::iter::repeat_n(core, each)) {
            let stop = load.stop.clone();
            let work = move || {
                let mut own = CpuSet::new();
                own.set(core);
                // A thread on another core is load too, so an error does not matter.
                let _ = sched_setaffinity(None, &own);
                let mut value = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        value = std::hint::black_box(value.wrapping_mul(6364136223846793005) + 1);
                    }
                }
            };
            load.threads.push(std::thread::Builder::new().name("load".into()).spawn(work)?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread only computes and cannot fail.
            let _ = thread.join();
        }
    }
}
