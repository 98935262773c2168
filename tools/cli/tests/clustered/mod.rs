//! An agent that is a cluster of its own, for tests of programs that use names.

use std::panic::UnwindSafe;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Barrier;

/// Runs `test` while an agent of the cluster `test` serves, with the agent's name. The agent ends
/// if the test panics, too.
pub fn with_agent<T>(test: impl FnOnce(&str) -> T + UnwindSafe) -> T {
    let name = format!("@weft-test-{:016x}", weft_link::random_u64());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name[1..]);
    let key = folder.join("key");
    weft_cluster::KeyFile::init(&key).unwrap();
    let words = format!(
        "--name {name} --links udp --user= --cluster test --cluster-port 0 --cluster-multicast off \
         --cluster-key {}",
        key.display()
    );
    let options = weftd::options::Options::parse(words.split_whitespace()).unwrap();
    let (is_over, ready) = (AtomicBool::new(false), Barrier::new(2));
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut agent = weftd::Agent::open(options).unwrap();
            ready.wait();
            while !is_over.load(Ordering::Relaxed) {
                agent.step();
            }
        });
        ready.wait();
        let result = std::panic::catch_unwind(|| test(&name));
        is_over.store(true, Ordering::Relaxed);
        result
    });
    let _ = std::fs::remove_dir_all(folder);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
