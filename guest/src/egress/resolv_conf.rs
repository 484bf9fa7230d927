//! Makes `/etc/resolv.conf` name the guest's name server.
//!
//! Without a network card there is no other. The base template has such a file already; images have what
//! their builder had, or none.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::resolver::ADDRESS;

/// A file that is longer is not ours.
const MAX_BYTES: u64 = 65_536;

/// Writes the file in that directory unless it is right already. A root that is read-only stays as it is.
pub fn ensure(directory: &Path) -> std::io::Result<()> {
    let path = directory.join("resolv.conf");
    let metadata = fs::symlink_metadata(&path);
    let regular = metadata.as_ref().is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES);
    if regular && fs::read_to_string(&path).is_ok_and(|text| names_us(&text)) {
        return Ok(());
    }
    let text = format!("nameserver {ADDRESS}\n");
    let temporary = directory.join(".resolv.conf.cay");
    let _ = fs::remove_file(&temporary);
    // Never through a symlink: it may lead anywhere in the sandbox.
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    if fs::rename(&temporary, &path).is_err() {
        let _ = fs::remove_file(&temporary);
        // A mount, as container engines make it, can be written and not replaced.
        if regular {
            fs::write(&path, text)?;
        }
    }
    Ok(())
}

/// Whether the first name server is ours.
fn names_us(text: &str) -> bool {
    let mut servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.next().is_some_and(|server| server.trim() == ADDRESS.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("cay-resolv-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_file_that_names_others_is_replaced_and_ours_is_kept() {
        let dir = directory("replace");
        let path = dir.join("resolv.conf");
        for before in ["", "nameserver 8.8.8.8\n", "# none\n"] {
            fs::write(&path, before).unwrap();
            ensure(&dir).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 127.0.0.53\n");
        }
        let own = "search example.org\nnameserver 127.0.0.53\noptions timeout:1\n";
        fs::write(&path, own).unwrap();
        ensure(&dir).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_link_is_replaced_and_what_it_leads_to_stays() {
        let dir = directory("link");
        let other = dir.join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, dir.join("resolv.conf")).unwrap();
        std::os::unix::fs::symlink(&other, dir.join(".resolv.conf.cay")).unwrap();
        ensure(&dir).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(fs::symlink_metadata(dir.join("resolv.conf")).unwrap().is_file());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_missing_directory_is_an_error_and_nothing_else() {
        assert!(ensure(Path::new("/nonexistent/etc")).is_err());
    }
}
