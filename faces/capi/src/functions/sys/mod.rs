//! The functions that programs call. Each converts its pointers, and goes on in the module of its
//! kind; `weft.h` describes it.

mod collective;
mod job;
mod messages;
mod names;
mod packets;
#[cfg(test)]
mod tests;

/// Defines functions of `weft.h` that return a code: their way in, and their bodies.
macro_rules! functions {
    ($enter:ident: $(
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> c_int $body:block
    )*) => {$(
        #[doc = concat!("`", stringify!($name), "`, as `weft.h` describes it.")]
        ///
        /// # Safety
        /// The caller keeps the rules of `weft.h`: handles are living ones of their types, memory
        /// is as long as it says, and places for results are null or take the result.
        #[no_mangle]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: promised by the caller: each pointer is used as `weft.h` says.
            crate::entry::$enter(|| unsafe { $body }.map(crate::entry::Answer::number))
        }
    )*};
}
use functions;
