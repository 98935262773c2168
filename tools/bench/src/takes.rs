//! The options of each benchmark. An option without effect on a benchmark is refused.

use super::models::Wanted;
use super::{netns, Args, LinkName, What};
use anyhow::{bail, ensure, Context, Result};
use clap::ValueEnum;
use rustix::fs::{access, Access};
use std::path::Path;

/// Returns the options that this benchmark takes, of those that only some take.
fn takes(what: What) -> &'static [&'static str] {
    match what {
        What::Pingpong | What::Bandwidth | What::Rate | What::Logp => &[
            "--link",
            "--size",
            "--json",
            "--hosts",
            "--transfer",
            "--reliability",
            "--mtu",
            "--receipt",
        ],
        What::Wait => &["--link", "--json", "--hosts", "--reliability", "--receipt"],
        What::Throughput => {
            &["--link", "--size", "--json", "--transfer", "--reliability", "--mtu", "--receipt"]
        }
        What::Multicast => &[
            "--link",
            "--size",
            "--json",
            "--reliability",
            "--mtu",
            "--multicast",
            "--tree",
            "--receipt",
            "--members",
        ],
        What::FetchAdd => &["--link", "--json", "--reliability", "--fetch-add", "--receipt"],
        What::Auth | What::All | What::Ethernet | What::AgainstTcp => {
            &["--link", "--size", "--json"]
        }
        What::Mx | What::Via => &["--link", "--size", "--json", "--out"],
        What::Models => &["--link", "--json", "--table", "--ranks", "--out"],
        What::Barrier => &["--link", "--json", "--ranks"],
        What::Choices => &["--link", "--out"],
        What::Suite => &["--size", "--out", "--situations"],
        What::Agent | What::Names | What::Sockets | What::Apps | What::Paper000 | What::Migrate => {
            &["--json"]
        }
        What::Python | What::Torch => &["--json", "--python"],
        What::Sovia => &["--json", "--out"],
        What::Mpi | What::Collectives | What::Consumers | What::Containers | What::Busy => {
            &["--size", "--json"]
        }
        What::Mxoe => &["--size", "--json", "--out"],
    }
}

fn name(what: What) -> String {
    what.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
}

/// Returns the options that were given, of those that only some benchmarks take.
fn given(args: &Args) -> Vec<&'static str> {
    let mut given = args.choices.given();
    let others = [
        ("--link", !args.link.is_empty()),
        ("--size", !args.options.size.is_empty()),
        ("--json", args.json),
        ("--ranks", !args.ranks.is_empty()),
        ("--hosts", !args.options.reach.hosts.is_empty()),
        ("--table", !args.table.is_empty()),
        ("--out", args.suite.out.is_some()),
        ("--python", args.python.is_some()),
        ("--situations", args.suite.has_situations()),
    ];
    given.extend(others.into_iter().filter_map(|(option, there)| there.then_some(option)));
    given
}

/// Refuses a folder that cannot be made or written, before hours of measuring.
fn check_folder(folder: &Path) -> Result<()> {
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    // Of a relative path the last one is empty: the working directory.
    let above = folder.ancestors().find(is_there).unwrap_or(Path::new("."));
    ensure!(above.is_dir(), "--out {}: {} is no folder", folder.display(), above.display());
    let may = access(above, Access::WRITE_OK | Access::EXEC_OK);
    may.with_context(|| format!("--out {}: writing in {}", folder.display(), above.display()))
}

/// Refuses options that have no effect on the tables of the models that are wanted.
fn check_tables(args: &Args) -> Result<()> {
    let all = |is: fn(&Wanted) -> bool| args.table.iter().all(is);
    ensure!(
        args.options.netns != netns::Mode::Off || !all(|table| table.is_between_hosts()),
        "Figures 12 to 16 are measured between lab hosts only: leave out --netns off"
    );
    ensure!(
        args.ranks.is_empty() || !all(|table| table.is_of_links()),
        "tables V, VI and other have numbers of ranks of their own: leave out --ranks"
    );
    ensure!(
        args.link.is_empty() || args.table.iter().any(|table| table.is_of_links()),
        "VII and 11 are measured over shm, 12 to 16 over packet and agent: leave out --link"
    );
    Ok(())
}

/// Refuses options that have no effect on the benchmark.
pub fn check(args: &Args) -> Result<()> {
    let what = args.what;
    for option in given(args) {
        if takes(what).contains(&option) {
            continue;
        }
        let who = What::value_variants().iter().filter(|&&what| takes(what).contains(&option));
        let who: Vec<String> = who.map(|&what| name(what)).collect();
        let why = match what {
            What::Suite => ": it measures every link",
            What::Agent => ": it compares the link agent with packet",
            What::Containers => ": it compares shm with shm",
            What::Collectives => ": it compares what jobs get by default with the MPIs",
            What::Migrate => ": it compares ranks that can move with CRIU and with other ranks",
            What::Names => ": it measures agents, which talk over UDP",
            What::Apps | What::Python => ": it measures jobs on this host",
            What::Sockets | What::Sovia => ": it measures programs that talk over TCP",
            What::Consumers => ": it compares what such programs get by default with TCP and UDP",
            What::Busy => ": it measures what users get by default beside TCP",
            What::Mpi => ": it compares what MPI programs get by default with TCP",
            What::Choices => ": it measures every choice",
            _ => "",
        };
        let (what, who) = (name(what), who.join(", "));
        bail!("{what} does not take {option}{why}; leave out {option}, which is for {who}");
    }
    if let Some(folder) = &args.suite.out {
        check_folder(folder)?;
    }
    if what == What::Models && !args.table.is_empty() {
        check_tables(args)?;
    }
    if !args.options.reach.hosts.is_empty() {
        let own = |link: &LinkName| matches!(link, LinkName::Shm | LinkName::Agent);
        ensure!(
            !args.link.iter().any(own),
            "--hosts: --link udp, tcp, packet, gso, xdp or auto is measured between hosts"
        );
        ensure!(args.choices.given().is_empty(), "--hosts: choices are compared between lab hosts");
        ensure!(!args.options.loaded, "--loaded loads this host alone: leave it out with --hosts");
        args.options.reach.far()?;
    }
    if what == What::Busy && args.options.loaded {
        bail!("busy has a load of its own: leave out --loaded");
    }
    if args.options.netns == netns::Mode::Off
        && matches!(what, What::Agent | What::Mpi | What::Containers | What::Names | What::Migrate)
    {
        bail!("this is measured between lab hosts only: leave out --netns off");
    }
    if what == What::Barrier {
        ensure!(!args.link.iter().any(|l| l.is_raw()), "barrier takes --link shm or udp");
        ensure!(args.options.netns != netns::Mode::On, "barrier is measured on this host alone");
    }
    if what == What::Auth && args.link.contains(&LinkName::Shm) {
        bail!("only network links authenticate their frames: use --link udp");
    }
    if matches!(what, What::Ethernet | What::AgainstTcp) && args.link.contains(&LinkName::Shm) {
        bail!("shm connects no two hosts: --link packet, gso, xdp, agent, auto or udp");
    }
    for link in super::links(args) {
        args.choices.check(what, link)?;
    }
    Ok(())
}
