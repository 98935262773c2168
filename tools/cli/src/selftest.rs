//! Hidden checks that the integration tests start as ranks.

mod numbers;

use anyhow::{ensure, Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::launch::{self, wire, Bootstrap};
use weft_packets::{Counter, SharedPackets};

/// Check a part of weft from inside a rank.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Publish a value, get those of all ranks, and print the result
    Bootstrap {
        /// Bytes of the value
        #[arg(long, default_value_t = 160)]
        bytes: usize,
        /// This rank does not take part
        #[arg(long)]
        absent: Option<usize>,
        /// This rank aborts the job with status 5 after all have joined
        #[arg(long)]
        aborts: Option<usize>,
    },
    /// All ranks send to rank 0, which prints bytes per second, the fairness of the senders'
    /// shares, and the share of the time in which it waited for a processor
    Incast {
        /// Bytes of a message
        #[arg(long, default_value_t = 65536)]
        bytes: usize,
        /// Messages of each sender
        #[arg(long, default_value_t = 16)]
        messages: usize,
    },
    /// Print the ports of all UDP sockets of the host while all ranks run
    Ports,
    /// All ranks add to a counter of rank 0, which computes until a watchdog has served them
    Watchdog,
    /// Each rank waits for a message of the next, which none sends
    Circle,
    /// Rank 1 joins the job and leaves it; rank 0 prints the errors of operations with it, and ends
    /// the job
    Left {
        /// Rank 0 begins once this file is there
        #[arg(long)]
        file: std::path::PathBuf,
    },
    /// Two ranks exchange messages of many sizes, print the way that these took, and do it again
    Exchange {
        /// The second time begins when this file is there
        #[arg(long)]
        until: Option<PathBuf>,
    },
    /// All ranks take numbers from a replicated counter, and print them
    Numbers {
        /// Numbers of each rank
        #[arg(long, default_value_t = 40)]
        count: u64,
        /// The rank that makes no progress after half of them, while the others go on without it
        #[arg(long)]
        still: usize,
        /// The rank goes on when this file is there
        #[arg(long)]
        until: PathBuf,
    },
}

fn value_of(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (rank * 31 + at) as u8).collect()
}

/// Runs the check.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Bootstrap { bytes, absent, aborts } => bootstrap(bytes, absent, aborts),
        What::Incast { bytes, messages } => incast(bytes, messages),
        What::Ports => ports(),
        What::Watchdog => watchdog(),
        What::Circle => circle(),
        What::Left { file } => left(&file),
        What::Exchange { until } => exchange(until.as_deref()),
        What::Numbers { count, still, until } => numbers::run(count, still, &until),
    }
}

fn ports() -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let world = job.world();
    job.block_on(world.barrier())?;
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        // The second column is the local address and, in hexadecimal, the port.
        let own = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        let ports = own.filter_map(|own| u16::from_str_radix(own.rsplit_once(':')?.1, 16).ok());
        ports.for_each(|port| println!("{port}"));
    }
    job.block_on(world.barrier())?;
    Ok(ExitCode::SUCCESS)
}

fn left(file: &std::path::Path) -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let world = job.world();
    if world.rank() == 1 {
        return Ok(ExitCode::SUCCESS);
    }
    while !file.exists() {
        std::thread::yield_now();
    }
    let received = world.recv_blocking(1, 0, &mut [0; 8]);
    println!("recv: {}", received.err().context("it received from a rank that left")?);
    let sent = world.send_blocking(1, 0, &[7; 100_000]);
    println!("send: {}", sent.err().context("a rank that left has taken it")?);
    job.abort(0, "the check is over")
}

/// Sizes of the messages: in one slot, in the ring, announced.
const SIZES: [usize; 6] = [0, 8, 300, 20_000, 1 << 20, 5_000_000];

fn exchange(until: Option<&Path>) -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let (endpoint, world) = (job.endpoint(), job.world());
    ensure!(world.size() == 2, "two ranks");
    let (me, other) = (world.rank(), 1 - world.rank());
    let both_ways = || -> Result<()> {
        for bytes in SIZES {
            let sent = world.send(other, TAG as u32, value_of(me, bytes));
            let got = job.block_on(world.recv(other, TAG as u32, bytes))?;
            ensure!(got == value_of(other, bytes), "{bytes} bytes of rank {other} changed");
            job.block_on(sent)?;
        }
        Ok(())
    };
    both_ways()?;
    let peer = world.peer(other).context("a rank is missing")?;
    let count = |name| {
        let counters = endpoint.counters().links();
        counters.iter().filter(|(_, n, _)| *n == name).map(|(.., value)| value).sum::<u64>()
    };
    println!(
        "rank {me} reaches {}; shm_sent {} shm_joined {} shm_direct {}",
        endpoint.peer(peer).describe(),
        count("shm_sent"),
        count("shm_joined"),
        count("shm_direct"),
    );
    while until.is_some_and(|file| !file.exists()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    both_ways()?;
    println!("rank {me} is done");
    Ok(ExitCode::SUCCESS)
}

fn circle() -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let world = job.world();
    let next = (world.rank() + 1) % world.size();
    let got = job.block_on(world.recv(next, 7, 8));
    got?;
    Ok(ExitCode::SUCCESS)
}

/// Number that each rank adds to the counter.
const ADDED: u64 = 20;
/// Longest computation of rank 0: the check fails if the others were not served by then.
const COMPUTES: Duration = Duration::from_secs(30);

