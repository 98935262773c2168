//! The models on simulated hosts, under faults drawn from seeds.
#![allow(non_snake_case)]

mod actors;
mod again;
mod jobs;
mod objects;
mod order;
mod regions;
mod rpc;
mod swarm;
mod together;
mod unusual;
mod views;
