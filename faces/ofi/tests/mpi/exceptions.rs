//! Settings that hold for some ranks of a job alone, under programs that know nothing of them.

use super::harness::{run, Mpi};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weft::counters::{scan, Snapshot};
use weft_conformance::skip;

/// Bytes that any two ranks send each other in `exchange.c`, in each direction.
const EACH_WAY: u64 = 10 * 500_000;

/// Returns the counters of ranks that run this program.
fn ranks_of(binary: &Path) -> Vec<Snapshot> {
    let runs = |rank: &Snapshot| {
        let exe = std::fs::read_link(format!("/proc/{}/exe", rank.pid));
        exe.is_ok_and(|exe| exe == binary)
    };
    scan().unwrap_or_default().into_iter().filter(runs).collect()
}

/// Returns true if ranks 0 and 1 have copied their messages directly, and rank 2 has received the
/// messages of others in packets.
fn is_as_chosen(ranks: &[Snapshot]) -> bool {
    let of = |number: u64, name: &str| -> u64 {
        ranks.iter().filter(|rank| rank.rank == number).map(|rank| rank.get(name)).sum()
    };
    let direct = of(0, "direct_bytes") + of(1, "direct_bytes");
    direct == 2 * EACH_WAY && of(2, "bytes_received") >= 2 * EACH_WAY && of(2, "direct_bytes") == 0
}

/// Runs the job; checks the counters of its ranks when they have exchanged everything.
fn exchange(mut command: Command, binary: PathBuf) {
    let end = binary.with_extension(format!("end-{}", std::process::id()));
    let _before = std::fs::remove_file(&end);
    command.arg(&binary).arg(&end);
    command.env("WEFT_LINK", "shm").env("WEFT_TRANSFER", "rcpy,2=copy");
    let ended = AtomicBool::new(false);
    let (job, seen) = std::thread::scope(|scope| {
        let look = scope.spawn(|| {
            let mut ranks = Vec::new();
            while !ended.load(Ordering::Relaxed) && !is_as_chosen(&ranks) {
                let now = ranks_of(&binary);
                ranks = if now.is_empty() { ranks } else { now };
                std::thread::park_timeout(Duration::from_millis(20));
            }
            std::fs::write(&end, "").expect("a file for the program");
            ranks
        });
        let job = run(command, Duration::from_secs(150));
        ended.store(true, Ordering::Relaxed);
        (job, look.join().expect("a look at the ranks"))
    });
    let _after = std::fs::remove_file(&end);
    assert!(is_as_chosen(&seen), "{seen:#?}\n{}", job.said);
    job.expect("exchange: passed");
}

fn one_rank_has_another_transfer(mpi: Mpi) {
    let made = || Ok::<_, String>((mpi.launcher(3)?, mpi.build("exchange")?));
    match made() {
        Ok((command, binary)) => exchange(command, binary),
        Err(why) => skip(&why),
    }
}

tests! { one_rank_has_another_transfer:
    exceptions__mpich(Mpi::Mpich);
    exceptions__open_mpi(Mpi::Open);
    exceptions__system(Mpi::System);
    exceptions__intel(Mpi::Intel);
}
