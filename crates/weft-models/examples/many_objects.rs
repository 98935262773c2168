//! Many objects on simulated hosts: `many_objects OBJECTS HOSTS`. Each object gets a broadcast,
//! sends a message to another one and contributes to a reduction. Prints the time of each part, and
//! the memory of an idle object.

use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Instant;
use weft_models::actors::balance::Strategy;
use weft_models::actors::{Actor, Actors, Turn};
use weft_sim::{Sim, SimConfig};

/// An object that counts its messages.
#[derive(Serialize, Deserialize)]
struct Count(u64);

#[derive(Serialize, Deserialize)]
enum Message {
    Tell,
    Note,
    Sum,
}

impl Actor for Count {
    type Message = Message;
    type Value = u64;
    type Shared = ();

    fn receive(&mut self, message: Message, turn: &mut Turn<'_, Count>) {
        let (at, all) = (turn.index().x() as u64, turn.shape().len());
        match message {
            Message::Tell => turn.send((at * 7_919 % all) as usize, Message::Note),
            Message::Note => self.0 += 1,
            Message::Sum => turn.contribute(self.0),
        }
    }

    fn combine(sum: &mut u64, other: u64) {
        *sum += other;
    }
}

/// Returns the memory of this process, in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse().expect("a number"));
    let (objects, hosts): (usize, usize) =
        (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(64));
    let begun = Rc::new(Instant::now());
    let mut sim = Sim::new("many objects", SimConfig::new(hosts as u32, 1));
    let before = memory();
    let done = sim.results(move |env| {
        let begun = Rc::clone(&begun);
        async move {
            let net = env.net().expect("no agent is chosen");
            let actors = Actors::open(&net);
            let array = actors.array(1, objects, |_| Count(0));
            let tell = |what: &str| {
                if env.host == 0 {
                    println!("{what}: {:.1} s", begun.elapsed().as_secs_f64());
                }
            };
            actors.run().await.expect("nothing fails");
            if env.host == 0 {
                let each = memory().saturating_sub(before) / objects;
                println!("{objects} objects on {hosts} hosts: {each} B an idle object");
            }
            for (what, message) in
                [("a message of each to another one", Message::Tell), ("a sum", Message::Sum)]
            {
                if env.host == 0 {
                    array.broadcast(&message).expect("it has bytes");
                }
                actors.run().await.expect("nothing fails");
                tell(what);
            }
            assert_eq!(array.result(), Some(objects as u64));
            let balanced = actors.balance(&Strategy::Rotate).await.expect("nothing fails");
            tell(&format!("{} objects moved", balanced.moved));
            (actors, array)
        }
    });
    drop(done.unwrap_or_else(|failure| panic!("{failure}")));
}
