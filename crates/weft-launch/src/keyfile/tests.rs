#![allow(non_snake_case)]
use super::*;
use std::os::unix::fs::symlink;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = format!("weft-key-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, text: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join("key");
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn parse__is_the_reverse_of_format_and_refuses_junk() {
    let key: Key = std::array::from_fn(|i| i as u8);
    let digits = format(&key);
    assert_eq!(digits.len(), 64);
    assert_eq!(parse(&digits), Some(key));
    assert_eq!(parse(&format!(" {}\n", digits.to_uppercase())), Some(key));
    let zeros = "0".repeat(64);
    let spread = format!("{} {}", &digits[..32], &digits[32..]);
    for bad in ["", "abc", &digits[2..], &format!("{digits}00"), &zeros, &spread] {
        assert_eq!(parse(bad), None, "{bad:?}");
    }
}

#[test]
fn path_in__absolute_folders_only() {
    let with = |config: Option<&str>, home: Option<&str>| {
        path_in(|name| (if name == "HOME" { home } else { config }).map(PathBuf::from))
    };
    assert_eq!(with(Some("/c"), Some("/h")).unwrap(), Path::new("/c/weft/key"));
    assert_eq!(with(None, Some("/h")).unwrap(), Path::new("/h/.config/weft/key"));
    assert_eq!(with(Some("relative"), Some("/h")).unwrap(), Path::new("/h/.config/weft/key"));
    assert!(matches!(with(Some(""), None), Err(KeyError::NoFolder)));
}

#[test]
fn load_or_create__makes_a_file_for_the_owner_alone_and_keeps_it() {
    let folder = Folder::new("made");
    let path = folder.0.join("a/b/key");
    assert!(matches!(load(&path), Err(KeyError::Missing(_))));
    let key = load_or_create(&path).unwrap();
    assert_eq!(load_or_create(&path).unwrap(), key);
    assert_eq!(load(&path).unwrap(), key);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let beside = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "nothing is left beside it");
}

#[test]
fn load_or_create__makes_no_home() {
    let folder = Folder::new("homeless");
    let home = folder.0.join("home");
    let refused = load_or_create(&home.join(".config/weft/key"));
    assert!(matches!(refused, Err(KeyError::System { .. })), "{refused:?}");
    assert!(!home.exists());
}

#[test]
fn load_or_create__all_that_start_at_once_get_one_key() {
    let folder = Folder::new("race");
    for round in 0..20 {
        let path = folder.0.join(format!("{round}/key"));
        let start = std::sync::Barrier::new(8);
        let keys: Vec<Key> = std::thread::scope(|scope| {
            let one = || {
                start.wait();
                load_or_create(&path).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
    }
}

#[test]
fn load__refuses_what_others_may_know() {
    let folder = Folder::new("exposed");
    let digits = format(&[7; KEY_LEN]);
    for mode in [0o640, 0o604, 0o620, 0o666] {
        let path = folder.file(digits.as_bytes(), mode);
        let error = load(&path).unwrap_err();
        assert!(matches!(error, KeyError::Exposed { mode: m, .. } if m == mode), "{error}");
        assert!(error.to_string().contains("chmod 600"), "{error}");
        assert!(load_or_create(&path).is_err(), "it is not replaced");
    }
    for mode in [0o600, 0o400, 0o700] {
        assert_eq!(load(&folder.file(digits.as_bytes(), mode)).unwrap(), [7; KEY_LEN]);
    }
}

#[test]
fn check__a_file_of_another_user_is_refused() {
    let folder = Folder::new("foreign");
    let path = folder.file(format(&[7; KEY_LEN]).as_bytes(), 0o600);
    let (meta, user) = (std::fs::metadata(&path).unwrap(), geteuid().as_raw());
    assert!(check(&path, &meta, user).is_ok());
    let error = check(&path, &meta, user + 1).unwrap_err();
    assert!(matches!(error, KeyError::Foreign { owner, .. } if owner == user), "{error}");
}

#[test]
fn load__anything_but_a_key_is_an_error_that_says_what_to_do() {
    let folder = Folder::new("junk");
    let long = "7".repeat(100_000);
    for junk in [&b""[..], b"hello", &[0xff; 64], &[b'0'; 64], long.as_bytes()] {
        let path = folder.file(junk, 0o600);
        let error = load(&path).unwrap_err();
        assert!(matches!(error, KeyError::Malformed(_)), "{error}");
        assert!(error.to_string().contains("remove it"), "{error}");
    }
    assert!(matches!(load(&folder.0), Err(KeyError::Malformed(_))));
    let path = folder.0.join("key/below");
    assert!(matches!(load(&path), Err(KeyError::System { .. })), "a file is no folder");
}

#[test]
fn load__without_a_descriptor_names_the_limit() {
    let source = std::io::Error::from_raw_os_error(libc::EMFILE);
    let error = system("read the key file", Path::new("key"), source);
    assert!(error.to_string().contains("ulimit -n"), "{error}");
}

#[test]
fn load__follows_a_link_and_names_a_dangling_one() {
    let folder = Folder::new("link");
    let path = folder.file(format(&[9; KEY_LEN]).as_bytes(), 0o600);
    let link = folder.0.join("link");
    symlink(&path, &link).unwrap();
    assert_eq!(load(&link).unwrap(), [9; KEY_LEN]);
    std::fs::remove_file(&path).unwrap();
    assert!(load_or_create(&link).is_err(), "where the link points to is the user's affair");
}
