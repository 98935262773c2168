//! Faults of the MPIs themselves over libfabric, with any provider, and the workarounds that
//! `docs/guide/mpi.md` names. A test fails here when an MPI has mended its fault, so that the page
//! follows.

use super::harness::{run, Ended, Mpi};
use std::time::Duration;
use weft_conformance::skip;

const ALL: [Mpi; 4] = [Mpi::Mpich, Mpi::Open, Mpi::System, Mpi::Intel];

/// Returns the output of two ranks of a program; `None` if this MPI is not installed.
fn said(mpi: Mpi, program: &str, words: &[&str], settings: &[(&str, &str)]) -> Option<Ended> {
    said_by(2, mpi, (program, words), settings)
}

/// Returns the output of so many ranks of a program.
fn said_by(
    ranks: u32,
    mpi: Mpi,
    (program, words): (&str, &[&str]),
    settings: &[(&str, &str)],
) -> Option<Ended> {
    let job = || {
        let mut command = mpi.weft("mpi")?;
        command.args(["--all-through-weft", "-n", &ranks.to_string()]);
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

/// Checks that memory with gaps gets the right values in the manner `how`.
fn strided_right(mpi: Mpi, how: &str, settings: &[(&str, &str)]) {
    if let Some(ended) = said(mpi, "strided", &[how], settings) {
        ended.expect("strided: right");
    }
}

/// Checks that it gets wrong ones, as in all versions of this MPI that were tried.
fn strided_wrong(mpi: Mpi, how: &str) {
    if let Some(ended) = said(mpi, "strided", &[how], &[]) {
        let mended = ended.said.contains("strided: right");
        assert!(!mended, "{mpi:?} has mended {how}: take it out of docs/guide/mpi.md and here");
        ended.expect("strided: wrong");
    }
}

/// Open MPI leaves a message that was received after a matched probe in its own buffer, and never
/// copies it to memory with gaps.
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

/// MPICH copies a get's bytes to memory with gaps when the window is flushed, not when the request
/// ends.
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

/// Checks that wildcard receives, probes and sends of this mode have an end, with probed messages
/// received in the manner `how`.
fn matched_ends(mpi: Mpi, how: &str, mode: &str) {
    if let Some(ended) = said_by(3, mpi, ("matched", &[how, mode, "1"]), &[]) {
        ended.expect("matched: passed");
    }
}

/// Open MPI 4.1 acknowledges a synchronous send when its receive ends, but forgets it in a receive
/// after a matched probe (`ompi_mtl_ofi_mrecv_callback`).
#[test]
fn matched__synchronous_sends_of_open_mpi_4_have_no_end() {
    for how in ["mrecv", "imrecv"] {
        for mpi in [Mpi::Mpich, Mpi::Open, Mpi::Intel] {
            matched_ends(mpi, how, "synchronous");
        }
        if let Some(ended) = said_by(3, Mpi::System, ("matched", &[how, "synchronous", "1"]), &[]) {
            let mended = ended.said.contains("matched: passed");
            assert!(!mended, "mended {how}: take it out of docs/guide/mpi.md and from here");
            ended.expect("sends have no end");
        }
    }
}

#[test]
fn matched__ways_around_synchronous_sends() {
    for mpi in ALL {
        for (how, mode) in [("recv", "synchronous"), ("mrecv", "standard"), ("imrecv", "standard")]
        {
            matched_ends(mpi, how, mode);
        }
    }
}

/// Open MPI 4.1 crashes inside of `MPI_Cancel`, before it calls the provider.
#[test]
fn withdrawn__a_cancelled_send_ends_open_mpi_4() {
    for mpi in [Mpi::Mpich, Mpi::Open, Mpi::Intel] {
        if let Some(ended) = said(mpi, "withdrawn", &[], &[]) {
            ended.expect("withdrawn: passed");
        }
    }
    if let Some(ended) = said(Mpi::System, "withdrawn", &[], &[]) {
        let mended = ended.said.contains("withdrawn: passed");
        assert!(!mended, "mended: take it out of docs/guide/mpi.md and from here");
        assert!(ended.said.contains("Segmentation fault"), "{}", ended.said);
    }
}

#[test]
fn confined__without_eventfd_every_mpi_works() {
    for mpi in ALL {
        if let Some(ended) = said(mpi, "confined", &["eventfd"], &[]) {
            ended.expect("confined: passed");
        }
    }
}

/// The hwloc of MPICH, and of Open MPI 4.1 once that chooses among libfabric's providers, asks for
/// its cores again and again, with ever more room for the answer.
#[test]
fn confined__without_sched_getaffinity_some_do_not_start() {
    for mpi in [Mpi::Open, Mpi::Intel] {
        if let Some(ended) = said(mpi, "confined", &["affinity"], &[]) {
            ended.expect("confined: passed");
        }
    }
    for mpi in [Mpi::Mpich, Mpi::System] {
        if let Some(ended) = said(mpi, "confined", &["affinity"], &[]) {
            let mended = ended.said.contains("confined: passed");
            assert!(
                !mended,
                "{mpi:?} has mended it: take it out of docs/guide/mpi.md and from here"
            );
            assert!(ended.said.contains("confined: no end"), "{}", ended.said);
        }
    }
}
