//! Fetch-and-add on behalf of the rank, while the rank computes: words in this process, or in the
//! kernel, where others add without this process.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use weft_core::wire::{code, question, status, Atomic, Reply};
use weft_core::{EndpointId, PeerId};
use weft_kernel::counters::{client_key, Admission, KernelCounters};
use weft_link::random_u64;
use weft_link::secure::JobKey;

/// Access to the kernel's counters for one rank.
pub struct InKernel {
    /// The counters of the host.
    pub counters: Rc<KernelCounters>,
    /// The key of the rank's job.
    pub key: JobKey,
    /// The rank.
    pub me: EndpointId,
    /// The user of the rank.
    pub user: u32,
}

/// The words of one rank, by key.
#[derive(Default)]
pub struct Counters {
    words: BTreeMap<u64, Words>,
    count: usize,
    kernel: Option<InKernel>,
    /// Number of operations served.
    pub served: u64,
}

/// The words under a key.
enum Words {
    Here(Box<[AtomicU64]>),
    Kernel(KernelWords),
}

/// Words in the kernel, and the peers that may add to them there. Freed when dropped.
struct KernelWords {
    counters: Rc<KernelCounters>,
    first: u32,
    count: u32,
    clients: BTreeMap<PeerId, Client>,
}

/// A peer that adds in the kernel, without this process.
struct Client {
    place: Admission,
    nonce: u64,
    /// Set when the peer's slot in the kernel ended: number of the last request served, and the
    /// answer.
    ended: Option<(u64, u64)>,
}

impl Drop for KernelWords {
    fn drop(&mut self) {
        self.clients.values().for_each(|client| self.counters.dismiss(client.place.client));
        self.counters.close(self.first, self.count);
    }
}

impl Words {
    fn len(&self) -> usize {
        match self {
            Words::Here(words) => words.len(),
            Words::Kernel(words) => words.count as usize,
        }
    }

    fn get(&self, word: usize) -> Option<&AtomicU64> {
        match self {
            Words::Here(words) => words.get(word),
            Words::Kernel(words) => {
                let word = u32::try_from(word).ok().filter(|&word| word < words.count)?;
                Some(words.counters.word(words.first + word))
            }
        }
    }
}

impl KernelWords {
    /// Answers a peer's question for the data that it needs to add in the kernel.
    fn answer(&mut self, kernel: &InKernel, from: (PeerId, EndpointId), what: u64) -> Option<u64> {
        if what == question::PLACE {
            self.dismiss(from.0);
            let nonce = random_u64();
            let key = client_key(&kernel.key, kernel.me, from.1, nonce);
            let place = self.counters.admit(kernel.user, &key, self.first, self.count)?;
            self.clients.insert(from.0, Client { place, nonce, ended: None });
            let (port, addresses) = (u64::from(place.port), u64::from(place.addresses));
            return Some(u64::from(place.client) | port << 16 | addresses << 32);
        }
        let client = self.clients.get_mut(&from.0)?;
        match what {
            question::NONCE => Some(client.nonce),
            question::END => {
                let ended = self.counters.end(client.place.client);
                Some(client.ended.get_or_insert(ended).0)
            }
            question::ANSWER => Some(client.ended?.1),
            _ => {
                let number = usize::try_from(what.checked_sub(question::ADDRESS)?).ok()?;
                Some(u64::from(u32::from(self.counters.address(number)?)))
            }
        }
    }

    fn dismiss(&mut self, peer: PeerId) {
        if let Some(client) = self.clients.remove(&peer) {
            self.counters.dismiss(client.place.client);
        }
    }
}

impl Counters {
    /// Allows words in the kernel from now on.
    pub fn use_kernel(&mut self, kernel: InKernel) {
        self.kernel = Some(kernel);
    }

    /// Keeps `words` words of this value under `key`. False if the total would exceed `most`, or
    /// the key is in use.
    pub fn open(&mut self, key: u64, words: u32, value: u64, most: usize) -> bool {
        let here = || Some(Words::Here((0..words).map(|_| AtomicU64::new(value)).collect()));
        self.insert(key, words, most, here)
    }

    /// Keeps `words` words of this value under `key` in the kernel. False if [`open`](Self::open)
    /// would return false, if the kernel has no room, or if the kernel is not used.
    pub fn open_in_kernel(&mut self, key: u64, words: u32, value: u64, most: usize) -> bool {
        let kernel = self.kernel.as_ref().map(|kernel| (Rc::clone(&kernel.counters), kernel.user));
        let Some((counters, user)) = kernel else { return false };
        self.insert(key, words, most, || {
            let first = counters.open(user, words, value)?;
            Some(Words::Kernel(KernelWords {
                counters,
                first,
                count: words,
                clients: BTreeMap::new(),
            }))
        })
    }

