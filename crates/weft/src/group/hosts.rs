//! Operations in two levels: ranks of a host combine first, then the hosts. Each byte of the result
//! crosses the network once for a host, and not once for a rank.

use super::call::Call;
use super::number::Kernel;
use super::reduce::{even, in_bytes, Crew, Keep, Work};
use super::sys::Field;
use super::{Group, NO_LINK, RESULT};
use std::rc::Rc;
use weft_core::OpError;

/// The hosts of a group's ranks, as their addresses name them: the same on all ranks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    /// The ranks of each host, in order.
    all: Vec<Vec<usize>>,
    /// The host of this rank, and its position there.
    own: (usize, usize),
}

impl Hosts {
    /// Returns the hosts by their marks, of which 0 stands for a host of its own. `None` if all
    /// ranks are in one host, or each in its own.
    fn new(marks: &[u64], rank: usize) -> Option<Hosts> {
        let (mut all, mut known) = (Vec::<Vec<usize>>::new(), Vec::new());
        for (rank, &mark) in marks.iter().enumerate() {
            match known.iter().position(|&one| one == mark && mark != 0) {
                Some(at) => all[at].push(rank),
                None => {
                    known.push(mark);
                    all.push(vec![rank]);
                }
            }
        }
        let host = all.iter().position(|ranks| ranks.contains(&rank))?;
        let at = all[host].iter().position(|&one| one == rank)?;
        (all.len() > 1 && all.len() < marks.len()).then_some(Hosts { all, own: (host, at) })
    }

    /// Returns the number of ranks of each host that combine a share of the vector.
    fn shares(&self) -> usize {
        self.all.iter().map(Vec::len).min().unwrap_or(1)
    }
}

impl Group {
    /// Returns the hosts, if there are several and one of them has several ranks. Asks for the
    /// addresses of all ranks at its first call.
    ///
    /// # Errors
    /// The address of a rank is not available.
    pub(super) fn hosts(&self) -> Result<Option<Rc<Hosts>>, OpError> {
        if let Some(hosts) = self.inner.begun.hosts.get() {
            return Ok(hosts.clone());
        }
        let mark = |&member: &usize| match self.inner.directory.address(member) {
            Ok(address) => Ok(address.host),
            Err(why) => {
                *self.inner.nowhere.borrow_mut() = format!("rank {member}: {why}");
                Err(NO_LINK)
            }
        };
        let marks = self.inner.members.iter().map(mark).collect::<Result<Vec<_>, _>>()?;
        let hosts =
            self.inner.begun.hosts.get_or_init(|| Hosts::new(&marks, self.rank()).map(Rc::new));
        Ok(hosts.clone())
    }
}

impl Call {
    /// Combines the vectors of all ranks on every rank. The ranks of a host combine a share each,
    /// then those with the same share on all hosts, and give the result to the ranks of their host.
    pub(super) async fn by_hosts(
        &self,
        hosts: &Hosts,
        field: &Field<'_>,
        kernel: &Kernel,
    ) -> Result<(), OpError> {
        let (host, me) = hosts.own;
        let crew = Crew::of(&hosts.all[host], me);
        let shares = hosts.shares();
        let mut blocks = even(field.len() / kernel.size, shares);
        let end = field.len() / kernel.size;
        blocks.resize(crew.size, end..end);
        let blocks = in_bytes(&blocks, kernel.size);
        let work = Work { blocks: &blocks, kernel, keep: Keep::Block, whole: None };
        self.by_blocks(crew, (field, field), work).await?;
        let mut results = Vec::new();
        for other in crew.others().filter(|&other| other < shares) {
            let share = blocks[other].range.clone();
            results.push(self.incoming(field, crew.rank(other), share, RESULT)?);
        }
        let mut given = Vec::new();
        if me < shares {
            let peers: Vec<usize> = hosts.all.iter().map(|ranks| ranks[me]).collect();
            let share = blocks[me].range.clone();
            let part = (field, share.clone());
            self.long(Crew::of(&peers, host), part, kernel, Some(self.size())).await?;
            for other in crew.others() {
                given.push(self.outgoing(field, crew.rank(other), share.clone(), RESULT)?);
            }
        }
        for result in results {
            self.end_vector(result).await?;
        }
        for part in given {
            self.end_send(part).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn hosts__are_of_use_where_some_ranks_share_one_and_others_do_not() {
        assert_eq!(Hosts::new(&[7, 7, 7], 1), None, "one host");
        assert_eq!(Hosts::new(&[7, 8, 9], 1), None, "one rank each");
        assert_eq!(Hosts::new(&[0, 0, 0], 1), None, "unknown ones");
        let hosts = Hosts::new(&[7, 8, 7, 8, 7], 3).unwrap();
        assert_eq!(hosts.all, [vec![0, 2, 4], vec![1, 3]]);
        assert_eq!((hosts.own, hosts.shares()), ((1, 1), 2));
        let hosts = Hosts::new(&[7, 0, 7, 0], 2).unwrap();
        assert_eq!((hosts.all.len(), hosts.own, hosts.shares()), (3, (0, 1), 1));
    }
}
