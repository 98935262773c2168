//! Counters of links.

/// Makes the struct of a link's counters. Each is reported under its name behind a prefix.
macro_rules! counters {
    ($(#[$about:meta])* $prefix:literal; $($name:ident),+) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        struct Counters { $($name: u64,)+ }

        impl Counters {
            fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
                $(each(concat!($prefix, stringify!($name)), self.$name);)+
            }
        }
    };
}
