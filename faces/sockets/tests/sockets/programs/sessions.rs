//! Sessions and transfers of files: SSH and FTP.

use super::{good, lacks, port, scratch, serve, some_bytes, with};
use crate::harness::Served;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use weft_conformance::skip;

/// The program of the server, which is to be started by its whole path.
const SSHD: &str = "/usr/sbin/sshd";

fn make_key(file: &Path) {
    let mut make = Command::new("ssh-keygen");
    good(&make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).output().unwrap());
}

#[test]
fn ssh__sessions_and_copies_of_files() {
    if lacks(&[SSHD, "ssh", "scp", "ssh-keygen"]) {
        return;
    }
    // The server's folder for the part of it that has no rights.
    if std::fs::create_dir_all("/run/sshd").is_err() {
        return skip("/run/sshd cannot be made");
    }
    let (agent, port, folder) = (Served::start(), port(), scratch("ssh"));
    let file = |name: &str| folder.join(name).display().to_string();
    let (host, key, conf) = (file("host"), file("key"), file("conf"));
    make_key(&folder.join("host"));
    make_key(&folder.join("key"));
    let text = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nPidFile none\n\
         AuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
         Subsystem sftp internal-sftp\n"
    );
    std::fs::write(&conf, text).unwrap();
    let bytes = some_bytes(2_000_000);
    std::fs::write(folder.join("sent"), &bytes).unwrap();
    // A server that starts itself again for each connection, and one that is the connection's.
    for (at, more) in [&[][..], &["-r"]].into_iter().enumerate() {
        let args = [&["-D", "-f", &conf], more].concat();
        let server = serve(&agent, &port, SSHD, &args);
        let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout);
        let user = user.unwrap().trim().to_string();
        let options = [
            "-i",
            &key,
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "BatchMode=yes",
            "-o",
            "LogLevel=ERROR",
            "-F",
            "none",
        ];
        let to = format!("{user}@127.0.0.1");
        let args = [&options[..], &["-p", &port, &to, "echo begin; cat; echo end"]].concat();
        let mut session = with(&agent, "ssh", &args);
        let mut session = session.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut into, sent) = (session.stdin.take().unwrap(), bytes.clone());
        let sender = std::thread::spawn(move || into.write_all(&sent).unwrap());
        let said = session.wait_with_output().unwrap();
        sender.join().unwrap();
        assert!(said.status.success());
        assert!(
            said.stdout == [b"begin\n", &bytes[..], b"end\n"].concat(),
            "{}",
            said.stdout.len()
        );
        let (there, back) = (file(&format!("there{at}")), file(&format!("back{at}")));
        let far = format!("{to}:{there}");
        for pair in [[&file("sent"), &far], [&far, &back]] {
            let args = [&options[..], &["-P", &port], &pair.map(String::as_str)].concat();
            good(&with(&agent, "scp", &args).output().unwrap());
        }
        assert!(std::fs::read(&back).unwrap() == bytes);
        drop(server);
    }
    assert!(agent.counter("sockets_asked") > 0);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn ftp__files_go_both_ways() {
    if lacks(&["vsftpd", "lftp"]) {
        return;
    }
    // The server serves strangers as a user of their own, in a root folder of their own.
    if !good(&Command::new("id").arg("-u").output().unwrap()).trim().eq("0") {
        return skip("vsftpd has to be started by root");
    }
    let (agent, port) = (Served::start(), port());
    let folder = std::env::temp_dir().join(format!("weft-ftp-{}", std::process::id()));
    let (root, up, none) = (folder.join("root"), folder.join("root/up"), folder.join("none"));
    std::fs::create_dir_all(&up).unwrap();
    std::fs::create_dir_all(&none).unwrap();
    std::fs::set_permissions(&up, std::fs::Permissions::from_mode(0o777)).unwrap();
    let bytes = some_bytes(3_000_000);
    std::fs::write(root.join("file"), &bytes).unwrap();
    let text = format!(
        "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\n\
         anonymous_enable=YES\nno_anon_password=YES\nanon_root={}\nwrite_enable=YES\n\
         anon_upload_enable=YES\nanon_world_readable_only=NO\nsecure_chroot_dir={}\n\
         ftp_username=ftp\n",
        root.display(),
        none.display()
    );
    let conf = folder.join("conf");
    std::fs::write(&conf, text).unwrap();
    let server = serve(&agent, &port, "vsftpd", &[conf.to_str().unwrap()]);
    let got = folder.join("got");
    let words = format!(
        "set net:max-retries 1; set net:timeout 60; set ftp:ssl-allow no; set cmd:fail-exit yes; \
         ls; get file -o {0}; cd up; put {0} -o one; put {0} -o two; ls; get one -o {0}.back; bye",
        got.display()
    );
    let to = format!("ftp://127.0.0.1:{port}");
    let args = ["100", "lftp", "-e", &words, "-u", "anonymous,", &to];
    let mut lftp = with(&agent, "timeout", &args);
    good(&lftp.env("HOME", &folder).output().unwrap());
    for file in [&got, &up.join("one"), &up.join("two"), &folder.join("got.back")] {
        assert!(std::fs::read(file).unwrap() == bytes, "{}", file.display());
    }
    drop(server);
    std::fs::remove_dir_all(folder).unwrap();
}
