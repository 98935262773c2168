//! What an MPI must be told so that it uses weft.

use super::detect::Family;
use std::path::Path;

/// What a user chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// `WEFT_LINK`.
    pub link: Option<String>,
    /// Ranks of one host use weft too, not the MPI's own shared memory.
    pub all_through_weft: bool,
}

/// The provider's name.
pub const PROVIDER: &str = "weft";

/// Variables and their values, for every process of the job. `folder` holds the provider.
pub fn variables(family: Family, folder: &Path, choice: &Choice) -> Vec<(String, String)> {
    let folder = folder.display().to_string();
    let mut all = vec![("FI_PROVIDER_PATH", folder.as_str()), ("FI_PROVIDER", PROVIDER)];
    let everything = choice.all_through_weft;
    match family {
        Family::Mpich => {
            // Its other network module would take no provider at all.
            all.push(("MPIR_CVAR_CH4_NETMOD", "ofi"));
            if everything {
                all.push(("MPIR_CVAR_NOLOCAL", "1"));
            }
        }
        Family::OpenMpi4 | Family::OpenMpi5 => {
            all.push(("OMPI_MCA_pml", "cm"));
            all.push(("OMPI_MCA_mtl", "ofi"));
            all.push(("OMPI_MCA_mtl_ofi_provider_include", PROVIDER));
            if everything {
                // Messages go through weft anyway; this is for one-sided and collective operations.
                all.push(("OMPI_MCA_btl", "self,ofi"));
                all.push(("OMPI_MCA_coll", "^sm"));
            }
            // Debian leaves out the component that does one-sided operations by messages, without
            // which there are none between hosts; ucx complains on each window.
            all.push(("OMPI_MCA_osc", if everything { "^sm,ucx" } else { "^ucx" }));
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

/// Variables that contradict ours and must not be set.
pub fn contradicting(family: Family) -> &'static [&'static str] {
    // To include one provider and to exclude others are refused together.
    match family.is_open_mpi() {
        true => &["OMPI_MCA_mtl_ofi_provider_exclude", "OMPI_MCA_opal_common_ofi_provider_exclude"],
        false => &[],
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
    fn variables__each_family_is_told_in_its_own_words() {
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
        assert_eq!(value(Family::OpenMpi4, &usual, "OMPI_MCA_osc").as_deref(), Some("^ucx"));
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
