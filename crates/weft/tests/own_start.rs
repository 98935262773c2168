//! Jobs whose ranks find each other by a key-value space of the program's own.
#![allow(non_snake_case)]

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use weft::launch::{Bootstrap, LaunchError};
use weft::{Job, Op};

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
                first.leave(std::time::Duration::from_secs(5));
                let most = second.world().allreduce_blocking(mine, Op::Max).unwrap();
                assert_eq!(most, [2, 1]);
            });
        }
    });
}
