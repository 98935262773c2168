//! The solutions of devsim, which uses Newton's method, on the same grid with the same figures.
#![allow(non_snake_case)]

use serde_json::{json, Value};
use std::path::{Path, PathBuf};
use std::process::Command;
use weft_conformance::skip;
use weft_dd::{sequential, Device, End, Outcome, Params, CHARGE, DIODE, LASER, VACUUM};

/// The libraries of linear algebra that devsim loads.
const LIBRARIES: &str = "libblas.so.3:liblapack.so.3";

/// Returns a Python that has devsim: that of `WEFT_TEST_DEVSIM`, or the one that `cargo xtask test`
/// makes. `None`, with the reason printed, without one.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/devsim/bin/python");
    let python = std::env::var_os("WEFT_TEST_DEVSIM").map_or(own, PathBuf::from);
    let mut command = Command::new(&python);
    let said = command.args(["-c", "import devsim"]).env("DEVSIM_MATH_LIBS", LIBRARIES).output();
    if said.is_ok_and(|said| said.status.success()) {
        return Some(python);
    }
    skip(&format!(
        "{} has no devsim, or there is no {LIBRARIES}: `cargo xtask test` installs them, or \
         WEFT_TEST_DEVSIM names a Python",
        python.display()
    ));
    None
}

fn nodes(device: &Device) -> impl Iterator<Item = (usize, usize)> + '_ {
    (0..device.rows()).flat_map(|row| (0..device.cols()).map(move |col| (row, col)))
}

/// Returns the device as the program in Python reads it.
fn described(device: &Device) -> Value {
    let row = |row: usize| {
        let layer = device.layer(row).unwrap();
        let m = &device.materials[layer.material];
        json!({
            "permittivity": m.permittivity, "gap": m.gap, "affinity": m.affinity,
            "states": m.states, "mobility": m.mobility, "lifetime": m.lifetime,
            "fermi": layer.degenerate,
        })
    };
    let contact = |(at, contact): (usize, &weft_dd::Contact)| {
        let of = nodes(device).filter(|(row, col)| device.contact(*row, *col) == Some(at));
        let all: Vec<usize> = of.map(|(row, col)| row * device.cols() + col).collect();
        json!({ "name": contact.name, "nodes": all })
    };
    json!({
        "thermal": device.thermal(), "charge": CHARGE, "vacuum": VACUUM,
        "x": device.x, "y": device.y, "voltages": device.voltages(),
        "rows": (0..device.rows()).map(row).collect::<Vec<_>>(),
        "doping": nodes(device).map(|(row, col)| device.doping(row, col)).collect::<Vec<_>>(),
        "contacts": device.contacts.iter().enumerate().map(contact).collect::<Vec<_>>(),
    })
}

/// Returns devsim's solutions.
fn by_devsim(name: &str, device: &Device, python: &Path) -> Value {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let [given, found] = ["given", "found"].map(|kind| folder.join(format!("{name}-{kind}.json")));
    std::fs::write(&given, described(device).to_string()).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/devsim_peer.py");
    let mut command = Command::new("timeout");
    command.arg("300").arg(python).arg(program).args([&given, &found]);
    let out = command.env("DEVSIM_MATH_LIBS", LIBRARIES).output().unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    let last: Vec<&str> = said.lines().rev().take(20).collect();
    assert!(out.status.success(), "{last:?}");
    serde_json::from_str(&std::fs::read_to_string(found).unwrap()).unwrap()
}

/// Compares the potentials within 1e-6 V, and the currents within 1e-4 where devsim's have so many
/// digits: there both of its contacts agree.
fn assert_agrees(name: &str, text: &str, least: usize) {
    let Some(python) = python() else { return };
    let params = Params::new(Device::read(&mut text.as_bytes()).unwrap());
    let outcome: Outcome = sequential(&params, &|_| {});
    assert_eq!(*outcome.end(), End::Converged);
    let device = &params.device;
    let found = by_devsim(name, device, &python);
    let (mut compared, mut largest) = (0, 0.0f64);
    for (own, peer) in outcome.solutions.iter().zip(found["solutions"].as_array().unwrap()) {
        let currents: Vec<f64> =
            peer["currents"].as_array().unwrap().iter().map(|c| c.as_f64().unwrap()).collect();
        let size = currents.iter().fold(0.0f64, |size, current| size.max(current.abs()));
        if currents.iter().sum::<f64>().abs() > 1e-5 * size {
            assert!(size < 1e-8, "devsim's currents do not add up to nothing: {currents:?}");
            continue;
        }
        compared += 1;
        for (own, peer) in own.currents.iter().zip(currents) {
            let off = (own / peer - 1.0).abs();
            assert!(off < 1e-4, "{own} and {peer}");
            largest = largest.max(off);
        }
    }
    assert!(compared >= least, "{compared} solutions have currents of enough digits");
    let last = &found["solutions"][outcome.solutions.len() - 1]["potential"];
    let own = outcome.maps.unwrap().potential;
    let both = own.iter().zip(last.as_array().unwrap());
    let apart = both.map(|(own, peer)| (own - peer.as_f64().unwrap()).abs()).fold(0.0, f64::max);
    assert!(apart < 1e-6, "{apart} V apart");
    let (seconds, theirs) = (outcome.elapsed.as_secs_f64(), &found["seconds"]);
    println!(
        "{name}: {compared} currents within {largest:.1e}, potentials within {apart:.1e} V; \
         {seconds:.2} s, devsim {theirs} s of processor time"
    );
}

#[test]
fn diode__has_devsims_currents_and_potentials() {
    assert_agrees("diode", DIODE, 3);
}

#[test]
fn laser__has_devsims_currents_and_potentials() {
    // Python computes the integrals of the degenerate layer there: fewer voltages.
    let lines = LASER.lines().filter(|line| !line.starts_with("sweep"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    assert_agrees("laser", &format!("{text}sweep anode from 0 to 1.4 step 0.2\n"), 3);
}

#[test]
fn equilibrium__has_devsims_potentials() {
    for (name, text) in [("diode-0", DIODE), ("laser-0", LASER)] {
        let lines = text.lines().filter(|line| !line.starts_with("sweep"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        assert_agrees(name, &text, 0);
    }
}
