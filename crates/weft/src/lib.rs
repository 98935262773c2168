//! weft: message passing for the network people already have.
//!
//! [`Job::init`] makes this process a rank of its job (under `weft run`, `mpiexec`, `srun` or
//! alone);
//! [`Job::world`] is the group of all ranks. [`Endpoint`] is the interface below.
#![deny(unsafe_code)]
#![warn(missing_docs)]

/// Has `Debug` of an error give its text, which is read where `main` returns it or it is unwrapped.
#[macro_export]
#[doc(hidden)]
macro_rules! readable {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub mod calibration;
pub mod choices;
pub mod clock;
pub mod counters;
pub mod endpoint;
pub mod group;
pub mod job;
pub mod keyfile;
pub mod launch;
pub mod port;
mod selflink;
pub mod settings;
pub mod shared;

pub use calibration::Calibration;
pub use choices::Choices;
pub use clock::Clock;
pub use endpoint::{ActiveMessage, Completed, CompletionQueue};
pub use endpoint::{ConnectError, Endpoint, Operation, Status};
pub use group::{Element, Group, GroupError, Op, Started, Tree};
pub use job::{Job, JobError, Links};
pub use selflink::SelfLink;
pub use shared::{Cancel, SharedEndpoint, SharedJob};
pub use weft_core::engine::types::{AtomicCode, Completion, OpKind, RecvArgs, Refused, SendArgs};
pub use weft_core::engine::Rights;
pub use weft_core::{Config, EndpointId, OpError, OpId, PeerFailure, PeerId, Reliability, Stats};
pub use weft_link::Address;
