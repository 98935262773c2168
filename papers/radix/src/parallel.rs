//! The parallel program: the keys are in regions, and ranks write them at their places.

use crate::pass::{histogram, passes, permute, starts, Digit};
use crate::{Outcome, Params, Step};
use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;
use weft_apps::{digest, owned, Casts, Failure};
use weft_models::net::Net;
use weft_models::regions::{Region, RegionError, RegionId, Regions};
use weft_models::together::Together;

/// Regions that a rank asks for before it needs them.
const AHEAD: usize = 8;

/// The division of the keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Division {
    /// Keys of a region, 1 at least. Paper 004 has 256.
    pub region: usize,
    /// Time of a key in a pass of a simulation, in nanoseconds.
    pub ns_per_key: f64,
    /// True if a rank waits for each region that it writes or reads, and keeps it until another
    /// one wants it, and counts of digits are broadcast, as in paper 004; else regions are asked
    /// for ahead, and given back at once.
    pub one_by_one: bool,
}

/// An array of keys in regions. Each rank is the home of those of its part, and maps others when it
/// needs them.
struct Array<N: Net> {
    all: Regions<N>,
    names: Vec<RegionId>,
    mapped: RefCell<Vec<Option<Region<N, u32>>>>,
    /// Keys of a region; the last one may have more than are in use.
    each: usize,
    /// See [`Division`].
    one_by_one: bool,
}

impl<N: Net> Array<N> {
    async fn make(
        all: &Regions<N>,
        part: Range<usize>,
        division: &Division,
    ) -> Result<Self, Failure> {
        let Division { region: each, one_by_one, .. } = *division;
        let mine = part.map(|_| all.create(vec![0u32; each]));
        let mine = mine.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<_> = mine.iter().map(Region::id).collect();
        let names = all.gather(&names).await?;
        let mapped = RefCell::new(vec![None; names.len()]);
        Ok(Array { all: all.clone(), names, mapped, each, one_by_one })
    }

    fn region(&self, at: usize) -> Result<Region<N, u32>, RegionError> {
        let mut mapped = self.mapped.borrow_mut();
        if let Some(region) = &mapped[at] {
            return Ok(region.clone());
        }
        let region = self.all.map_known(self.names[at], self.each)?;
        mapped[at] = Some(region.clone());
        Ok(region)
    }

    /// Reads all keys of some regions.
    async fn read(&self, part: Range<usize>, into: &mut Vec<u32>) -> Result<(), Failure> {
        into.clear();
        for at in part.clone() {
            if at + AHEAD < part.end && !self.one_by_one {
                self.region(at + AHEAD)?.prefetch();
            }
            into.extend_from_slice(&self.region(at)?.read().await?);
        }
        Ok(())
    }

    /// Writes pieces of keys, each at places that follow each other.
    async fn write(&self, pieces: &[(usize, &[u32])]) -> Result<(), Failure> {
        for (at, &(place, keys)) in pieces.iter().enumerate() {
            let ahead = pieces.get(at + AHEAD).filter(|_| !self.one_by_one);
            if let Some((ahead, _)) = ahead {
                self.region(ahead / self.each)?.prefetch_to_write();
            }
            let (region, first) = (self.region(place / self.each)?, place % self.each);
            region.write().await?[first..first + keys.len()].copy_from_slice(keys);
            if !self.one_by_one {
                // Its home reads it in the next pass.
                region.flush();
            }
        }
        Ok(())
    }
}

