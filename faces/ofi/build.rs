//! Link options of the provider's shared object.

fn main() {
    // Destructors of thread-local values run after `dlclose`: the object must stay mapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