    fn insert(
        &mut self,
        key: u64,
        words: u32,
        most: usize,
        make: impl FnOnce() -> Option<Words>,
    ) -> bool {
        let count = words as usize;
        if count == 0 || self.count + count > most || self.words.contains_key(&key) {
            return false;
        }
        let Some(words) = make() else { return false };
        self.count += count;
        self.words.insert(key, words);
        true
    }

    /// Forgets the words under `key`.
    pub fn close(&mut self, key: u64) {
        self.count -= self.words.remove(&key).map_or(0, |w| w.len());
    }

    /// Ends the access of a lost peer to all words.
    pub fn lost(&mut self, peer: PeerId) {
        for words in self.words.values_mut() {
            if let Words::Kernel(words) = words {
                words.dismiss(peer);
            }
        }
    }

    /// Returns the value of a word.
    pub fn read(&self, key: u64, word: u32) -> Option<u64> {
        Some(self.words.get(&key)?.get(word as usize)?.load(SeqCst))
    }

    /// Does an operation if its key belongs to these words; returns the answer. `from` is the
    /// requesting peer, if a peer requests.
    pub fn serve(&mut self, atomic: &Atomic, from: Option<(PeerId, EndpointId)>) -> Option<Reply> {
        let words = self.words.get_mut(&atomic.key)?;
        self.served += 1;
        let value = match words {
            Words::Kernel(words) if atomic.code == code::CLIENT => {
                let kernel = self.kernel.as_ref();
                kernel
                    .zip(from)
                    .and_then(|(kernel, from)| words.answer(kernel, from, atomic.operand))
            }
            words => {
                let at = usize::try_from(atomic.offset / 8).ok();
                let at = at.filter(|_| atomic.offset.is_multiple_of(8));
                at.and_then(|at| words.get(at)).and_then(|word| apply(word, atomic))
            }
        };
        Some(match value {
            Some(value) => Reply { value, status: status::OK },
            None => Reply { value: 0, status: status::REFUSED },
        })
    }
}

/// Does an operation on a word and returns the value before. Programs in the kernel may add to the
/// word at the same time.
fn apply(word: &AtomicU64, atomic: &Atomic) -> Option<u64> {
    let operand = atomic.operand;
    Some(match atomic.code {
        code::FETCH_ADD => word.fetch_add(operand, SeqCst),
        code::COMPARE_SWAP => {
            let done = word.compare_exchange(atomic.compare, operand, SeqCst, SeqCst);
            done.unwrap_or_else(|before| before)
        }
        code::SWAP => word.swap(operand, SeqCst),
        code::FETCH_AND => word.fetch_and(operand, SeqCst),
        code::FETCH_OR => word.fetch_or(operand, SeqCst),
        code::FETCH_XOR => word.fetch_xor(operand, SeqCst),
        _ => return None,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn add(key: u64, offset: u64, operand: u64) -> Atomic {
        Atomic { key, offset, operand, compare: 0, code: code::FETCH_ADD }
    }

    #[test]
    fn serve__adds_and_refuses_what_is_out_of_bounds() {
        let mut all = Counters::default();
        assert!(all.open(7, 2, 0, 10));
        assert_eq!(all.serve(&add(7, 8, 5), None), Some(Reply { value: 0, status: status::OK }));
        assert_eq!(all.serve(&add(7, 8, 1), None), Some(Reply { value: 5, status: status::OK }));
        assert_eq!((all.read(7, 1), all.read(7, 0), all.read(7, 2)), (Some(6), Some(0), None));
        for offset in [16, 4, u64::MAX, u64::MAX - 7] {
            let reply = all.serve(&add(7, offset, 1), None).unwrap();
            assert_eq!(reply.status, status::REFUSED, "{offset}");
        }
        assert_eq!(all.serve(&add(8, 0, 1), None), None, "somebody else's key");
        let swap = Atomic { code: code::COMPARE_SWAP, compare: 6, operand: 9, ..add(7, 8, 0) };
        assert_eq!(all.serve(&swap, None).unwrap().value, 6);
        assert_eq!(all.read(7, 1), Some(9));
    }

    #[test]
    fn open__the_quota_counts_words() {
        let mut all = Counters::default();
        assert!(all.open(1, 6, 0, 10) && !all.open(1, 1, 0, 10) && !all.open(2, 5, 0, 10));
        assert!(all.open(2, 4, 0, 10) && !all.open(3, 0, 0, 10));
        all.close(1);
        all.close(1);
        assert!(all.open(3, 6, 0, 10));
    }
}
