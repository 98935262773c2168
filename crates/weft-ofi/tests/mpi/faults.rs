//! Faults of the MPIs' own ways over libfabric, whatever its provider, and the ways around them
//! that `docs/mpi.md` names. A fault that an MPI has mended fails here, so that the page follows.

use super::harness::{run, Ended, Mpi};
use std::time::Duration;
use weft_conformance::skip;

const ALL: [Mpi; 4] = [Mpi::Mpich, Mpi::Open, Mpi::System, Mpi::Intel];

/// What two ranks say of a program that goes well or not; `None` where this MPI is not there.
fn said(mpi: Mpi, program: &str, words: &[&str], settings: &[(&str, &str)]) -> Option<Ended> {
    let job = || {
        let mut command = mpi.weft("mpi")?;
        command.args(["--all-through-weft", "-n", "2"]);
        settings.iter().for_each(|(name, value)| {
            command.arg("--env").arg(format!("{name}={value}"));
        });
        command.arg(mpi.build(program)?).args(words);
        Ok::<_, String>(command)
    };
    match job() {
        Ok(command) => Some(run(command, Duration::from_secs(150))),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

/// Memory with gaps gets what it should, this way.
fn strided_right(mpi: Mpi, how: &str, settings: &[(&str, &str)]) {
    if let Some(ended) = said(mpi, "strided", &[how], settings) {
        ended.expect("strided: right");
    }
}

/// It does not, in all versions of this MPI that were tried.
fn strided_wrong(mpi: Mpi, how: &str) {
    if let Some(ended) = said(mpi, "strided", &[how], &[]) {
        let mended = ended.said.contains("strided: right");
        assert!(!mended, "{mpi:?} has mended {how}: take that out of docs/mpi.md and from here");
        ended.expect("strided: wrong");
    }
}

/// Open MPI leaves a message that was received after a matched probe in the memory that it was
/// received in, and never spreads it.
#[test]
fn strided__matched_receives_of_open_mpi_deliver_nothing() {
    for mpi in [Mpi::Open, Mpi::System] {
        for how in ["mrecv", "imrecv"] {
            strided_wrong(mpi, how);
        }
    }
    for mpi in [Mpi::Mpich, Mpi::Intel] {
        for how in ["mrecv", "imrecv"] {
            strided_right(mpi, how, &[]);
        }
    }
}

#[test]
fn strided__ways_around_matched_receives() {
    for mpi in ALL {
        for how in ["recv", "unpack"] {
            strided_right(mpi, how, &[]);
        }
    }
}

/// MPICH spreads what it got only when the window is flushed, not when the request has ended.
#[test]
fn strided__a_get_with_a_request_of_mpich_has_not_ended() {
    strided_wrong(Mpi::Mpich, "rget");
    for mpi in [Mpi::Open, Mpi::System, Mpi::Intel] {
        strided_right(mpi, "rget", &[]);
    }
}

#[test]
fn strided__ways_around_a_get_with_a_request() {
    for mpi in ALL {
        for how in ["get", "flush"] {
            strided_right(mpi, how, &[]);
        }
    }
    strided_right(Mpi::Mpich, "rget", &[("MPIR_CVAR_CH4_IOV_DENSITY_MIN", "0")]);
}

/// Open MPI 4.1 ends inside of `MPI_Cancel`, before the provider hears of it.
#[test]
fn withdrawn__a_cancelled_send_ends_open_mpi_4() {
    for mpi in [Mpi::Mpich, Mpi::Open, Mpi::Intel] {
        if let Some(ended) = said(mpi, "withdrawn", &[], &[]) {
            ended.expect("withdrawn: passed");
        }
    }
    if let Some(ended) = said(Mpi::System, "withdrawn", &[], &[]) {
        let mended = ended.said.contains("withdrawn: passed");
        assert!(!mended, "mended: take it out of docs/mpi.md and from here");
        assert!(ended.said.contains("Segmentation fault"), "{}", ended.said);
    }
}
