//! A block of rows, which messages drive through an iteration over the three equations.

use super::sum::{Iterated, Message, RowSum, Stop, Sum};
use crate::balance::Division;
use crate::mesh::Mesh;
use crate::params::{Method, Params};
use crate::part::{Change, Equation, Fields, Nodes, Part, Pass};
use crate::relax::{Relax, CHECK};
use crate::solve::{looks, LEFT, ROUNDING, TIMED};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weft_models::actors::{Actor, Section, Turn};

/// The values that all blocks of a rank read.
pub(crate) struct Shared {
    pub params: Params,
    pub mesh: Rc<Mesh>,
    /// The potential of all nodes without voltage.
    pub at_rest: Vec<f64>,
}

/// The place of a block in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Between two iterations.
    #[default]
    Stopped,
    /// At the beginning of an equation.
    Equation,
    /// At the beginning of a pass over nodes.
    Pass,
    /// Border rows of the pass are to come.
    Borders,
    /// All blocks compare their changes.
    Looking,
    /// The sweeps are done.
    Swept,
    /// Border rows of a carrier are to come.
    Applied,
}

/// The state of an iteration, in which no block moves.
#[derive(Default)]
struct Iteration {
    at: At,
    /// The fields before it.
    before: Option<Fields>,
    is_last: bool,
    equation: usize,
    sweeps: u64,
    /// The pass in a sweep, and the eigenvalue for its factors.
    pass: usize,
    mu: f64,
    largest: Option<Change>,
    whole: f64,
    own: Option<Change>,
    worst: Option<(usize, Change)>,
    changes: [f64; 3],
    counts: [u64; 3],
}

/// The rows of a block: open, or as they travel.
enum Held {
    Open(Box<Part<Rc<Mesh>>>),
    Packed(Packed),
}

/// The fields of some rows, and the work of all, as they travel.
#[derive(Serialize, Deserialize)]
struct Packed {
    first: u32,
    rows: Vec<Vec<f64>>,
    work: Vec<u64>,
}

/// A block of rows.
#[derive(Serialize, Deserialize)]
pub(crate) struct Block {
    rows: (u32, u32),
    relax: [Relax; 3],
    /// Time of rows in this iteration, and before, in s.
    recent: Vec<f64>,
    earlier: Vec<f64>,
    /// Exchanges of border rows so far, and rows that came early.
    exchanges: u64,
    early: BTreeMap<(u64, bool), Vec<f64>>,
    held: Held,
    #[serde(skip)]
    iteration: Iteration,
}

/// Returns the potentials of a row, one field after the other.
fn values(fields: &Fields, row: usize, cols: usize) -> Vec<f64> {
    let Fields { psi, w: [electrons, holes] } = fields;
    let of = |field: &Vec<f64>| field[row * cols..][..cols].to_vec();
    [of(psi), of(electrons), of(holes)].concat()
}

