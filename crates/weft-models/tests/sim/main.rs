//! The models on simulated hosts, under faults drawn from seeds.
#![allow(non_snake_case)]

mod rpc;
mod swarm;
