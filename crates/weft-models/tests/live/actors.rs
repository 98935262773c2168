//! Objects that messages drive, over each link.

use crate::ranks::{run, LINKS};
use serde::{Deserialize, Serialize};
use weft_models::actors::{Actor, Actors, Turn};
use weft_models::net::{Blocking, Net};

/// A place of a ring, which counts how often the token has passed.
#[derive(Serialize, Deserialize)]
struct Place(u64);

/// Places of the ring.
const PLACES: usize = 8;

#[derive(Serialize, Deserialize)]
enum Message {
    Token(u64),
    Count,
    Go,
}

impl Actor for Place {
    type Message = Message;
    type Value = u64;
    type Shared = ();

    fn receive(&mut self, message: Message, turn: &mut Turn<'_, Place>) {
        match message {
            Message::Token(left) => {
                self.0 += 1;
                match left {
                    1 => turn.broadcast(&Message::Count),
                    _ => turn.send((turn.index().x() + 1) % PLACES, Message::Token(left - 1)),
                }
            }
            Message::Count => turn.contribute(self.0),
            Message::Go => turn.move_to((turn.rank() + 1) % turn.ranks()),
        }
    }

    fn combine(sum: &mut u64, other: u64) {
        *sum += other;
    }
}

#[test]
fn actors__a_ring_of_8_objects_on_2_ranks_over_each_link() {
    for link in LINKS {
        run(link, 2, |net, _| {
            let actors = Actors::open(&net);
            let ring = actors.array(1, PLACES, |_| Place(0));
            assert_eq!(ring.here(), 4);
            for round in 1..4 {
                if net.rank() == 0 {
                    ring.send(0, Message::Token(1_000)).expect("it exists");
                    ring.send(round as usize, Message::Go).expect("it exists");
                }
                actors.run_blocking().expect("nothing fails");
                assert_eq!(ring.result(), Some(1_000 * round), "{link}");
            }
            let mut all = 0;
            ring.each(|_, place| all += place.0);
            assert!(all > 0 && all < 3_000);
        });
    }
}

#[test]
fn balance__moves_objects_between_threads_and_all_go_on() {
    run("shm", 3, |net, _| {
        let actors = Actors::open(&net);
        let ring = actors.array(1, PLACES, |_| Place(0));
        for _ in 0..4 {
            let placed = |index: usize| (index * 7 + 3) % net.size();
            let plan = actors.balance_by(|loads| (0..loads.objects.len()).map(placed).collect());
            net.block_on(plan).expect("the plan is right");
            (0..PLACES).for_each(|at| assert_eq!(ring.rank_of(at), Some(placed(at))));
            let before = ring.result().unwrap_or(0);
            if net.rank() == 2 {
                ring.send(5, Message::Token(100)).expect("it exists");
            }
            actors.run_blocking().expect("nothing fails");
            assert_eq!(ring.result(), Some(before + 100));
        }
    });
}
