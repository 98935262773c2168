//! The views of an ordered group, as all its members have seen them, also those that have ended.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use weft_models::net::{Live, Net};
use weft_models::order::{OrderedGroup, View};

/// Interval of looks at the view of a member.
const LOOK: Duration = Duration::from_micros(500);

/// The members of each view by its number, with the rank that has seen it first.
type Seen = BTreeMap<u32, BTreeMap<Vec<usize>, usize>>;

/// The views that members have seen. Clones are the same.
#[derive(Clone, Default)]
pub struct Views {
    seen: Rc<RefCell<Seen>>,
}

impl Views {
    /// Notes the view of a member now.
    pub fn note(&self, rank: usize, group: &OrderedGroup<Live>) {
        if let Some(view) = group.view() {
            self.told(rank, &view);
        }
    }

    /// Notes a view that a member was told of.
    pub fn told(&self, rank: usize, view: &View) {
        let mut seen = self.seen.borrow_mut();
        seen.entry(view.number).or_default().entry(view.members.clone()).or_insert(rank);
    }

    /// Notes the views of a member until its part has ended.
    pub fn watch(&self, net: &Live, group: &OrderedGroup<Live>) {
        let (views, rank, group) = (self.clone(), net.rank(), group.clone());
        let sleeps = net.clone();
        net.spawn(async move {
            while group.ended().is_none() {
                views.note(rank, &group);
                sleeps.sleep(LOOK).await;
            }
        });
    }

    /// Checks that there was at most one view of each number.
    ///
    /// # Panics
    /// There were two.
    pub fn check(&self, seed: u64) {
        for (number, views) in self.seen.borrow().iter() {
            assert!(views.len() == 1, "seed {seed}: view {number} was seen as {views:?}");
        }
    }
}
