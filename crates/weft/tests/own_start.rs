//! Jobs whose ranks find each other by a key-value space of the program's own.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use weft::launch::{Bootstrap, LaunchError};
use weft::{Group, Job, Kept, Number, Op};

/// The values of a job of threads, and the place where they wait for each other.
struct Values {
    all: Mutex<BTreeMap<(usize, String), Vec<u8>>>,
    fence: Barrier,
}

/// A thread as a rank.
struct Rank {
    values: Arc<Values>,
    rank: usize,
    size: usize,
}

impl Bootstrap for Rank {
    fn launcher(&self) -> &'static str {
        "threads"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn job_id(&self) -> String {
        format!("threads-{}", std::process::id())
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), LaunchError> {
        self.values.all.lock().unwrap().insert((self.rank, key.to_owned()), value.to_vec());
        Ok(())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        self.values.fence.wait();
        Ok(())
    }

    fn get(&mut self, rank: usize, key: &str) -> Result<Vec<u8>, LaunchError> {
        let value = self.values.all.lock().unwrap().get(&(rank, key.to_owned())).cloned();
        value.ok_or_else(|| LaunchError::NotPublished { rank, key: key.to_owned() })
    }

    fn preseeded(&mut self, _key: &str) -> Result<Option<Vec<u8>>, LaunchError> {
        Ok(None)
    }

    fn abort(&mut self, code: i32, _message: &str) -> ! {
        std::process::exit(code)
    }

    fn finalize(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }
}

fn values(size: usize) -> Arc<Values> {
    Arc::new(Values { all: Mutex::default(), fence: Barrier::new(size) })
}

#[test]
fn init_by__threads_of_a_process_are_ranks_of_two_jobs_at_a_time() {
    const SIZE: usize = 3;
    let spaces = [values(SIZE), values(SIZE)];
    std::thread::scope(|scope| {
        for rank in 0..SIZE {
            let spaces = spaces.clone();
            scope.spawn(move || {
                let joined = |values: Arc<Values>| {
                    let boot = Box::new(Rank { values, rank, size: SIZE });
                    Job::init_by(boot, Some(SIZE)).unwrap()
                };
                let [first, second] = spaces.map(joined);
                assert_eq!((first.world().rank(), first.launcher()), (rank, "threads"));
                let mine = vec![rank as u64, 1];
                let sum = first.world().allreduce_blocking(mine.clone(), Op::Sum).unwrap();
                assert_eq!(sum, [3, 3]);
                first.leave(Duration::from_secs(5));
                let most = second.world().allreduce_blocking(mine, Op::Max).unwrap();
                assert_eq!(most, [2, 1]);
            });
        }
    });
}

/// Runs a program on threads as ranks.
fn run(size: usize, program: impl Fn(&Group) + Sync) {
    let values = values(size);
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (values, program) = (Arc::clone(&values), &program);
            scope.spawn(move || {
                let job = Job::init_by(Box::new(Rank { values, rank, size }), Some(size)).unwrap();
                program(job.world());
            });
        }
    });
}

fn of(values: &[u32]) -> Kept {
    Kept::of(values.iter().flat_map(|value| value.to_le_bytes()).collect())
}

fn numbers(kept: Kept) -> Vec<u32> {
    let bytes = kept.into_bytes().unwrap();
    bytes.as_chunks().0.iter().map(|raw| u32::from_le_bytes(*raw)).collect()
}

#[test]
fn kept__operations_give_their_memory_back_with_the_result() {
    run(3, |group| {
        let (placed, rank) = (group.placed(), group.rank() as u32);
        let by = (Number::U32, Op::Sum);
        let sum = placed.keep_allreduce(of(&[rank, 1]), by.0, by.1).wait().unwrap();
        assert_eq!(numbers(sum), [3, 3]);
        let sum = numbers(placed.keep_reduce(2, of(&[rank, 10]), by).wait().unwrap());
        assert!(rank != 2 || sum == [3, 30]);
        let from = of(&[rank, 10 * rank, 100 * rank, 1]);
        let own = of(if rank == 2 { &[0, 0] } else { &[0] });
        let block = placed.keep_reduce_scatter(from, &[1, 1, 2], by, own).wait().unwrap();
        assert_eq!(numbers(block), [vec![3], vec![30], vec![300, 3]][rank as usize]);
        let told = placed.keep_broadcast(1, of(&[rank + 5])).wait().unwrap();
        assert_eq!(numbers(told), [6]);
        let mut all = [0; 3];
        all[rank as usize] = rank + 1;
        let all = placed.keep_allgather(&[4, 4, 4], of(&all)).wait().unwrap();
        assert_eq!(numbers(all), [1, 2, 3]);
        let (given, taken) = ([4, 4, 4], [4, 4, 4]);
        let from = of(&[rank, rank + 10, rank + 20]);
        let got = placed.keep_alltoall((&given, from), (&taken, of(&[0; 3]))).wait().unwrap();
        assert_eq!(numbers(got), [10 * rank, 10 * rank + 1, 10 * rank + 2]);
    });
}

#[test]
fn kept__wrong_lengths_are_refused_and_a_drop_ends_an_operation() {
    run(2, |group| {
        let placed = group.placed();
        let odd = placed.keep_allreduce(Kept::of(vec![0; 7]), Number::U32, Op::Sum).wait();
        assert!(odd.is_err());
        assert!(placed.keep_allreduce(of(&[1]), Number::F32, Op::Xor).wait().is_err());
        assert!(placed.keep_allgather(&[4, 4], of(&[1])).wait().is_err());
        assert!(placed.keep_broadcast(2, of(&[1])).wait().is_err());
        if group.rank() == 0 {
            // The other rank never begins it.
            let long = Kept::of(vec![0; 1 << 20]);
            let begun = placed.keep_broadcast(1, long);
            group.endpoint().progress();
            assert!(!begun.is_done());
            drop(begun);
            group.send_blocking(1, 1, b"over").unwrap();
        } else {
            assert_eq!(group.recv(0, 1, 8).wait().unwrap(), b"over");
        }
    });
}
