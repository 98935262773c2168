//! An endpoint beside other descriptors in a program's own epoll. Rank 0 reads lines from its
//! standard input and sends them to all others, which print them: `weft run -n 2 epoll`.

use rustix::event::epoll;
use std::error::Error;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use weft::{CompletionQueue, Endpoint, Job};

const LINE: u64 = 1;
/// The epoll data of the two descriptors.
const ENDPOINT: u64 = 0;
const INPUT: u64 = 1;

/// Sleeps until there is something to do. True if there is input.
fn sleep(epoll: BorrowedFd<'_>, endpoint: &Endpoint) -> rustix::io::Result<bool> {
    // A packet arrived in between: do not sleep.
    if !endpoint.waiting().prepare() {
        return Ok(false);
    }
    let mut events = Vec::with_capacity(2);
    let woken = epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None);
    endpoint.waiting().finish();
    match woken {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e),
    }
    Ok(events.iter().any(|event| event.data.u64() == INPUT))
}

fn main() -> Result<(), Box<dyn Error>> {
    let job = Job::init()?;
    let (world, endpoint) = (job.world(), job.endpoint());
    let mut queue = CompletionQueue::new(endpoint);
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (events, key) = (epoll::EventFlags::IN, epoll::EventData::new_u64);
    let fd = endpoint.waiting().fd().ok_or("the system gives no descriptor to wait on")?;
    epoll::add(&epoll, fd, key(ENDPOINT), events)?;
    let others: Vec<_> = (1..world.size()).map(|r| world.peer(r)).collect::<Result<_, _>>()?;
    if world.rank() == 0 {
        epoll::add(&epoll, std::io::stdin(), key(INPUT), events)?;
    } else {
        queue.push(endpoint.recv(Some(world.peer(0)?), LINE, 0, vec![0; 4096]), LINE);
    }
    let mut open = true;
    loop {
        // Handle all completions before any sleep.
        while let Some(done) = queue.poll() {
            let len = done.result?.len;
            if world.rank() == 0 {
                continue;
            }
            if len == 0 {
                return Ok(());
            }
            print!("{}", String::from_utf8_lossy(&done.buffer[..len]));
            queue.push(endpoint.recv(Some(world.peer(0)?), LINE, 0, done.buffer), LINE);
        }
        if !open && queue.is_empty() {
            return Ok(());
        }
        if sleep(epoll.as_fd(), endpoint)? {
            // One read of the available bytes; zero bytes at the end of input.
            let mut line = vec![0; 4096];
            let len = std::io::stdin().read(&mut line)?;
            open = len > 0;
            for &other in &others {
                queue.push(endpoint.send(other, LINE, line[..len].to_vec()), LINE);
            }
            if !open {
                epoll::delete(&epoll, std::io::stdin())?;
            }
        }
    }
}
