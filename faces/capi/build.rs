//! Sets the name by which programs load the C library: it changes when they have to be built again.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libweft.so.0");
}