fn put_values(fields: &mut Fields, row: usize, cols: usize, values: &[f64]) {
    let Fields { psi, w: [electrons, holes] } = fields;
    for (field, values) in [psi, electrons, holes].into_iter().zip(values.chunks_exact(cols)) {
        field[row * cols..][..cols].copy_from_slice(values);
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let part = match self {
            Held::Packed(packed) => return packed.serialize(to),
            Held::Open(part) => part,
        };
        let with_borders = around(&part.rows, part.mesh.rows);
        let row = |row| values(&part.fields, row, part.mesh.cols);
        let first = with_borders.start as u32;
        let work = part.work.clone();
        Packed { first, rows: with_borders.map(row).collect(), work }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Held {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Held, D::Error> {
        Packed::deserialize(from).map(Held::Packed)
    }
}

/// Returns rows with one on each side, of so many.
fn around(rows: &Range<usize>, count: usize) -> Range<usize> {
    rows.start.saturating_sub(1)..(rows.end + 1).min(count)
}

impl Block {
    pub fn new(shared: &Shared, rows: Range<usize>) -> Block {
        let adapts = shared.params.method == Method::RedBlack;
        let count = shared.mesh.rows;
        let part =
            Part::with_potential(Rc::clone(&shared.mesh), rows.clone(), shared.at_rest.clone());
        Block {
            rows: (rows.start as u32, rows.end as u32),
            relax: [(); 3].map(|()| Relax::new(adapts)),
            recent: vec![0.0; count],
            earlier: vec![0.0; count],
            exchanges: 0,
            early: BTreeMap::new(),
            held: Held::Open(Box::new(part)),
            iteration: Iteration::default(),
        }
    }

    fn range(&self) -> Range<usize> {
        self.rows.0 as usize..self.rows.1 as usize
    }

    /// Opens the rows of a block that has moved.
    fn open(&mut self, shared: &Shared) {
        if let Held::Packed(packed) = &self.held {
            let mesh = Rc::clone(&shared.mesh);
            let mut part = Part::with_potential(mesh, self.range(), shared.at_rest.clone());
            for (row, values) in (packed.first as usize..).zip(&packed.rows) {
                put_values(&mut part.fields, row, shared.mesh.cols, values);
            }
            part.work.clone_from(&packed.work);
            self.held = Held::Open(Box::new(part));
        }
    }

    fn part(&mut self) -> &mut Part<Rc<Mesh>> {
        match &mut self.held {
            Held::Open(part) => part,
            Held::Packed(_) => unreachable!("a turn opens the rows first"),
        }
    }

    fn begin(&mut self, voltages: Option<Vec<f64>>, is_last: bool) {
        if let Some(voltages) = voltages {
            self.part().set_voltages(&voltages);
        }
        let before = self.part().fields.clone();
        self.iteration =
            Iteration { at: At::Equation, before: Some(before), is_last, ..Iteration::default() };
    }

    /// Goes on until something has to come.
    fn advance(&mut self, turn: &mut Turn<'_, Block>) {
        loop {
            let goes = match self.iteration.at {
                At::Stopped | At::Looking => false,
                At::Equation => self.begin_equation(turn),
                At::Pass => self.pass(turn),
                At::Borders => self.end_pass(turn),
                At::Swept => self.end_sweeps(turn),
                At::Applied => self.end_apply(turn),
            };
            if !goes {
                return;
            }
        }
    }

    fn equation(&self) -> Equation {
        Equation::ALL[self.iteration.equation]
    }

    fn begin_equation(&mut self, turn: &mut Turn<'_, Block>) -> bool {
        let equation = self.equation();
        if let Some(carrier) = equation.carrier() {
            let before = self.part().work.clone();
            let start = Instant::now();
            self.part().prepare(carrier);
            let rows = self.range();
            let work: Vec<u64> =
                rows.clone().map(|row| self.part().work[row] - before[row]).collect();
            let units: u64 = work.iter().sum();
            let each = match turn.shared().params.ns_per_unit {
                Some(ns) => ns * 1e-9,
                None => start.elapsed().as_secs_f64() / units.max(1) as f64,
            };
            for (row, work) in rows.zip(work) {
                self.recent[row] += work as f64 * each;
            }
            worked(turn, units);
        }
        let at = self.iteration.equation;
        self.relax[at].begin();
        let mu = self.relax[at].mu();
        self.part().set_factors(mu);
        let it = &mut self.iteration;
        (it.mu, it.sweeps, it.pass, it.largest, it.whole) = (mu, 0, 0, None, 0.0);
        it.at = At::Pass;
        true
    }

    /// Begins a pass over nodes: border rows come first, so that they travel while the others are
    /// computed.
    fn pass(&mut self, turn: &mut Turn<'_, Block>) -> bool {
        let it = &self.iteration;
        let params = &turn.shared().params;
        if it.pass == 0 && it.sweeps >= params.max_sweeps {
            self.iteration.at = At::Swept;
            return true;
        }
        let nodes = match params.method {
            Method::RedBlack => Nodes::Colour(it.pass),
            Method::Jacobi => Nodes::All,
        };
        let (looks, timed) = (looks(it.sweeps), it.sweeps % CHECK == TIMED);
        let pass = Pass { equation: self.equation(), nodes, mu: it.mu, looks, timed };
        let rows = self.range();
        let inner = (rows.start + 1).min(rows.end)..(rows.end - 1).max(rows.start + 1);
        let mut largest = self.compute(turn, pass, rows.start..inner.start);
        let last = self.compute(turn, pass, inner.end..rows.end);
        largest = largest.or(last.size, last.node);
        let is_whole = pass.nodes == Nodes::All;
        self.send_borders(turn, |part| match is_whole {
            true => &part.new,
            false => part.unknowns(pass.equation),
        });
        let others = self.compute(turn, pass, inner);
        largest = largest.or(others.size, others.node);
        if is_whole {
            self.part().take_new(pass.equation);
        }
        let before = self.iteration.largest.unwrap_or(Change::NONE);
        self.iteration.largest = Some(before.or(largest.size, largest.node));
        self.iteration.at = At::Borders;
        true
    }

    /// Sends the first and the last row of a field to the blocks beside this one.
    fn send_borders(
        &mut self,
        turn: &mut Turn<'_, Block>,
        field: impl FnOnce(&mut Part<Rc<Mesh>>) -> &Vec<f64>,
    ) {
        let (rows, cols) = (self.range(), turn.shared().mesh.cols);
        let (index, number) = (turn.index().x(), self.exchanges);
        let count = turn.shape().len() as usize;
        let field = field(self.part());
        let row = |row: usize| field[row * cols..][..cols].to_vec();
        if let Some(above) = index.checked_sub(1) {
            let row = row(rows.start);
            turn.send(above, Message::Border { number, is_above: false, row });
        }
        if index + 1 < count {
            let row = row(rows.end - 1);
            turn.send(index + 1, Message::Border { number, is_above: true, row });
        }
    }

    /// Puts the border rows of this exchange into a field. False if one has not come.
    fn take_borders(
        &mut self,
        turn: &Turn<'_, Block>,
        field: impl FnOnce(&mut Part<Rc<Mesh>>) -> &mut Vec<f64>,
    ) -> bool {
        let (rows, cols, number) = (self.range(), turn.shared().mesh.cols, self.exchanges);
        let has = [turn.index().x() > 0, turn.index().x() + 1 < turn.shape().len() as usize];
        let sides = [(true, rows.start.wrapping_sub(1)), (false, rows.end)];
        let wanted = sides.iter().zip(has).filter(|(_, has)| *has).map(|(side, _)| *side);
        let wanted: Vec<_> = wanted.collect();
        if !wanted.iter().all(|(side, _)| self.early.contains_key(&(number, *side))) {
            return false;
        }
        let come: Vec<_> = wanted
            .iter()
            .filter_map(|(side, row)| Some((*row, self.early.remove(&(number, *side))?)))
            .collect();
        let field = field(self.part());
        for (row, values) in come {
            field[row * cols..][..cols].copy_from_slice(&values);
        }
        self.exchanges += 1;
        true
    }

    fn end_pass(&mut self, turn: &mut Turn<'_, Block>) -> bool {
        let equation = self.equation();
        if !self.take_borders(turn, |part| part.unknowns(equation)) {
            return false;
        }
        let passes = match turn.shared().params.method {
            Method::RedBlack => 2,
            Method::Jacobi => 1,
        };
        let it = &mut self.iteration;
        it.pass += 1;
        it.at = At::Pass;
        if it.pass < passes {
            return true;
        }
        it.pass = 0;
        it.sweeps += 1;
        let largest = it.largest.take().unwrap_or(Change::NONE);
        if !looks(it.sweeps - 1) {
            return true;
        }
        let own = self.own_change();
        self.iteration.own = Some(own);
        self.iteration.at = At::Looking;
        turn.contribute(Sum { largest: [largest.size, own.size], ..Sum::default() });
        true
    }

    /// Returns the change of this block in the equation.
    fn own_change(&mut self) -> Change {
        let equation = self.equation();
        let Some(before) = self.iteration.before.take() else { return Change::NONE };
        let own = self.part().changed(equation, &before);
        self.iteration.before = Some(before);
        own
    }

    /// Goes on after all blocks have compared their changes.
    fn looked(&mut self, [change, all]: [f64; 2], turn: &mut Turn<'_, Block>) {
        let at = self.iteration.equation;
        self.iteration.whole = all;
        if !change.is_finite() || !all.is_finite() {
            self.iteration.whole = f64::INFINITY;
            return self.end_equation(turn);
        }
        let shared = turn.shared();
        let tolerance = shared.params.tolerance / shared.mesh.thermal;
        let ratio = self.relax[at].look(change).min(1.0 - 1e-6);
        let rest = change * ratio / (1.0 - ratio);
        if rest <= (LEFT * all).max(0.1 * tolerance) || change <= ROUNDING {
            self.iteration.at = At::Swept;
            return;
        }
        let mu = self.relax[at].mu();
        if mu != self.iteration.mu {
            self.iteration.mu = mu;
            self.part().set_factors(mu);
        }
        self.iteration.at = At::Pass;
    }

    fn end_sweeps(&mut self, turn: &mut Turn<'_, Block>) -> bool {
        self.iteration.own = Some(self.own_change());
        let Some(carrier) = self.equation().carrier() else {
            self.end_equation(turn);
            return true;
        };
        self.part().apply(carrier);
        self.send_borders(turn, |part| &part.fields.w[carrier as usize]);
        self.iteration.at = At::Applied;
        true
    }

    fn end_apply(&mut self, turn: &mut Turn<'_, Block>) -> bool {
        let at = self.equation().carrier().map_or(0, |carrier| carrier as usize);
        if !self.take_borders(turn, |part| &mut part.fields.w[at]) {
            return false;
        }
        self.end_equation(turn);
        true
    }

    fn end_equation(&mut self, turn: &mut Turn<'_, Block>) {
        let it = &mut self.iteration;
        let at = it.equation;
        (it.changes[at], it.counts[at]) = (it.whole, it.sweeps);
        let own = it.own.unwrap_or(Change::NONE);
        let is_worst = it.worst.is_none_or(|(worst, _)| it.whole >= it.changes[worst]);
        if is_worst || !it.whole.is_finite() {
            it.worst = Some((at, own));
        }
        if !it.whole.is_finite() {
            if let Some(before) = it.before.take() {
                self.part().fields = before;
            }
            return self.end_iteration(turn, Stop::Diverged);
        }
        it.equation += 1;
        if it.equation < Equation::ALL.len() {
            it.at = At::Equation;
            return;
        }
        let largest = it.changes.iter().copied().fold(0.0, f64::max);
        let shared = turn.shared();
        let stop = match largest <= shared.params.tolerance / shared.mesh.thermal {
            true => Stop::Converged,
            false if self.iteration.is_last => Stop::Limit,
            false => Stop::Goes,
        };
        self.end_iteration(turn, stop);
    }

    fn end_iteration(&mut self, turn: &mut Turn<'_, Block>, stop: Stop) {
        let it = &mut self.iteration;
        it.at = At::Stopped;
        let (worst, own) = it.worst.unwrap_or((0, Change::NONE));
        let (sweeps, changes) = (it.counts, it.changes);
        let iterated = Some(Iterated { sweeps, changes, stop, worst: worst as u8 });
        let mesh = Rc::clone(&turn.shared().mesh);
        let contacts = turn.shared().params.device.contacts.len();
        let range = self.range();
        let seconds: Vec<f64> = range.clone().map(|row| self.recent[row]).collect();
        for (recent, earlier) in self.recent.iter_mut().zip(&mut self.earlier) {
            *earlier += std::mem::take(recent);
        }
        let part = self.part();
        let row = |(row, seconds)| {
            let (mut power, mut outflows) = (0.0, Vec::new());
            if stop != Stop::Goes {
                power = part.power(row);
                outflows = vec![0.0; contacts];
                for node in row * mesh.cols..(row + 1) * mesh.cols {
                    if let Some(contact) = mesh.contacts[node] {
                        outflows[usize::from(contact)] += part.outflow(node);
                    }
                }
            }
            RowSum { row: row as u32, seconds, power, outflows, ..RowSum::default() }
        };
        let rows = range.zip(seconds).map(row).collect();
        let worst = (own.size, own.node as u64);
        turn.contribute(Sum { worst, iterated, rows, ..Sum::default() });
    }

    /// Sweeps over nodes in some rows.
    fn compute(&mut self, turn: &mut Turn<'_, Block>, pass: Pass, rows: Range<usize>) -> Change {
        let ns = turn.shared().params.ns_per_unit;
        let (mut largest, mut units) = (Change::NONE, 0);
        for row in rows {
            let (before, start) = (self.part().work[row], pass.timed.then(Instant::now));
            let change = self.part().sweep(pass, row);
            largest = largest.or(change.size, change.node);
            let work = self.part().work[row] - before;
            self.recent[row] += match (ns, start) {
                (Some(ns), _) => work as f64 * ns * 1e-9,
                (None, Some(start)) => start.elapsed().as_secs_f64() * CHECK as f64,
                (None, None) => 0.0,
            };
            units += work;
        }
        worked(turn, units);
        largest
    }

    /// Takes other rows, and sends those that it had to the blocks that need them.
    fn divide(&mut self, starts: &[u32], turn: &mut Turn<'_, Block>) {
        let division = Division::of(starts);
        let (me, cols) = (turn.index().x(), turn.shared().mesh.cols);
        let count = turn.shared().mesh.rows;
        for row in self.range() {
            let mut owners: Vec<usize> =
                around(&(row..row + 1), count).map(|row| division.owner(row)).collect();
            owners.dedup();
            let values = values(&self.part().fields, row, cols);
            for owner in owners.into_iter().filter(|owner| *owner != me) {
                turn.send(owner, Message::Row { row: row as u32, values: values.clone() });
            }
        }
        let rows = division.rows(me);
        self.rows = (rows.start as u32, rows.end as u32);
        self.part().rows = rows;
    }

    fn report(&mut self, turn: &mut Turn<'_, Block>) {
        let (cols, range) = (turn.shared().mesh.cols, self.range());
        let rows = 0..turn.shared().mesh.rows;
        let all = rows.map(|row| {
            let seconds = self.recent[row] + self.earlier[row];
            let work = self.part().work[row];
            let is_own = range.contains(&row);
            let values = if is_own { values(&self.part().fields, row, cols) } else { Vec::new() };
            RowSum { row: row as u32, seconds, work, values, ..RowSum::default() }
        });
        let rows: Vec<_> = all.collect();
        turn.contribute(Sum { rows, ..Sum::default() });
    }
}

/// Lets the time of work pass in a simulation.
fn worked(turn: &mut Turn<'_, Block>, units: u64) {
    if let Some(ns) = turn.shared().params.ns_per_unit {
        turn.compute(Duration::from_nanos((units as f64 * ns) as u64));
    }
}

impl Actor for Block {
    type Message = Message;
    type Value = Sum;
    type Shared = Shared;

    fn receive(&mut self, message: Message, turn: &mut Turn<'_, Block>) {
        self.open(turn.shared());
        match message {
            Message::Iterate { voltages, is_last } => self.begin(voltages, is_last),
            Message::Border { number, is_above, row } => {
                self.early.insert((number, is_above), row);
            }
            Message::Divide(starts) => self.divide(&starts, turn),
            Message::Row { row, values } => {
                let cols = turn.shared().mesh.cols;
                put_values(&mut self.part().fields, row as usize, cols, &values);
            }
            Message::Report => self.report(turn),
        }
        self.advance(turn);
    }

    fn combine(all: &mut Sum, other: Sum) {
        all.add(other);
    }

    fn reduced(&mut self, _: Section, sum: Sum, turn: &mut Turn<'_, Block>) {
        if self.iteration.at == At::Looking {
            self.looked(sum.largest, turn);
            self.advance(turn);
        }
    }
}
