//! The sequential program against direct sums and conservation laws, and its parts.
#![allow(non_snake_case)]

use std::cell::RefCell;
use weft_apps::{owned, Stopped};
use weft_barnes::{
    advance, count, read_bodies, report, sequential, two_clusters, write_bodies, write_energy,
    Body, Gravity, Outcome, Params, ParamsError, Pull, Step, Tree, View, SEED,
};

fn params(count: usize) -> Params {
    Params { bodies: two_clusters(count, SEED), ..Params::default() }
}

fn run(params: &Params) -> Outcome {
    sequential(params, &|_: Step<'_>| Ok(())).unwrap()
}

/// The pulls on all bodies, in the order of their numbers.
fn pulls(bodies: &[Body], gravity: &Gravity) -> Vec<Pull> {
    let tree = Tree::new(bodies, gravity.leaf);
    let mut pulls = vec![Pull::default(); bodies.len()];
    for (place, number) in tree.order().iter().enumerate() {
        pulls[*number as usize] = tree.pull(place, gravity);
    }
    pulls
}

/// The acceleration of a body by all others, one by one.
fn direct(bodies: &[Body], number: usize, softening: f64) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for other in bodies.iter().enumerate().filter(|(at, _)| *at != number).map(|(_, b)| b) {
        let from: [f64; 3] =
            std::array::from_fn(|axis| other.position[axis] - bodies[number].position[axis]);
        let squared = from.iter().map(|x| x * x).sum::<f64>() + softening * softening;
        let factor = other.mass / (squared * squared.sqrt());
        (0..3).for_each(|axis| sum[axis] += factor * from[axis]);
    }
    sum
}

