//! Decides if an MPI can use weft here, and names the fix if it cannot.

use super::detect::{Family, Mpi};
use super::probe::{self, Libfabric, Seen};
use super::provider::{self, Provider};
use super::variables::PROVIDER;

/// The oldest libfabric that the provider is made for.
const OLDEST: (u32, u32) = (1, 17);

/// The provider file, or its fault and the fix.
pub type Found = Result<Provider, Fault>;

/// A fault that prevents the use of weft, and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The fault.
    pub why: String,
    /// The fix.
    pub remedy: String,
}

impl Fault {
    fn new(why: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { why: why.into(), remedy: remedy.into() }
    }
}

/// The verdict on an MPI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// A probe saw it load the provider.
    Yes,
    /// The probe failed; the MPI may work.
    Unknown(Fault),
    /// The MPI cannot use weft.
    No(Fault),
}

/// Finds the provider and checks it.
pub fn provider() -> Found {
    let remedy = "install weft and its provider of one version together, or build both: cargo \
                  build --release -p weft-cli -p weft-ofi";
    let found = provider::find().map_err(|why| Fault::new(format!("{why:#}"), remedy))?;
    match probe::provider_fault(&found) {
        Some(why) => Err(Fault::new(format!("{}: {why}", found.file.display()), remedy)),
        None => Ok(found),
    }
}

/// Returns the device that an MPI's library reports.
fn device(library: &str) -> Option<&str> {
    let line = library.lines().find_map(|l| l.split_once("Device:"));
    line.map(|(_, device)| device.trim()).filter(|device| !device.is_empty())
}

/// Returns the verdict on a probe made with the provider in place.
fn judge(mpi: &Mpi, seen: &Seen) -> Fit {
    let other = "pip install mpich gets an MPI that can, in its own folder";
    let library = seen.library.as_deref().unwrap_or_default();
    if let Some(device) = device(library).filter(|d| !d.contains("ofi")) {
        return Fit::No(Fault::new(
            format!("it was built without libfabric (device {device})"),
            other,
        ));
    }
    let Some(fabric) = &seen.libfabric else {
        return match &seen.error {
            Some(why) => Fit::Unknown(Fault::new(
                format!("its library cannot be loaded: {why}"),
                "set its environment first (module load, or its vars.sh)",
            )),
            None if mpi.family.is_open_mpi() && mpi.plugin().is_none() => Fit::No(Fault::new(
                "it was built without libfabric, or that part is not installed (no mca_mtl_ofi)",
                other,
            )),
            None => Fit::Unknown(Fault::new(
                "no libfabric was seen with it: it may be inside its library",
                "try: weft mpi tells after the run whether weft was used",
            )),
        };
    };
    if seen.providers.iter().any(|(name, _)| name == PROVIDER) {
        return Fit::Yes;
    }
    let (major, minor) = fabric.version;
    let at = fabric.path.display();
    if fabric.version < OLDEST {
        let remedy = format!("use an MPI with libfabric {}.{} or newer", OLDEST.0, OLDEST.1);
        return Fit::No(Fault::new(format!("its libfabric {major}.{minor} is too old"), remedy));
    }
    Fit::No(Fault::new(
        format!("its libfabric {major}.{minor} ({at}) does not take the provider"),
        "FI_LOG_LEVEL=info weft mpi ... tells why; a libfabric newer than this weft knows needs a \
         newer weft",
    ))
}

/// Probes an MPI and returns the verdict.
pub fn fit(mpi: &Mpi, provider: &Found) -> (Fit, Seen) {
    let Some(library) = mpi.library() else {
        let names = mpi.family.libraries().join(" or ");
        let why = format!("no {names} was found under {}", mpi.prefix.display());
        let remedy = "give --mpi the mpiexec of the folder where the MPI is installed";
        return (Fit::Unknown(Fault::new(why, remedy)), Seen::default());
    };
    let seen = match probe::mpi(mpi, &library, provider.as_ref().ok()) {
        Ok(seen) => seen,
        Err(why) => {
            let why = format!("looking into {}: {why:#}", library.display());
            let remedy = "repair or reinstall this MPI";
            return (Fit::Unknown(Fault::new(why, remedy)), Seen::default());
        }
    };
    match provider {
        Ok(_) => (judge(mpi, &seen), seen),
        Err(fault) => match judge(mpi, &seen) {
            // Without the provider no other fault can be found.
            Fit::No(own) if seen.libfabric.is_none() => (Fit::No(own), seen),
            _ => (Fit::No(fault.clone()), seen),
        },
    }
}

/// Describes the origin of an MPI's libfabric.
pub fn origin(mpi: &Mpi, fabric: &Libfabric) -> &'static str {
    let own = mpi.prefix != std::path::Path::new("/usr") && fabric.path.starts_with(&mpi.prefix);
    if own {
        "its own"
    } else {
        "the system's"
    }
}

/// Returns advice for users of this family, beyond the variables.
pub fn advice(family: Family) -> Option<&'static str> {
    match family {
        Family::OpenMpi4 => Some(
            "between hosts, Open MPI 4 passes these variables on only with -x NAME for each: \
             `weft mpi` does that",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn mpi(family: Family) -> Mpi {
        let version = "1".into();
        Mpi { family, version, launcher: "/m/bin/mpiexec".into(), prefix: "/m".into() }
    }

    fn seen(library: &str, version: Option<(u32, u32)>, providers: &[&str]) -> Seen {
        Seen {
            library: Some(library.into()),
            libfabric: version
                .map(|v| Libfabric { path: "/m/lib/libfabric.so.1".into(), version: v }),
            providers: providers.iter().map(|p| ((*p).to_owned(), (0, 1))).collect(),
            ..Seen::default()
        }
    }

    fn why(fit: Fit) -> String {
        match fit {
            Fit::Yes => "yes".into(),
            Fit::Unknown(fault) => format!("unknown: {}", fault.why),
            Fit::No(fault) => format!("no: {}", fault.why),
        }
    }

    #[test]
    fn judge__each_cause_is_distinguished() {
        let wheel = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ucx ofi\n";
        let debian = "MPICH Version:\t4.0.2\nMPICH Device:\tch4:ucx\n";
        let open = "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4";
        let (ch, om) = (mpi(Family::Mpich), mpi(Family::OpenMpi4));
        for (mpi, seen, expected) in [
            (&ch, seen(wheel, Some((2, 5)), &["weft"]), "yes"),
            (&om, seen(open, Some((1, 17)), &["weft"]), "yes"),
            (&ch, seen(debian, None, &[]), "no: it was built without libfabric (device ch4:ucx)"),
            (&ch, seen(wheel, Some((1, 10)), &[]), "no: its libfabric 1.10 is too old"),
            (&ch, seen(wheel, None, &[]), "unknown: no libfabric was seen"),
            (&om, seen(open, None, &[]), "no: it was built without libfabric, or"),
        ] {
            let why = why(judge(mpi, &seen));
            assert!(why.starts_with(expected), "{why}");
        }
        let refused = why(judge(&ch, &seen(wheel, Some((2, 5)), &[])));
        assert!(refused.contains("does not take the provider"), "{refused}");
        let broken = Seen { error: Some("libslurm.so.38".into()), ..Seen::default() };
        assert!(why(judge(&ch, &broken)).contains("libslurm"), "the loader's words");
    }

    #[test]
    fn fit__without_a_library_nothing_is_claimed() {
        let (fit, _) = fit(&mpi(Family::Intel), &Err(Fault::new("gone", "")));
        assert!(why(fit).starts_with("unknown: no libmpi.so.12"));
    }
}
