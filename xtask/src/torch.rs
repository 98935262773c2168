//! The suite `torch`: the backend of torch.distributed under torch itself, from PyPI, which is 3 GB
//! with the libraries that its wheel asks for.

use crate::environment::{self, Base, Missing};
use crate::run::{cargo, counted, Outcome};

/// The version whose own tests are run, and what they import.
const PACKAGES: [&str; 4] = ["torch==2.15.0", "numpy", "pytest", "expecttest"];

/// Runs the tests of the package, its examples beside gloo, and torch's own tests of backends.
pub fn suite() -> Outcome {
    let place = crate::root().join("target/torch");
    match environment::install(Base::Alone, &place, &PACKAGES) {
        Ok(()) => {}
        Err(Missing::Means(why)) => return Outcome::skip(format!("skipped torch: {why}")),
        Err(Missing::Refused(why)) => return Outcome::one(false).note(why),
    }
    let mut tests = cargo(&["test", "--package", "weft-cli", "--test", "torch"]);
    tests.env("WEFT_TEST_TORCH", place.join("bin/python")).env("WEFT_TEST_TORCH_OWN", "1");
    counted(&mut tests)
}
