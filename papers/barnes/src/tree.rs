//! The oct-tree.

use crate::Body;
use std::ops::Range;

/// Divisions after which a cell stays a leaf however many bodies it has: they are at one place, as
/// far as numbers tell.
const MOST_DEPTH: usize = 64;

/// A node of the tree: a cell, or a leaf with some bodies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Centre of its mass.
    pub centre: [f64; 3],
    /// Its mass.
    pub mass: f64,
    /// Square of the side of its cube.
    pub side_squared: f64,
    /// The number of the node behind all that it contains; of a leaf the next number.
    pub skip: u32,
    /// The place of its first body.
    pub first: u32,
    /// The number of its bodies.
    pub count: u32,
}

/// An oct-tree. Nodes stand in the order of a walk, each cell before its children, so a walk needs
/// no stack: into a cell goes on at the next node, over it at [`Node::skip`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    nodes: Vec<Node>,
    /// The numbers of the bodies, in the order of leaves; bodies of a node are together.
    order: Vec<u32>,
    /// Mass and place of each body, in that order, so that a leaf is read in one go.
    places: Vec<[f64; 4]>,
}

impl Tree {
    /// Builds the tree of some bodies, of which a leaf has at most `leaf`.
    ///
    /// # Panics
    /// There are 2^32 bodies or more.
    pub fn new(bodies: &[Body], leaf: usize) -> Tree {
        let count = u32::try_from(bodies.len()).expect("fewer than 2^32 bodies");
        let (corner, side) = cube(bodies);
        let (order, scratch) = ((0..count).collect(), vec![0; bodies.len()]);
        let mut build = Build { bodies, leaf: leaf.max(1), nodes: Vec::new(), order, scratch };
        if count > 0 {
            build.node(0..bodies.len(), corner, side, 0);
        }
        let Build { nodes, order, .. } = build;
        let place = |body: &u32| {
            let Body { mass, position: [x, y, z], .. } = bodies[*body as usize];
            [mass, x, y, z]
        };
        let places = order.iter().map(place).collect();
        Tree { nodes, order, places }
    }

    /// Returns the nodes, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the numbers of the bodies in the order of leaves. Bodies that follow each other are
    /// near each other: owners of consecutive parts read the same nodes.
    pub fn order(&self) -> &[u32] {
        &self.order
    }

    /// Returns mass and place of each body in the order of leaves.
    pub fn places(&self) -> &[[f64; 4]] {
        &self.places
    }
}

/// Returns the lowest corner and the side of the cube around the middle of all bodies, a little
/// larger than they need.
fn cube(bodies: &[Body]) -> ([f64; 3], f64) {
    let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    for body in bodies {
        for axis in 0..3 {
            low[axis] = low[axis].min(body.position[axis]);
            high[axis] = high[axis].max(body.position[axis]);
        }
    }
    let longest = (0..3).map(|axis| high[axis] - low[axis]).fold(0.0, f64::max);
    let side = if longest > 0.0 { longest * 1.000_02 } else { 1.0 };
    (std::array::from_fn(|axis| (low[axis] + high[axis]) / 2.0 - side / 2.0), side)
}

struct Build<'a> {
    bodies: &'a [Body],
    leaf: usize,
    nodes: Vec<Node>,
    order: Vec<u32>,
    scratch: Vec<u32>,
}

impl Build<'_> {
    /// Makes the node of the bodies in a part of the order, and all below it. Returns its mass and
    /// the sum of its masses times their places.
    fn node(
        &mut self,
        part: Range<usize>,
        corner: [f64; 3],
        side: f64,
        depth: usize,
    ) -> (f64, [f64; 3]) {
        let at = self.nodes.len();
        let (first, count) = (part.start as u32, part.len() as u32);
        let side_squared = side * side;
        self.nodes.push(Node { centre: [0.0; 3], mass: 0.0, side_squared, skip: 0, first, count });
        let (mut mass, mut moment) = (0.0, [0.0; 3]);
        if part.len() <= self.leaf || depth == MOST_DEPTH {
            for body in &self.order[part] {
                let body = &self.bodies[*body as usize];
                mass += body.mass;
                (0..3).for_each(|axis| moment[axis] += body.mass * body.position[axis]);
            }
        } else {
            let half = side / 2.0;
            let middle = corner.map(|low| low + half);
            for (octant, part) in self.divide(part, middle).into_iter().enumerate() {
                if part.is_empty() {
                    continue;
                }
                let upper = |axis: usize| octant >> axis & 1 == 1;
                let corner = std::array::from_fn(|a| if upper(a) { middle[a] } else { corner[a] });
                let (child_mass, child_moment) = self.node(part, corner, half, depth + 1);
                mass += child_mass;
                (0..3).for_each(|axis| moment[axis] += child_moment[axis]);
            }
        }
        let skip = self.nodes.len() as u32;
        let node = &mut self.nodes[at];
        (node.skip, node.mass, node.centre) = (skip, mass, moment.map(|sum| sum / mass));
        (mass, moment)
    }

    /// Brings a part of the order into the order of octants, bodies of one octant as they were.
    fn divide(&mut self, part: Range<usize>, middle: [f64; 3]) -> [Range<usize>; 8] {
        let bodies = self.bodies;
        let octant = |body: u32| {
            let position = bodies[body as usize].position;
            (0..3).fold(0, |bits, axis| bits | usize::from(position[axis] >= middle[axis]) << axis)
        };
        let mut counts = [0; 8];
        for body in &self.order[part.clone()] {
            counts[octant(*body)] += 1;
        }
        let mut end = part.start;
        let parts = counts.map(|count| {
            end += count;
            end - count..end
        });
        let mut next = parts.clone().map(|part| part.start);
        for body in &self.order[part.clone()] {
            let next = &mut next[octant(*body)];
            self.scratch[*next] = *body;
            *next += 1;
        }
        self.order[part.clone()].copy_from_slice(&self.scratch[part]);
        parts
    }
}
