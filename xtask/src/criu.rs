//! CRIU for the tests of ranks that move: the system's, or one of Debian's next release, unpacked
//! below `target` with the libraries that it needs, and started by the loader that belongs to them.

use crate::environment::Missing;
use crate::run::{output_of, succeeds};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variable that names CRIU to the tests.
pub const VARIABLE: &str = "WEFT_TEST_CRIU";

/// The suite of Debian that has a version that is new enough.
const SUITE: &str = "sid";

/// True if this CRIU is new enough.
fn is_new(criu: &Path) -> bool {
    let said = output_of(Command::new(criu).arg("--version")).unwrap_or_default();
    let version = said.lines().find_map(|line| line.strip_prefix("Version: ")).unwrap_or("");
    let mut numbers = version.split('.').map(|part| part.trim().parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(4), Some(2))
}

/// Returns the site of packages that this system uses.
fn site() -> Option<String> {
    let mut ask = Command::new("apt-get");
    ask.args(["indextargets", "--format", "$(SITE) $(ORIGIN) $(COMPONENT)"]);
    let all = output_of(&mut ask)?;
    let of_debian = all.lines().find(|line| line.ends_with(" Debian main"))?;
    Some(of_debian.split(' ').next()?.to_owned())
}

/// An apt that keeps all that it knows in a folder, and changes nothing of the system.
struct Apart<'a>(&'a Path);

impl Apart<'_> {
    fn prepare(&self, site: &str) -> std::io::Result<()> {
        for part in ["state/lists/partial", "cache/archives/partial", "etc", "packages"] {
            fs::create_dir_all(self.0.join(part))?;
        }
        let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let line = format!("deb [signed-by={keys}] {site} {SUITE} main\n");
        fs::write(self.0.join("etc/sources.list"), line)?;
        fs::write(self.0.join("status"), "")
    }

    fn apt(&self, words: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        let at = |part: &str| self.0.join(part).display().to_string();
        for (name, value) in [
            ("Dir::Etc", at("etc")),
            ("Dir::Etc::sourcelist", at("etc/sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".into()),
            ("Dir::State", at("state")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", at("cache")),
        ] {
            command.args(["-o", &format!("{name}={value}")]);
        }
        command.args(words).current_dir(self.0.join("packages")).stderr(Stdio::null());
        command
    }
}

/// Returns the script that starts the unpacked CRIU.
fn script(root: &Path) -> Option<String> {
    let usr = root.join("usr");
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = usr.join("lib").join(triplet);
    let is_loader = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
    };
    let files = fs::read_dir(&libraries).ok()?.flatten().map(|entry| entry.path());
    let loader = files.into_iter().find(is_loader)?;
    Some(format!(
        "#!/bin/sh\nexec {} --library-path {} {} \"$@\"\n",
        loader.display(),
        libraries.display(),
        usr.join("sbin/criu").display()
    ))
}

fn unpack(folder: &Path) -> Result<PathBuf, Missing> {
    let means = |why: &str| Missing::Means(format!("{why} (CRIU 4.2 or later)"));
    let site = site().ok_or_else(|| means("this system has no site of Debian's packages"))?;
    let apart = Apart(folder);
    apart.prepare(&site).map_err(|why| means(&why.to_string()))?;
    if !succeeds(apart.apt(&["update", "-qq"]).stdout(Stdio::null())) {
        return Err(means("the site of packages cannot be reached"));
    }
    let plan = output_of(&mut apart.apt(&["install", "-s", "--no-install-recommends", "criu"]));
    let plan = plan.ok_or_else(|| means("Debian's packages do not fit each other"))?;
    let needed: Vec<&str> =
        plan.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next()).collect();
    let words = [&["download", "-qq"], &needed[..]].concat();
    if !succeeds(apart.apt(&words).stdout(Stdio::null())) {
        return Err(means("packages cannot be fetched"));
    }
    let root = folder.join("root");
    for package in fs::read_dir(folder.join("packages")).into_iter().flatten().flatten() {
        let mut unpack = Command::new("dpkg-deb");
        if !succeeds(unpack.arg("-x").arg(package.path()).arg(&root)) {
            return Err(means("a package cannot be unpacked"));
        }
    }
    let criu = folder.join("criu");
    let text = script(&root).ok_or_else(|| means("the packages have no loader"))?;
    fs::write(&criu, text).map_err(|why| means(&why.to_string()))?;
    fs::set_permissions(&criu, fs::Permissions::from_mode(0o755))
        .map_err(|why| means(&why.to_string()))?;
    Ok(criu)
}

/// Returns a CRIU that is new enough, and unpacks one if the system has none.
///
/// # Errors
/// There is none, and none can be fetched.
pub fn find(folder: &Path) -> Result<PathBuf, Missing> {
    let own = folder.join("criu");
    if let Some(there) = [PathBuf::from("criu"), own].into_iter().find(|criu| is_new(criu)) {
        return Ok(there);
    }
    println!("fetching CRIU into {}", folder.display());
    let criu = unpack(folder)?;
    match is_new(&criu) {
        true => Ok(criu),
        false => Err(Missing::Means("the fetched CRIU does not start".into())),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_new__a_program_that_is_not_there_is_not() {
        assert!(!is_new(Path::new("/nonexistent/criu")));
    }
}
