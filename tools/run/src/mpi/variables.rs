//! The variables that make an MPI use weft.

use super::detect::Family;
use std::path::Path;

/// The user's choices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Value of `WEFT_LINK`.
    pub link: Option<String>,
    /// True: ranks of one host use weft too, not the MPI's own shared memory.
    pub all_through_weft: bool,
}

/// Name of the provider.
pub const PROVIDER: &str = "weft";

/// Returns variables and their values, for every process of the job. `folder` holds the provider.
pub fn variables(family: Family, folder: &Path, choice: &Choice) -> Vec<(String, String)> {
    let folder = folder.display().to_string();
    let mut all = vec![("FI_PROVIDER_PATH", folder.as_str()), ("FI_PROVIDER", PROVIDER)];
    let everything = choice.all_through_weft;
    match family {
        Family::Mpich => {
            // MPICH's other network module uses no provider.
            all.push(("MPIR_CVAR_CH4_NETMOD", "ofi"));
            if everything {
                all.push(("MPIR_CVAR_NOLOCAL", "1"));
            }
        }
        Family::OpenMpi4 | Family::OpenMpi5 => {
            all.push(("OMPI_MCA_pml", "cm"));
            all.push(("OMPI_MCA_mtl", "ofi"));
            all.push(("OMPI_MCA_mtl_ofi_provider_include", PROVIDER));
            // Messages use weft anyway; these variables are for one-sided and collective
            // operations.
            if everything {
                all.push(("OMPI_MCA_coll", "^sm"));
            }
            all.extend(one_sided(family, everything));
        }
        Family::Intel => {
            all.push(("I_MPI_OFI_PROVIDER", PROVIDER));
            all.push(("I_MPI_FABRICS", if everything { "ofi" } else { "shm:ofi" }));
        }
    }
    if let Some(link) = &choice.link {
        all.push(("WEFT_LINK", link));
    }
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Returns variables for Open MPI's one-sided operations.
fn one_sided(family: Family, everything: bool) -> Vec<(&'static str, &'static str)> {
    // ucx prints an error for each window.
    match (family, everything) {
        // Debian's settings exclude pt2pt, which does one-sided operations by messages; without it
        // there are none between hosts. rdma crashes over Open MPI 4's own shared memory and over
        // libfabric (btl ofi), and has priority over pt2pt in both. sm stays: pt2pt refuses
        // MPI_THREAD_MULTIPLE and shared windows.
        (Family::OpenMpi4, _) => vec![("OMPI_MCA_osc", "^ucx,rdma")],
        // sm alone has windows of shared memory (MPI_Win_allocate_shared); below the 20 of rdma it
        // gets no others.
        (_, true) => vec![
            ("OMPI_MCA_btl", "self,ofi"),
            ("OMPI_MCA_osc", "^ucx"),
            ("OMPI_MCA_osc_sm_priority", "10"),
        ],
        (_, false) => vec![("OMPI_MCA_osc", "^ucx")],
    }
}

/// Variables of Open MPI that choose components beside weft: a value set by the user stays.
const USERS: [&str; 3] = ["OMPI_MCA_btl", "OMPI_MCA_coll", "OMPI_MCA_osc"];

/// Keeps the user's values of those variables, as weft works without ours. Returns notes for the
/// user.
pub fn keep_users(
    set: &mut [(String, String)],
    users: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, ours) in set.iter_mut().filter(|(name, _)| USERS.contains(&name.as_str())) {
        if let Some(value) = users(name).filter(|value| value != ours) {
            notes.push(format!("{name}={value} stays as it is set here (weft's own is {ours})"));
            *ours = value;
        }
    }
    notes
}

