//! Numbers from a replicated counter, which no two ranks may get, also where a rank stands still
//! until the others have gone on without it, and have ended.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use weft_models::net::{Blocking, Live, Net};
use weft_models::objects::{Object, Objects, Placement};

#[derive(Default, Serialize, Deserialize)]
struct Counter(u64);

#[derive(Serialize, Deserialize)]
struct Next;

impl Object for Counter {
    type Op = Next;
    type Reply = u64;

    fn apply(&mut self, _: Next) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Takes `count` numbers, and prints each. After half of them rank `still` makes no progress until
/// the file is there, and the others wait until they are without it.
pub(super) fn run(count: u64, still: usize, until: &Path) -> Result<ExitCode> {
    let job = weft::Job::init()?;
    let net = Live::new(job.world())?;
    let me = net.rank();
    let objects = Objects::open(&net);
    let class = objects.class::<Counter>(1);
    let opened = class.open(0, Placement::Replicated, Counter::default);
    let counter = net.block_on(opened).context("the counter")?;
    for at in 0..count {
        if at == count / 2 && me == still {
            println!("rank {me} is process {} and stands still", std::process::id());
            while !until.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        } else if at == count / 2 {
            let group = objects.group();
            net.block_on(group.view_when(|view| !view.members.contains(&still)))?;
        }
        match counter.call_blocking(Next) {
            Ok(number) => println!("rank {me} has number {number}"),
            Err(error) => {
                println!("rank {me} has error {error}");
                break;
            }
        }
    }
    println!("rank {me} ends");
    Ok(ExitCode::SUCCESS)
}
