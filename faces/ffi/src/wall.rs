//! The border between C and the functions of an interface.

use std::ffi::CStr;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Returns a text that ends with a 0 as C has it; an empty one for any other text.
pub const fn name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

/// Runs the body of a function of a library. No panic unwinds into C: the log names the library,
/// and the result is `None`.
#[inline]
pub fn guarded<R>(library: &str, body: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(body));
    if result.is_err() {
        report(library);
    }
    result.ok()
}

#[cold]
fn report(library: &str) {
    // The panic may have come from the log.
    let _told = catch_unwind(|| {
        log::error!("{library} panicked: please report this with the lines above");
    });
}

/// Defines functions that C calls, for `call`, which gets the name of each, the handle in brackets
/// if there is one, and the body: it lets no panic out, and returns what C gets.
///
/// ```text
/// weft_ffi::exports! { call -> Return;
///     /// Says what the function does.
///     fn mx_test[endpoint](request: Place<Handle>) { complete::test(endpoint, request) }
/// }
/// ```
#[macro_export]
macro_rules! exports {
    ($call:ident -> $code:ty; $($rest:tt)+) => {
        $crate::exports! { @next $call $code; $($rest)+ }
    };
    (@next $call:ident $code:ty;) => {};
    (@next $call:ident $code:ty; $(#[$meta:meta])+ fn $($rest:tt)+) => {
        $crate::exports! { @one $call $code; [] [$(#[$meta])+] $($rest)+ }
    };
    (@next $call:ident $code:ty; $(#[$meta:meta])+ $safety:ident fn $($rest:tt)+) => {
        $crate::exports! { @one $call $code; [$safety] [
            $(#[$meta])+
            ///
            /// # Safety
            /// Lists and memory have the lengths that the caller says.
        ] $($rest)+ }
    };
    (
        @one $call:ident $code:ty; [$($safety:ident)?] [$(#[$meta:meta])+]
        $name:ident $([$handle:ident])? ($($arg:ident: $type:ty),* $(,)?) $body:block $($rest:tt)*
    ) => {
        $(#[$meta])+
        #[no_mangle]
        pub $($safety)? extern "C" fn $name($($handle: usize,)? $($arg: $type),*) -> $code {
            const NAME: &::std::ffi::CStr = $crate::wall::name(concat!(stringify!($name), "\0"));
            $call(NAME, [$($handle,)? 0][0], || $body)
        }
        $crate::exports! { @next $call $code; $($rest)* }
    };
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn name__ends_with_its_0() {
        assert_eq!((name("mx_test\0"), name("mx_test")), (c"mx_test", c""));
    }

    #[test]
    fn guarded__a_panic_ends_here() {
        assert_eq!(guarded("a test", || 7), Some(7));
        assert_eq!(guarded("a test", || -> u32 { panic!("wanted") }), None);
    }
}
