//! The models over shared memory and UDP, each rank a thread.
#![allow(non_snake_case)]

mod actors;
mod attend;
mod jobs;
mod objects;
mod order;
mod ranks;
mod regions;
mod rpc;
mod stopped;
mod together;