fn watchdog() -> Result<ExitCode> {
    let job = weft::SharedJob::init()?;
    let endpoint = job.endpoint();
    let packets = SharedPackets::new(endpoint)?;
    let peer = |rank| job.peer(rank).map_err(anyhow::Error::msg);
    let mut key = [0; 8];
    if job.rank() > 0 {
        endpoint.recv(Some(peer(0)?), TAG, 0, &mut key)?;
        let counter = Counter { key: u64::from_le_bytes(key) };
        for _ in 0..ADDED {
            packets.fetch_add(peer(0)?, counter, 1)?;
        }
        endpoint.send_active(peer(0)?, 1, 0, &[])?;
        job.fence()?;
        return Ok(ExitCode::SUCCESS);
    }
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    endpoint.handle(1, move |_, _| _ = count.fetch_add(1, Ordering::Relaxed));
    let counter = packets.counter(0).context("a counter")?;
    for rank in 1..job.size() {
        endpoint.send(peer(rank)?, TAG, &counter.key.to_le_bytes())?;
    }
    let start = Instant::now();
    while done.load(Ordering::Relaxed) < job.size() - 1 {
        ensure!(start.elapsed() < COMPUTES, "nobody served the others while rank 0 computed");
        std::hint::spin_loop();
    }
    println!("served {}", packets.counter_value(counter).context("no counter")?);
    job.fence()?;
    Ok(ExitCode::SUCCESS)
}

const TAG: u64 = 1;
const TAG_READY: u64 = 2;
/// Receives posted ahead for each sender.
const AHEAD: usize = 2;

fn incast(bytes: usize, messages: usize) -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let (endpoint, world) = (job.endpoint(), job.world());
    let peer = |rank| world.peer(rank).context("a rank is missing");
    if world.rank() > 0 {
        let root = peer(0)?;
        let data = value_of(world.rank(), bytes);
        endpoint.send_blocking(root, TAG_READY, &[])?;
        endpoint.recv_blocking(Some(root), TAG_READY, 0, &mut [])?;
        for _ in 0..messages {
            endpoint.send_blocking(root, TAG, &data)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let senders = (1..world.size()).map(peer).collect::<Result<Vec<_>>>()?;
    for &sender in &senders {
        endpoint.recv_blocking(Some(sender), TAG_READY, 0, &mut [])?;
    }
    let (start, waited) = (Instant::now(), waited_ns());
    for &sender in &senders {
        endpoint.send_blocking(sender, TAG_READY, &[])?;
    }
    let mut shares = Vec::new();
    endpoint.block_on(async {
        let post = |from| endpoint.recv(Some(from), TAG, 0, vec![0; bytes]);
        let mut got = vec![0; senders.len()];
        let mut posted: Vec<std::collections::VecDeque<_>> =
            senders.iter().map(|&s| (0..AHEAD.min(messages)).map(|_| post(s)).collect()).collect();
        while got.iter().any(|&n| n < messages) {
            for (at, waiting) in posted.iter_mut().enumerate() {
                while waiting.front().is_some_and(weft::Operation::is_done) {
                    let Some(done) = waiting.pop_front() else { break };
                    let (result, buffer) = done.await;
                    result?;
                    ensure!(buffer == value_of(at + 1, bytes), "bytes of rank {} changed", at + 1);
                    got[at] += 1;
                    if got[at] + waiting.len() < messages {
                        waiting.push_back(post(senders[at]));
                    }
                    if shares.is_empty() && got[at] == messages {
                        shares = got.clone();
                    }
                }
            }
            endpoint.yield_now().await;
        }
        anyhow::Ok(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let rate = (bytes * messages * senders.len()) as f64 / seconds;
    let waited = (waited_ns() - waited) as f64 / 1e9 / seconds;
    println!("rate {rate:.0} jain {:.3} waited {waited:.3}", jain(&shares));
    Ok(ExitCode::SUCCESS)
}

/// Returns the time that this thread has waited for a processor so far, if the kernel reports it
/// (proc(5)).
fn waited_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Returns the fairness of shares: 1 if all are equal, down to 1 / n (Jain, Chiu, Hawe, DEC-TR-301,
/// 1984).
fn jain(shares: &[usize]) -> f64 {
    let sum: f64 = shares.iter().map(|&s| s as f64).sum();
    let squares: f64 = shares.iter().map(|&s| (s as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares).max(f64::MIN_POSITIVE)
}

fn bootstrap(bytes: usize, absent: Option<usize>, aborts: Option<usize>) -> Result<ExitCode> {
    if absent.is_some_and(|rank| std::env::var("PMI_RANK") == Ok(rank.to_string())) {
        return Ok(ExitCode::SUCCESS);
    }
    let mut joined = launch::join().context("joining the job")?;
    let boot = joined.boot.as_mut();
    boot.put("address", &value_of(boot.rank(), bytes))?;
    boot.fence().context("fence")?;
    for rank in 0..boot.size() {
        let got = boot.get(rank, "address")?;
        ensure!(got == value_of(rank, bytes), "the value of rank {rank} came back changed");
    }
    if aborts == Some(boot.rank()) {
        boot.abort(5, "asked to by the test");
    }
    report(boot, &joined.key);
    joined.boot.fence()?;
    joined.boot.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn report(boot: &dyn Bootstrap, key: &[u8]) {
    // A digest shows that all ranks have the same key without showing the key.
    let digest = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let digest = wire::to_hex(&digest.to_be_bytes());
    let (rank, size, launcher) = (boot.rank(), boot.size(), boot.launcher());
    println!("rank {rank} of {size} by {launcher}, job {}, key {digest}", boot.job_id());
}
