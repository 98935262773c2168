//! A completion queue: rank 0 serves the requests of all other ranks in the order of arrival: `weft
//! run -n 4 completion_queue [REQUESTS]`.

use std::error::Error;
use weft::{CompletionQueue, Job};

const REQUEST: u64 = 1;
const ANSWER: u64 = 2;
/// Context of the send of an answer; its completion needs no action.
const ANSWERED: u64 = u64::MAX;

fn main() -> Result<(), Box<dyn Error>> {
    let job = Job::init()?;
    let (world, endpoint) = (job.world(), job.endpoint());
    let requests: usize = std::env::args().nth(1).map_or(Ok(1000), |n| n.parse())?;
    let mut queue = CompletionQueue::new(endpoint);
    if world.rank() > 0 {
        let server = world.peer(0)?;
        for number in 0..requests as u64 {
            queue.push(endpoint.send(server, REQUEST, number.to_le_bytes().to_vec()), ANSWERED);
            queue.push(endpoint.recv(Some(server), ANSWER, 0, vec![0; 8]), number);
            while let Some(done) = queue.wait(None) {
                let status = done.result?;
                if done.context != ANSWERED {
                    assert_eq!((status.len, done.buffer), (8, (number * 2).to_le_bytes().to_vec()));
                }
            }
        }
        return Ok(());
    }
    // A receive for each client, whose number is its context.
    let clients: Vec<_> = (1..world.size()).map(|r| world.peer(r)).collect::<Result<_, _>>()?;
    let mut left = vec![requests; clients.len()];
    for (context, &client) in (0..).zip(&clients).filter(|_| requests > 0) {
        queue.push(endpoint.recv(Some(client), REQUEST, 0, vec![0; 8]), context);
    }
    while let Some(done) = queue.wait(None) {
        done.result?;
        if done.context == ANSWERED {
            continue;
        }
        let at = done.context as usize;
        let number = u64::from_le_bytes(done.buffer.as_slice().try_into()?);
        let answer = (number * 2).to_le_bytes().to_vec();
        queue.push(endpoint.send(clients[at], ANSWER, answer), ANSWERED);
        left[at] -= 1;
        if left[at] > 0 {
            // The completion gives the buffer back, for the next receive.
            queue.push(endpoint.recv(Some(clients[at]), REQUEST, 0, done.buffer), done.context);
        }
    }
    println!("{} requests served", requests * clients.len());
    Ok(())
}
