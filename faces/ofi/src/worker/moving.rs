//! Steps of a move of the process to another host.

use super::Worker;
use crate::mover::Step;

impl Worker {
    /// Does a step, under the lock. Returns the number of peers that it leaves without news.
    pub(super) fn move_step(&self, step: &Step) -> Result<usize, String> {
        let moving = self.endpoint.moving();
        match step {
            Step::Check => match moving.obstacles()[..] {
                [] => Ok(0),
                ref links => Err(format!("links that cannot be closed: {}", links.join(", "))),
            },
            Step::Hold(number) => {
                moving.hold(*number);
                Ok(moving.untold())
            }
            Step::Close => {
                moving.close();
                Ok(0)
            }
            Step::Open(number, runs) => {
                moving.open(*number, runs.clone()).map_err(|why| why.to_string())?;
                self.meet_all();
                Ok(moving.untold())
            }
            Step::Tell => Ok(moving.tell()),
            Step::Hear => {
                self.endpoint.waiting().finish();
                self.endpoint.waiting().program_computes();
                self.endpoint.progress();
                Ok(moving.untold())
            }
            Step::Wake => {
                // A caller may sleep on a descriptor that was empty when it fell asleep.
                self.unreported.set(true);
                self.endpoint.waiting().rearm(true);
                Ok(0)
            }
        }
    }

    /// Opens sessions with all peers in the address vector: those without one know the old address
    /// alone.
    fn meet_all(&self) {
        let state = &mut *self.state.borrow_mut();
        let Some(vector) = state.bound.vector.clone() else { return };
        let numbers = vector.vector.borrow().numbers();
        for number in numbers {
            // Of a name that no link reaches its own operations tell.
            if let Ok(peer) = self.peer(state, number) {
                self.endpoint.peer(peer).open();
            }
        }
    }
}
