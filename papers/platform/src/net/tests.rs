//! Programs on clusters whose nodes wait for ever, and the order of their broadcasts.
#![allow(non_snake_case)]

use super::super::choice::Choice;
use super::super::hardware::Hardware;
use super::super::system::System;
use super::*;
use weft_core::group::tree::Tree;

const HANDLER: u16 = 9;

fn setup(hw: &Hardware, choice: Choice, nodes: usize) -> Setup {
    Setup::new(&Hardware { nodes, ..hw.clone() }, choice, 1)
}

/// All nodes send broadcasts of changing length at once; each gets those of one sender in order,
/// also where the end of a fetch is handled while packets of an earlier one wait for the processor.
#[test]
fn multicast__packets_of_each_root_come_in_order() {
    const CASTS: u32 = 40;
    const NODES: usize = 16;
    for hw in Hardware::all() {
        for choice in [Choice::SDMA, Choice::HMC, Choice::NIRX, Choice::HRX, Choice::PIO] {
            for tree in [Tree::Binary, Tree::Binomial] {
                let mut setup = setup(&hw, choice.with_tree(tree), NODES);
                setup.system = System::MPI;
                let ran = setup.run(2048, |net| async move {
                    let come = Rc::new(RefCell::new(vec![Vec::new(); NODES]));
                    let into = Rc::clone(&come);
                    net.handle(HANDLER, move |packet| {
                        into.borrow_mut()[packet.from].push(packet.argument);
                    });
                    for number in 0..CASTS {
                        let full = net.group_max(&AllNodes);
                        let bytes = vec![0; [full, 8, 700][number as usize % 3]];
                        while net.try_multicast(&AllNodes, HANDLER, number, &bytes).is_err() {
                            net.sleep(Duration::from_micros(10)).await;
                        }
                    }
                    while come.borrow().iter().map(Vec::len).sum::<usize>() < (NODES - 1) * 40 {
                        net.sleep(Duration::from_micros(100)).await;
                    }
                    come.take()
                });
                let ran = ran.unwrap_or_else(|why| panic!("{choice} {tree} on {}: {why}", hw.name));
                let all: Vec<u32> = (0..CASTS).collect();
                for (node, come) in ran.results.iter().enumerate() {
                    for (from, numbers) in come.iter().enumerate().filter(|(from, _)| *from != node)
                    {
                        let what = format!("{choice} {tree} on {}: {from} to {node}", hw.name);
                        assert_eq!(*numbers, all, "{what}");
                    }
                }
            }
        }
    }
}

/// Broadcasts of Panda's systems have further bytes: each hop takes longer, and a full packet has
/// fewer bytes of the program. Calls have none, nor have the messages that MPICH forwards.
#[test]
fn multicast__bytes_of_a_system_count_at_each_hop_and_in_full_packets() {
    const BYTES: usize = 92;
    let last = |nodes: usize, system: System, tree: Option<Tree>, cast: bool| {
        let mut setup = setup(&Hardware::p3(), Choice::SDMA, nodes);
        (setup.system, setup.message_tree) = (system, tree);
        let ran = setup.run(8, move |net| async move {
            let come = Rc::new(Cell::new(false));
            let into = Rc::clone(&come);
            net.handle(HANDLER, move |_| into.set(true));
            match (net.rank(), cast) {
                (0, true) => net.try_multicast(&AllNodes, HANDLER, 0, &[0; 8]).unwrap(),
                (0, false) => net.try_send(nodes - 1, HANDLER, 0, &[0; 8]).unwrap(),
                (rank, _) if !cast && rank < nodes - 1 => {}
                _ => {
                    while !come.get() {
                        net.yield_now().await;
                    }
                }
            }
            net.group_max(&AllNodes)
        });
        let ran = ran.unwrap_or_else(|why| panic!("{why}"));
        (ran.micros, ran.results[0])
    };
    let plain = System { cast_bytes: 0, ..System::PANDA_ST };
    let panda = System { cast_bytes: BYTES, ..plain };
    let hop = BYTES as f64 * Hardware::p3().link_byte as f64 / 1e6;
    for (nodes, hops) in [(2, 1.0), (16, 4.0), (64, 6.0)] {
        let (without, full) = last(nodes, plain, None, true);
        let (with, less) = last(nodes, panda, None, true);
        assert!(with - without >= hops * hop, "{nodes} nodes: {without} and {with} us");
        assert_eq!((full, less), (2048, 2048 - BYTES));
    }
    let of = |system| last(16, system, None, false).0;
    assert_eq!(of(plain), of(panda), "a message to one node");
    let of = |system| last(16, system, Some(Tree::Binary), true);
    assert_eq!(of(plain), of(panda), "a broadcast that programs forward");
}

/// The text of a run that stands still has the cause of each node, in its own words.
#[test]
fn run__a_standstill_names_what_each_node_waits_for() {
    let hw = Hardware::ppro();
    let stuck = setup(&hw, Choice::SDMA, 3).run(8, |net| async move {
        match net.rank() {
            0 => {}
            // A packet that has come, and one that does not.
            1 => {
                net.handle(HANDLER, |_| {});
                std::future::pending::<()>().await;
            }
            _ => {
                net.try_send(1, HANDLER, 0, &[1]).unwrap();
                std::future::pending::<()>().await;
            }
        }
    });
    let said = stuck.unwrap_err();
    for part in [
        "2 of 3 programs have not ended",
        "node 1 waits for a packet (the last one came from node 2, for handler 9",
        "node 2 waits for a packet, and none has come",
    ] {
        assert!(said.contains(part), "{said}");
    }
}
