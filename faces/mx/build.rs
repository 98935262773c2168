//! Link options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs of the time need a name without a version.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmyriexpress.so");
    // Its threads may run after `dlclose`: the library stays mapped.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
