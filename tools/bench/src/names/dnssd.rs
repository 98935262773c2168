//! The answer of DNS-SD beside the names of weft: a service that is published on one host of a lab
//! until a browser on another host reports it, by Avahi with a daemon on each of the two hosts.

use super::cluster::{Hosts, LIMIT};
use super::{ms, Process};
use anyhow::{ensure, Context, Result};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// The programs, and the Debian package of each.
const PROGRAMS: [(&str, &str); 5] = [
    ("avahi-daemon", "avahi-daemon"),
    ("avahi-browse", "avahi-utils"),
    ("avahi-publish", "avahi-utils"),
    ("dbus-daemon", "dbus-daemon"),
    ("unshare", "util-linux"),
];
/// The type of the services.
const KIND: &str = "_weft._udp";
/// Time between two looks for a daemon.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Returns the file of a program, which may be in a folder of programs for root.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Returns why the programs cannot be run here.
pub fn missing() -> Option<String> {
    let (program, package) = PROGRAMS.iter().find(|(program, _)| find(program).is_none())?;
    Some(format!("dns-sd: {program} is not installed (Debian package {package})"))
}

/// The daemon of a host, and the bus by which programs reach it.
struct Daemon<'a> {
    hosts: &'a Hosts,
    host: usize,
    bus: String,
    _processes: [Process; 2],
}

impl<'a> Daemon<'a> {
    /// Starts bus and daemon of a host, and waits until it answers.
    fn start(hosts: &'a Hosts, host: usize) -> Result<Daemon<'a>> {
        let file = |name: &str| hosts.folder.0.join(format!("dns-sd-{host}.{name}"));
        let bus = format!("unix:path={}", file("bus").display());
        let all = "<allow user=\"*\"/><allow own=\"*\"/><allow send_destination=\"*\"/>\
                   <allow receive_sender=\"*\"/>";
        let of_bus = format!(
            "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN\" \
             \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig>\
             <type>system</type><listen>{bus}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\">{all}</policy></busconfig>\n"
        );
        std::fs::write(file("bus.conf"), of_bus)?;
        std::fs::write(
            file("conf"),
            format!(
                "[server]\nhost-name=weft-{host}\nuse-ipv6=no\nenable-dbus=yes\n\
                 disallow-other-stacks=no\n[publish]\npublish-hinfo=no\npublish-workstation=no\n"
            ),
        )?;
        let mut of_bus = Command::new("dbus-daemon");
        of_bus.arg("--nofork").arg("--config-file").arg(file("bus.conf"));
        // Its lock has one place on a machine, so it gets a folder /run of its own.
        let line = "mount -t tmpfs tmpfs /run && mkdir /run/avahi-daemon && exec \"$@\"";
        let mut daemon = Command::new("unshare");
        daemon.args(["--mount", "sh", "-c", line, "sh"]);
        daemon.arg(find("avahi-daemon").context("finding avahi-daemon")?);
        daemon.args(["--no-drop-root", "--no-chroot", "--no-rlimits", "--file"]).arg(file("conf"));
        daemon.env("DBUS_SYSTEM_BUS_ADDRESS", &bus);
        let begun = Instant::now();
        let of_bus = spawn(hosts, host, of_bus)?;
        while !file("bus").exists() {
            ensure!(begun.elapsed() < LIMIT, "dbus-daemon does not serve");
            std::thread::sleep(POLL_EVERY);
        }
        let _processes = [of_bus, spawn(hosts, host, daemon)?];
        let daemon = Daemon { hosts, host, bus, _processes };
        let mut look = daemon.command("avahi-browse", &["--parsable", "--terminate", KIND]);
        while !look.stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
            ensure!(begun.elapsed() < LIMIT, "avahi-daemon does not serve");
            std::thread::sleep(POLL_EVERY);
        }
        Ok(daemon)
    }

    /// Returns the command of a program of this host that uses the daemon.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("DBUS_SYSTEM_BUS_ADDRESS", &self.bus);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        self.hosts.place(self.host, &mut command);
        command
    }
}

fn spawn(hosts: &Hosts, host: usize, mut command: Command) -> Result<Process> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    hosts.place(host, &mut command);
    let child = command.spawn();
    child.map(Process).with_context(|| format!("starting {:?}", command.get_program()))
}

/// Returns the service that a line of the browser is about, and true if it has come:
/// `+;eth0;IPv4;NAME;_weft._udp;local`.
fn event(line: &str) -> Option<(bool, &str)> {
    let mut fields = line.split(';');
    let is_new = match fields.next()? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    fields.nth(2).map(|name| (is_new, name))
}

/// The lines of a browser, which is ended when this value is dropped.
struct Browser {
    lines: Receiver<String>,
    _process: Process,
}

impl Browser {
    fn start(daemon: &Daemon<'_>) -> Result<Browser> {
        let mut command = daemon.command("avahi-browse", &["--parsable", KIND]);
        let mut child = command.stdout(Stdio::piped()).spawn().context("starting avahi-browse")?;
        let output = child.stdout.take().context("the output of avahi-browse")?;
        let (to, lines) = channel();
        std::thread::spawn(move || {
            let all = BufReader::new(output).lines().map_while(Result::ok);
            all.take_while(|line| to.send(line.clone()).is_ok()).for_each(drop);
        });
        Ok(Browser { lines, _process: Process(child) })
    }

    /// Waits until a service has come (true) or gone.
    fn awaits(&self, name: &str, is_new: bool) -> Result<()> {
        loop {
            let line = self.lines.recv_timeout(LIMIT).context("avahi-browse reports nothing")?;
            if event(&line) == Some((is_new, name)) {
                return Ok(());
            }
        }
    }
}

/// Measures so many times, in ms, from the start of `avahi-publish` on one host to the line of
/// `avahi-browse` on another one. `shown` is called after each.
///
/// # Errors
/// A daemon does not serve, or an event does not come.
pub fn measure(hosts: &Hosts, count: u32, mut shown: impl FnMut()) -> Result<Vec<f64>> {
    let (publisher, subscriber) = (Daemon::start(hosts, 0)?, Daemon::start(hosts, 1)?);
    let browser = Browser::start(&subscriber)?;
    let mut values = Vec::new();
    for n in 0..count {
        let name = format!("event-{n}");
        let begun = Instant::now();
        let mut publish = publisher.command("avahi-publish", &["--service", &name, KIND, "1"]);
        let publish = publish.stdout(Stdio::null()).spawn().context("starting avahi-publish")?;
        let publish = Process(publish);
        browser.awaits(&name, true)?;
        values.push(ms(begun));
        drop(publish);
        browser.awaits(&name, false)?;
        shown();
    }
    Ok(values)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn event__reads_lines_of_the_browser() {
        let line = "+;veth0;IPv4;event-1;_weft._udp;local";
        assert_eq!(event(line), Some((true, "event-1")));
        assert_eq!(event(&line.replace('+', "-")), Some((false, "event-1")));
        assert_eq!(event("=;veth0;IPv4;event-1;_weft._udp;local;a;b;1;"), None);
        assert_eq!(event("+;veth0"), None);
    }
}
