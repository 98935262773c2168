//! Solutions against closed forms, equilibrium, and runs that do not come to rest.
#![allow(non_snake_case)]

use std::cell::Cell;
use weft_dd::{
    report, sequential, write_curve, write_rows, write_steps, write_summary, write_vtk, Device,
    End, Equation, Method, Outcome, Params, DIODE, LASER,
};

fn device(text: &str) -> Device {
    Device::read(&mut text.as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

fn solved(params: &Params) -> Outcome {
    let outcome = sequential(params, &|_| {});
    assert_eq!(*outcome.end(), End::Converged, "{outcome:?}");
    outcome
}

/// Returns a description without its line that begins with a word.
fn without(text: &str, word: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with(word));
    lines.map(|line| format!("{line}\n")).collect()
}

const SILICON: &str = "material silicon permittivity 11.7 gap 1.12 affinity 4.05 states 2.86e19 \
                       2.66e19 mobility 400 200 lifetime 1e-8 1e-8\n";

/// A bar of n silicon between two contacts.
fn bar(doping: f64, statistics: &str) -> String {
    format!(
        "{SILICON}columns 5 over 0.5 grade 1.2\n\
         layer bar silicon doping {doping:e} thickness 2 rows 20 grade 0.9 {statistics}\n\
         contact one top\ncontact other bottom\nsweep one from 0 to 0.02 step 0.01\n"
    )
}

#[test]
fn currents__of_a_bar_are_those_of_its_resistance() {
    for (doping, statistics) in [(1e16, ""), (1e18, ""), (8e19, "fermi"), (-8e19, "fermi")] {
        let device = device(&bar(doping, statistics));
        let mobility = if doping > 0.0 { 400.0 } else { 200.0 };
        let outcome = solved(&Params::new(device));
        for solution in &outcome.solutions[1..] {
            let ohm = weft_dd::CHARGE * mobility * doping.abs() * 0.5 / 2.0 * solution.voltages[0];
            let ratio = solution.currents[0] / ohm;
            assert!((ratio - 1.0).abs() < 1e-6, "{doping:e}: {ratio}");
        }
    }
}

#[test]
fn equilibrium__no_current_flows_and_the_potential_is_built_in() {
    for text in [DIODE, LASER] {
        let device = device(&without(text, "sweep"));
        let outcome = solved(&Params::new(device));
        assert_eq!(outcome.solutions.len(), 1);
        assert_eq!(outcome.solutions[0].currents, [0.0, 0.0]);
    }
    let device = device(&without(DIODE, "sweep"));
    let (thermal, last) = (device.thermal(), device.rows() * device.cols() - 1);
    let potential = solved(&Params::new(device)).maps.unwrap().potential;
    let product = 2.86e19 * 2.66e19 * (-1.12f64 / thermal).exp();
    let built_in = thermal * (1e18 * 1e18 / product).ln();
    assert!((potential[last] - potential[0] - built_in).abs() < 1e-9);
}

#[test]
fn equilibrium__after_a_voltage_no_current_is_left_beyond_rounding() {
    let text = without(DIODE, "sweep") + "sweep anode from 0.4 to 0 step 0.2\n";
    let params = Params { tolerance: 1e-14, ..Params::new(device(&text)) };
    let outcome = solved(&params);
    // Between two nodes 10 A/cm diffuse, and drift back.
    let last = outcome.solutions.last().unwrap();
    assert!(last.currents.iter().all(|current| current.abs() < 1e-11), "{last:?}");
}

#[test]
fn currents__of_three_contacts_add_up_to_nothing() {
    let text = without(DIODE, "contact") + "contact anode top\n";
    let text = without(&text, "sweep")
        + "box 0 0.1 0.3 0.4 doping 1e19\n\
           contact left bottom from 0 to 0.03\ncontact right bottom from 0.07 to 0.1\n\
           bias right 0.05\nsweep anode from 0.3 to 0.6 step 0.3\n";
    let params = Params { tolerance: 1e-13, ..Params::new(device(&text)) };
    let currents = &solved(&params).solutions[1].currents;
    let most = currents.iter().fold(0.0f64, |most, current| most.max(current.abs()));
    assert!(most > 1e-7 && currents.iter().sum::<f64>().abs() < 1e-4 * most, "{currents:?}");
}

#[test]
fn methods__find_the_same_solution_and_jacobi_takes_more_sweeps() {
    let text = "columns 4 over 0.1\nlayer p silicon doping -1e18 thickness 0.1 rows 10\n\
                layer n silicon doping 1e18 thickness 0.1 rows 10\ncontact a top\n\
                contact c bottom\nsweep a from 0.3 to 0.5 step 0.1\n";
    let params = Params::new(device(&format!("{SILICON}{text}")));
    let fast = solved(&params);
    let slow = solved(&Params { method: Method::Jacobi, ..params });
    for (fast, slow) in fast.solutions.iter().zip(&slow.solutions) {
        assert!((fast.currents[0] / slow.currents[0] - 1.0).abs() < 1e-4, "{fast:?} {slow:?}");
        assert!(slow.sweeps.iter().sum::<u64>() > 3 * fast.sweeps.iter().sum::<u64>());
    }
    let both = [fast, slow].map(|outcome| outcome.maps.unwrap().potential);
    let differences = both[0].iter().zip(&both[1]).map(|(a, b)| (a - b).abs());
    assert!(differences.fold(0.0, f64::max) < 1e-7);
}

#[test]
fn rows__of_a_degenerate_layer_cost_more() {
    let params = Params::new(device(&without(LASER, "sweep")));
    let outcome = solved(&params);
    let mean = |layer: usize| {
        let rows = params.device.layers[layer].rows.clone();
        let work: u64 = outcome.rows[rows.clone()].iter().map(|row| row.work).sum();
        work / rows.len() as u64
    };
    assert!(mean(1) > 5 * mean(0) && mean(1) > 5 * mean(2), "{:?}", [0, 1, 2].map(mean));
}

#[test]
fn limit__names_the_place_that_does_not_rest_and_keeps_the_state() {
    let params = Params { max_iterations: 3, ..Params::new(device(DIODE)) };
    let steps = Cell::new(0);
    let outcome = sequential(&params, &|_| steps.set(steps.get() + 1));
    assert_eq!((outcome.solutions.len(), steps.get()), (1, 3));
    let End::Limit(stuck) = outcome.end() else { panic!("{:?}", outcome.end()) };
    assert_eq!(stuck.equation, Equation::Potential);
    assert!(stuck.change > params.tolerance && stuck.change < 0.1, "{stuck:?}");
    let potential = &outcome.maps.as_ref().unwrap().potential;
    assert!(potential.iter().all(|value| value.is_finite()));
    let text = report(&params.device, &outcome);
    let place = format!("row {}, column {} in layer {}", stuck.row, stuck.col, stuck.layer);
    assert!(text.contains("limit: the potentials stay at ") && text.contains(&place), "{text}");
}

#[test]
fn diverged__a_value_that_is_no_number_leaves_the_state_before() {
    let text = without(DIODE, "sweep") + "sweep anode from 0 to 50 step 50\n";
    let params = Params::new(device(&text));
    let outcome = sequential(&params, &|_| {});
    assert_eq!(outcome.solutions.len(), 2);
    let End::Diverged(stuck) = outcome.end() else { panic!("{:?}", outcome.end()) };
    assert!(!stuck.change.is_finite() && stuck.row < params.device.rows(), "{stuck:?}");
    let maps = outcome.maps.as_ref().unwrap();
    assert!(maps.potential.iter().chain(&maps.quasi_fermi[0]).all(|value| value.is_finite()));
    assert!(report(&params.device, &outcome).contains("(diverged: the "));
}

#[test]
fn files__have_a_line_for_each_thing_and_vtk_has_all_fields() {
    let text = without(DIODE, "sweep") + "sweep anode from 0 to 0.1 step 0.1\n";
    let params = Params::new(device(&text));
    let (device, outcome) = (&params.device, solved(&params));
    let written = |write: &dyn Fn(&mut dyn std::io::Write) -> std::io::Result<()>| {
        let mut bytes = Vec::new();
        write(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    let curve = written(&|to| write_curve(to, device, &outcome));
    let head = "anode_V,cathode_V,anode_A_per_cm,cathode_A_per_cm,iterations,sweeps,end";
    assert_eq!((curve.lines().count(), curve.lines().next()), (3, Some(head)));
    let steps = written(&|to| write_steps(to, &outcome));
    assert_eq!(steps.lines().count(), 1 + outcome.steps.len());
    let rows = written(&|to| write_rows(to, device, &outcome));
    assert!(rows.lines().count() == 1 + device.rows() && rows.contains(",p,"), "{rows}");
    let summary = written(&|to| write_summary(to, device, &outcome));
    assert!(summary.contains("\nend,converged\n"), "{summary}");
    let vtk = written(&|to| write_vtk(to, device, &outcome));
    assert_eq!(vtk.matches("<DataArray").count(), 9);
    let numbers = vtk.lines().filter(|line| line.parse::<f64>().is_ok()).count();
    let (rows, cols) = (device.rows(), device.cols());
    assert_eq!(numbers, 6 * rows * cols + rows + cols + 1);
    let text = report(device, &outcome);
    assert!(text.lines().count() <= 24 && text.lines().all(|l| l.len() <= 80), "{text}");
}
