//! The names of the shared objects of a job: an object on all ranks, which Python does not see.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weft_models::objects::{Object, ObjectId, Placement, Read};

/// The rank that makes an object, and that rank's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub rank: usize,
    pub number: u64,
}

/// An object that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub key: Key,
    /// The pickle of its class.
    pub kind: Vec<u8>,
    pub placement: Placement,
    /// The object, once it is there.
    pub made: Option<ObjectId>,
}

/// The objects by their names.
#[derive(Default, Serialize, Deserialize)]
pub struct Registry {
    entries: BTreeMap<String, Entry>,
}

/// A change of the names, or a look.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// Takes a name, unless there is an object of this name, or another rank makes one. It takes
    /// the name from `instead_of`, whose rank has failed.
    Take { name: String, entry: Entry, instead_of: Option<Key> },
    /// The object of this key is there.
    Made { name: String, key: Key, id: ObjectId },
    /// The object of this key is not made, or is deleted.
    Free { name: String, key: Key },
    /// Waits until no object of this key is being made.
    Wait { name: String, key: Key },
}

impl Registry {
    /// Returns the entry of a name.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }
}

impl Object for Registry {
    type Op = Ask;
    type Reply = Option<Entry>;

    fn read(&self, ask: &Ask) -> Read<Option<Entry>> {
        let Ask::Wait { name, key } = ask else { return Read::Write };
        let entry = self.get(name);
        match entry.is_some_and(|entry| entry.key == *key && entry.made.is_none()) {
            true => Read::Wait,
            false => Read::Value(entry.cloned()),
        }
    }

    fn apply(&mut self, ask: Ask) -> Option<Entry> {
        let name = match ask {
            Ask::Take { name, entry, instead_of } => {
                let known = self.get(&name);
                let is_free =
                    known.is_none_or(|known| known.made.is_none() && Some(known.key) == instead_of);
                if is_free {
                    self.entries.insert(name.clone(), entry);
                }
                name
            }
            Ask::Made { name, key, id } => {
                if let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.key == key) {
                    entry.made = Some(id);
                }
                name
            }
            Ask::Free { name, key } => {
                if self.get(&name).is_some_and(|entry| entry.key == key) {
                    return self.entries.remove(&name);
                }
                return None;
            }
            Ask::Wait { name, .. } => name,
        };
        self.get(&name).cloned()
    }
}