fn length(vector: [f64; 3]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn pull__is_near_the_direct_sum_and_nearer_with_smaller_opening() {
    let bodies = two_clusters(1500, SEED);
    let limits = [(1.0, 0.04, 0.5), (0.5, 0.006, 0.06), (0.0, 1e-13, 1e-11)];
    for (opening, mean_limit, worst_limit) in limits {
        let gravity = Gravity { opening, ..Gravity::default() };
        let pulls = pulls(&bodies, &gravity);
        let errors: Vec<f64> = (0..bodies.len())
            .step_by(3)
            .map(|number| {
                let expected = direct(&bodies, number, gravity.softening);
                let found = pulls[number].acceleration;
                length(std::array::from_fn(|a| found[a] - expected[a])) / length(expected)
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let worst = errors.iter().copied().fold(0.0, f64::max);
        assert!(mean < mean_limit && worst < worst_limit, "{opening}: {mean:e} {worst:e}");
    }
}

#[test]
fn tree__contains_every_body_once_and_nodes_sum_up() {
    let bodies = two_clusters(777, 5);
    let tree = Tree::new(&bodies, 10);
    let mut order = tree.order().to_vec();
    order.sort_unstable();
    assert!(order.into_iter().eq(0..777));
    let (nodes, mut at, mut in_leaves) = (tree.nodes(), 0, 0);
    assert_eq!((nodes[0].count, nodes[0].skip as usize), (777, nodes.len()));
    while at < nodes.len() {
        let node = &nodes[at];
        let inside = &tree.order()[node.first as usize..][..node.count as usize];
        let mass: f64 = inside.iter().map(|number| bodies[*number as usize].mass).sum();
        assert!((mass - node.mass).abs() < 1e-12);
        if node.skip as usize == at + 1 {
            assert!(node.count <= 10 && inside.is_sorted());
            in_leaves += node.count;
        }
        at += 1;
    }
    assert_eq!(in_leaves, 777);
    assert_eq!(
        pulls(&bodies, &Gravity { opening: 0.0, ..Gravity::default() })[0].interactions,
        776
    );
}

#[test]
fn sequential__bits_are_the_same_each_time_and_energy_stays() {
    let params = Params { steps: 20, ..params(600) };
    let first = run(&params);
    assert_eq!(first, Outcome { elapsed: first.elapsed, ..run(&params) });
    assert!(first.drift() < 2e-3, "{}", first.drift());
    assert!(first.energies[0].whole() < 0.0);
    for axis in 0..3 {
        let momentum: f64 = first.bodies.iter().map(|b| b.mass * b.velocity[axis]).sum();
        assert!(momentum.abs() < 1e-3, "{momentum}");
    }
}

/// Pins the bits, which no machine, order or division may change.
#[test]
fn sequential__bits_are_those_of_every_machine() {
    assert_eq!(format!("{:016x}", run(&params(1000)).checksum), "727c215f6e7971c5");
}

#[test]
fn sequential__two_bodies_keep_their_circle() {
    let body =
        |x: f64, v: f64| Body { mass: 0.5, position: [x, 0.0, 0.0], velocity: [0.0, v, 0.0] };
    let speed = 0.125f64.sqrt();
    let bodies = vec![body(1.0, speed), body(-1.0, -speed)];
    let gravity = Gravity { softening: 0.0, ..Gravity::default() };
    let outcome = run(&Params { bodies, gravity, time_step: 0.01, steps: 1777 });
    let [x, y, _] = outcome.bodies[0].position;
    // 1777 steps of 0.01 are once around, 2 pi / sqrt(1/8).
    assert!((x - 1.0).abs() < 1e-3 && y.abs() < 1e-2, "{x} {y}");
    assert!(outcome.drift() < 1e-6);
}

#[test]
fn parts__every_division_has_the_bits_of_the_whole() {
    let params = Params { steps: 1, ..params(300) };
    let expected = run(&params);
    for owners in [2, 3, 7] {
        let mut bodies = params.bodies.clone();
        let mut reversed: Vec<Vec<(usize, Pull)>> = Vec::new();
        for owner in 0..owners {
            let tree = Tree::new(&bodies, params.gravity.leaf);
            let share = owned(owner, owners, bodies.len());
            let pull = |place| (tree.order()[place] as usize, tree.pull(place, &params.gravity));
            reversed.push(share.rev().map(pull).collect());
        }
        for (number, pull) in reversed.into_iter().rev().flatten() {
            advance(&mut bodies[number], &pull, params.time_step);
        }
        assert_eq!(bodies, expected.bodies);
    }
}

#[test]
fn sequential__bodies_at_one_place() {
    let body = Body { mass: 1.0, position: [3.0; 3], velocity: [0.0; 3] };
    for softening in [0.0, 0.05] {
        let gravity = Gravity { softening, ..Gravity::default() };
        let bodies = vec![body; 30];
        let outcome = run(&Params { bodies, gravity, ..params(2) });
        assert!(outcome.bodies.iter().all(|b| *b == body));
    }
    let alone = run(&Params { bodies: vec![body], ..params(2) });
    assert_eq!((alone.bodies[0], alone.interactions), (body, 0));
}

#[test]
fn two_clusters__are_the_benchmark_s() {
    let bodies = two_clusters(1000, SEED);
    assert!(bodies.iter().all(|body| body.mass == 0.001));
    for axis in 0..3 {
        let place: f64 = bodies.iter().map(|b| b.position[axis]).sum();
        let motion: f64 = bodies.iter().map(|b| b.velocity[axis]).sum();
        assert!(place.abs() < 1e-9 && motion.abs() < 1e-9);
        let apart = bodies[700].position[axis] - bodies[200].position[axis];
        assert!((apart - 4.0).abs() < 1e-12);
    }
    assert_eq!(bodies[700].velocity, bodies[200].velocity);
    assert_eq!((two_clusters(7, SEED).len(), two_clusters(0, SEED).len()), (7, 0));
}

#[test]
fn sequential__reports_frames_and_stops() {
    let frames = RefCell::new(Vec::new());
    let params = Params { steps: 2, ..params(1100) };
    let note = |step: Step<'_>| {
        frames.borrow_mut().push((step.steps, step.pulled, step.bodies.is_some()));
        Ok(())
    };
    sequential(&params, &note).unwrap();
    let step = |n| [(n, 512, false), (n, 1024, false), (n + 1, 0, true)];
    let expected = [vec![(0, 0, true)], step(0).to_vec(), step(1).to_vec()].concat();
    assert_eq!(frames.into_inner(), expected);
    let stop = |step: Step<'_>| if step.steps == 1 { Err(Stopped) } else { Ok(()) };
    assert_eq!(sequential(&params, &stop), Err(Stopped));
}

#[test]
fn read_bodies__lines_and_their_faults() {
    let read = |text: &str| read_bodies(&mut text.as_bytes(), 2).map_err(|e| e.to_string());
    let bodies = read("mass,x,y,z,vx,vy,vz\n1,2,3,4,5,6,7 # first\n\n1e-3 0 0 0 0 0 -1\n").unwrap();
    assert_eq!(bodies[0].position, [2.0, 3.0, 4.0]);
    assert_eq!((bodies[1].mass, bodies[1].velocity), (1e-3, [0.0, 0.0, -1.0]));
    let faults = [
        ("# nothing\n", "line 2: no body"),
        ("1 2 3", "line 1: 3 fields, expected `MASS X Y Z VX VY VZ`"),
        ("1 0 0 0 0 0 0\nm x y z u v w", "line 2: `m` is not a finite number"),
        ("1 0 0 inf 0 0 0", "line 1: `inf` is not a finite number"),
        ("0 0 0 0 0 0 0", "line 1: mass 0 is not above 0"),
        ("1 0 0 0 0 0 0\n1 0 0 0 0 0 0\n1 0 0 0 0 0 0", "line 3: more than the limit of 2 bodies"),
    ];
    for (text, expected) in faults {
        assert_eq!(read(text).unwrap_err(), expected);
    }
}

#[test]
fn check__names_what_is_wrong() {
    let refused = |change: fn(&mut Params)| {
        let mut params = params(3);
        change(&mut params);
        params.check().unwrap_err()
    };
    assert_eq!(refused(|p| p.bodies.clear()), ParamsError::Empty);
    assert_eq!(refused(|p| p.bodies[1].mass = 0.0), ParamsError::Body(1));
    assert_eq!(refused(|p| p.bodies[2].velocity[0] = f64::NAN), ParamsError::Body(2));
    assert_eq!(refused(|p| p.steps = 0), ParamsError::Steps);
    assert_eq!(refused(|p| p.gravity.leaf = 0), ParamsError::Leaf);
    let step = refused(|p| p.time_step = -1.0);
    assert_eq!(step.to_string(), "step -1 is not a number from 0 up");
}

#[test]
fn write__reads_back_and_a_person_can_read_it() {
    let outcome = run(&params(100));
    let mut csv = Vec::new();
    write_bodies(&mut csv, &outcome.bodies).unwrap();
    assert_eq!(read_bodies(&mut &csv[..], 100).unwrap(), outcome.bodies);
    let mut energy = Vec::new();
    write_energy(&mut energy, &outcome).unwrap();
    assert_eq!(String::from_utf8(energy).unwrap().lines().count(), 5);
    let text = report(&outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80), "{text}");
    assert!(text.contains("100 bodies, 4 steps") && text.contains("drift"));
}

#[test]
fn count__bodies_are_counted_in_their_place() {
    let bodies = two_clusters(200, SEED);
    let view = View::of(&bodies);
    let counts = count(&bodies, &view, 64);
    let (inside, filled) = (counts.iter().sum::<u32>(), counts.iter().filter(|n| **n > 0).count());
    assert!(counts.len() == 64 * 64 && (50..=200).contains(&inside), "{inside}");
    assert!((50..=inside as usize).contains(&filled), "{filled}");
    let one = [Body { position: [0.35, 0.35, 0.0], ..bodies[0] }];
    let counts = count(&one, &View { middle: [0.0, 0.0], side: 1.0 }, 10);
    // Column 8 from the left, row 1 from the top.
    assert_eq!(counts.iter().position(|n| *n > 0), Some(18));
    assert_eq!(View::of(&[]).side, 1.0);
}