/// Returns variables that contradict ours and must not be set.
pub fn contradicting(family: Family) -> &'static [&'static str] {
    match family {
        // Open MPI refuses to include one provider and to exclude others together.
        Family::OpenMpi4 | Family::OpenMpi5 => {
            &["OMPI_MCA_mtl_ofi_provider_exclude", "OMPI_MCA_opal_common_ofi_provider_exclude"]
        }
        // With "none" our variables reach no rank, with "all" MPICH 5 cannot spawn (see `command`).
        Family::Mpich | Family::Intel => &["HYDRA_ENV"],
    }
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;

    fn value(family: Family, choice: &Choice, name: &str) -> Option<String> {
        let all = variables(family, Path::new("/p"), choice);
        assert_eq!(all.iter().filter(|(n, _)| n == name).count().max(1), 1, "{name} once");
        all.into_iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    #[test]
    fn variables__each_family_gets_its_own() {
        let usual = Choice::default();
        for family in [Family::Mpich, Family::OpenMpi4, Family::OpenMpi5, Family::Intel] {
            assert_eq!(value(family, &usual, "FI_PROVIDER_PATH").as_deref(), Some("/p"));
            assert_eq!(value(family, &usual, "FI_PROVIDER").as_deref(), Some("weft"));
            assert_eq!(value(family, &usual, "WEFT_LINK"), None);
            let set = variables(family, Path::new("/p"), &usual);
            let not = contradicting(family);
            assert!(set.iter().all(|(name, _)| !not.contains(&name.as_str())));
        }
        assert_eq!(value(Family::Mpich, &usual, "MPIR_CVAR_CH4_NETMOD").as_deref(), Some("ofi"));
        assert_eq!(value(Family::OpenMpi4, &usual, "OMPI_MCA_mtl").as_deref(), Some("ofi"));
        assert_eq!(value(Family::OpenMpi5, &usual, "OMPI_MCA_osc").as_deref(), Some("^ucx"));
    }

    #[test]
    fn variables__windows_of_shared_memory_stay_with_open_mpi() {
        let choice = Choice { all_through_weft: true, ..Choice::default() };
        for family in [Family::OpenMpi4, Family::OpenMpi5] {
            let osc = value(family, &choice, "OMPI_MCA_osc").unwrap();
            assert!(osc.starts_with('^') && !osc.contains("sm"), "{osc}");
        }
        let below = value(Family::OpenMpi5, &choice, "OMPI_MCA_osc_sm_priority");
        assert!(below.unwrap().parse::<u32>().unwrap() < 20);
    }

    #[test]
    fn variables__open_mpi_4_does_one_sided_operations_without_rdma() {
        for all_through_weft in [false, true] {
            let choice = Choice { all_through_weft, ..Choice::default() };
            let value = |name| value(Family::OpenMpi4, &choice, name);
            assert_eq!(value("OMPI_MCA_osc").as_deref(), Some("^ucx,rdma"));
            assert_eq!(value("OMPI_MCA_btl"), None);
        }
    }

    #[test]
    fn keep_users__their_ways_beside_weft_and_no_others() {
        let choice = Choice { all_through_weft: true, ..Choice::default() };
        let of = |users: fn(&str) -> Option<String>| {
            let mut set = variables(Family::OpenMpi5, Path::new("/p"), &choice);
            let notes = keep_users(&mut set, users);
            (set, notes)
        };
        let (ours, none) = of(|_| None);
        assert!(none.is_empty() && ours == variables(Family::OpenMpi5, Path::new("/p"), &choice));
        let (all, notes) = of(|_| Some("x".into()));
        let theirs: Vec<_> = all.iter().filter(|(_, v)| v == "x").map(|(n, _)| n).collect();
        assert_eq!(theirs, ["OMPI_MCA_coll", "OMPI_MCA_btl", "OMPI_MCA_osc"]);
        assert!(notes.len() == 3 && notes[2].starts_with("OMPI_MCA_osc=x stays"), "{notes:?}");
        let same = of(|name| (name == "OMPI_MCA_coll").then(|| "^sm".into()));
        assert_eq!(same, (ours, none), "what is ours is not worth a word");
    }

    #[test]
    fn variables__links_and_the_way_inside_a_host() {
        let choice = Choice { link: Some("udp".into()), all_through_weft: true };
        assert_eq!(value(Family::Mpich, &choice, "WEFT_LINK").as_deref(), Some("udp"));
        assert_eq!(value(Family::Mpich, &choice, "MPIR_CVAR_NOLOCAL").as_deref(), Some("1"));
        assert_eq!(value(Family::OpenMpi5, &choice, "OMPI_MCA_btl").as_deref(), Some("self,ofi"));
        assert_eq!(value(Family::Intel, &choice, "I_MPI_FABRICS").as_deref(), Some("ofi"));
    }
}