/// Sorts on all ranks of a net; all call this with the same parameters. The result has the checksum
/// of [`sequential()`](crate::sequential()) on every rank; only rank 0 has the keys.
///
/// `progress` is called after each pass.
///
/// # Errors
/// A rank has failed, or a region is lost with it.
///
/// # Panics
/// [`Params::check`] refuses the parameters, or a region has no keys.
pub async fn run<N: Net>(
    net: &N,
    params: &Params,
    division: &Division,
    progress: &dyn Fn(Step),
) -> Result<Outcome, Failure> {
    params.check().expect("parameters were checked");
    let (rank, ranks, each) = (net.rank(), net.size(), division.region);
    assert!(each > 0, "a region has keys");
    let (count, total) = (params.keys.len(), params.keys.len().div_ceil(each));
    let part = owned(rank, ranks, total);
    // The keys of this rank; the last region may be used in part.
    let places = (part.start * each).min(count)..(part.end * each).min(count);
    // On the simulated clusters results of reductions are broadcast, as in paper 004.
    let together = match division.ns_per_key > 0.0 {
        true => Together::with_multicast(net, 0),
        false => Together::open(net, 0),
    };
    let casts = match division.one_by_one {
        true => Some(Casts::open(net, 0).await?),
        false => None,
    };
    let regions = Regions::open(net);
    let arrays = [
        Array::make(&regions, part.clone(), division).await?,
        Array::make(&regions, part.clone(), division).await?,
    ];
    let mut keys = params.keys[places.clone()].to_vec();
    let of = passes(params.keys.iter().copied().max().unwrap_or(0), params.radix);
    together.barrier().await?;
    let time = net.now();
    for pass in 0..of {
        let (digit, to) = (Digit::new(pass, params.radix), &arrays[pass as usize % 2]);
        let counts = histogram(&keys, digit);
        let all = match &casts {
            Some(casts) => exchange(net, casts, pass.into(), encode(rank, &counts)).await?,
            None => together.reduce(encode(rank, &counts), join).await?,
        };
        let all = decode(&all, ranks, digit.values());
        let first = starts(all.iter().map(|counts| &counts[..]), rank);
        let computes = keys.len() as f64 * division.ns_per_key;
        net.compute(Duration::from_nanos(computes as u64)).await;
        let sorted = by_digit(&keys, digit, &counts);
        to.write(&pieces(&sorted, &counts, (&first, each), (rank, ranks))).await?;
        together.barrier().await?;
        to.read(part.clone(), &mut keys).await?;
        keys.truncate(places.len());
        progress(Step { passes: pass + 1, of, keys: count });
    }
    together.barrier().await?;
    let elapsed = net.now().since(time);
    let mine = digest(places.start as u64, keys.iter().map(|key| u64::from(*key)));
    let sum = |all: Vec<u8>, other: &[u8]| {
        number(&all).wrapping_add(number(other)).to_le_bytes().to_vec()
    };
    let checksum = number(&together.reduce(mine.to_le_bytes().to_vec(), sum).await?);
    let mut sorted = Vec::new();
    if rank == 0 {
        arrays[(of as usize + 1) % 2].read(0..total, &mut sorted).await?;
        sorted.truncate(count);
    }
    // The homes stay until rank 0 has read all.
    together.barrier().await?;
    Ok(Outcome { keys: sorted, count, radix: params.radix, ranks, passes: of, checksum, elapsed })
}

/// Gives the bytes of each rank to all, by a broadcast of each.
async fn exchange<N: Net>(
    net: &N,
    casts: &Casts<N>,
    pass: u64,
    mine: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let number = |rank: usize| pass * net.size() as u64 + rank as u64;
    casts.send(number(net.rank()), &mine).await?;
    let mut all = Vec::new();
    for rank in (0..net.size()).filter(|rank| *rank != net.rank()) {
        all.extend(casts.receive(rank, number(rank)).await?);
    }
    all.extend(mine);
    Ok(all)
}

/// Returns keys in the order of a digit, of which there are so many of each value.
fn by_digit(keys: &[u32], digit: Digit, counts: &[u32]) -> Vec<u32> {
    let mut sorted = vec![0; keys.len()];
    let mut places = starts([counts], 0);
    permute(keys, digit, &mut places, |place, key| sorted[place as usize] = key);
    sorted
}

/// Cuts sorted keys into pieces that lie in one region each, with the place of each. Ranks begin at
/// different digits, so that they do not all want the same regions at once.
fn pieces<'a>(
    sorted: &'a [u32],
    counts: &[u32],
    (first, each): (&[u32], usize),
    (rank, ranks): (usize, usize),
) -> Vec<(usize, &'a [u32])> {
    let (mut pieces, mut rest, mut begin) = (Vec::new(), sorted, 0);
    for (value, (&place, &count)) in first.iter().zip(counts).enumerate() {
        if value == counts.len() * rank / ranks {
            begin = pieces.len();
        }
        let (mut keys, behind) = rest.split_at(count as usize);
        let mut place = place as usize;
        while !keys.is_empty() {
            let (piece, more) = keys.split_at(keys.len().min(each - place % each));
            pieces.push((place, piece));
            place += piece.len();
            keys = more;
        }
        rest = behind;
    }
    pieces.rotate_left(begin);
    pieces
}

/// Bytes of the histogram of a rank.
fn encode(rank: usize, counts: &[u32]) -> Vec<u8> {
    std::iter::once(&(rank as u32)).chain(counts).flat_map(|word| word.to_le_bytes()).collect()
}

fn join(all: Vec<u8>, other: &[u8]) -> Vec<u8> {
    [&all, other].concat()
}

/// Returns the histograms of all ranks in their order.
fn decode(bytes: &[u8], ranks: usize, values: usize) -> Vec<Vec<u32>> {
    let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
    let words: Vec<u32> = words.collect();
    let mut all = vec![vec![0; values]; ranks];
    for one in words.chunks_exact(values + 1) {
        if let Some(place) = all.get_mut(one[0] as usize) {
            place.copy_from_slice(&one[1..]);
        }
    }
    all
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}
