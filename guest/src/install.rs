//! `cay-guest install DIR [MODE:DIRECTORY]…`: puts the guest where another container will find it, as the
//! first container of a pod does.
//!
//! Into DIR go this program, as `guest`, and the accounts of the image that it came in, as `passwd` and
//! `group`, and an empty file `closed/file` in a directory that nobody may enter. Then the directories are
//! made, each with its mode. All of it can be repeated.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Does it, or tells what could not be done.
pub fn run(target: &Path, directories: &[OsString]) -> Result<(), String> {
    let put = |source: &str, name: &str, mode: u32| put(Path::new(source), &target.join(name), mode);
    put("/proc/self/exe", "guest", 0o755)?;
    for name in ["passwd", "group"] {
        let source = format!("/etc/{name}");
        if Path::new(&source).exists() {
            put(&source, name, 0o644)?;
        }
    }
    closed(&target.join("closed"))?;
    directories.iter().try_for_each(|directory| make(directory.as_bytes()))
}

/// A file that only root reaches: a node mounts one of its own there that everybody could write, and that no
/// limit counts.
fn closed(directory: &Path) -> Result<(), String> {
    let mode = |bits| fs::set_permissions(directory, Permissions::from_mode(bits));
    let done = fs::create_dir_all(directory)
        .and_then(|()| mode(0o700))
        .and_then(|()| fs::write(directory.join("file"), ""))
        .and_then(|()| mode(0));
    done.map_err(|error| format!("Cannot make \"{}\": {error}", directory.display()))
}

/// Whole or not at all: a container that is started again may be using the old one.
fn put(source: &Path, target: &Path, mode: u32) -> Result<(), String> {
    let temporary = target.with_extension("new");
    let done = fs::copy(source, &temporary)
        .and_then(|_| fs::set_permissions(&temporary, Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&temporary, target));
    done.map_err(|error| format!("Cannot write \"{}\": {error}", target.display()))
}

fn make(argument: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(argument);
    let parsed =
        text.split_once(':').and_then(|(mode, path)| Some((u32::from_str_radix(mode, 8).ok()?, path)));
    let Some((mode, path)) = parsed else { return Err(format!("\"{text}\" is not MODE:DIRECTORY")) };
    let made = match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
        .map_err(|error| format!("Cannot make \"{path}\": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_the_directories_are_put_there_and_again() {
        let target = std::env::temp_dir().join(format!("cay-install-{}", std::process::id()));
        fs::create_dir_all(&target).unwrap();
        let directory = OsString::from(format!("1777:{}", target.join("tmp").display()));
        for _ in 0..2 {
            run(&target, std::slice::from_ref(&directory)).unwrap();
        }
        let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("guest"), mode("tmp"), mode("closed")), (0o755, 0o1777, 0));
        assert_eq!(
            fs::metadata(target.join("guest")).unwrap().len(),
            fs::metadata("/proc/self/exe").unwrap().len()
        );
        assert!(run(&target, &[OsString::from("no-mode")]).unwrap_err().contains("\"no-mode\""));
        fs::set_permissions(target.join("closed"), Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::metadata(target.join("closed/file")).unwrap().len(), 0);
        fs::remove_dir_all(target).unwrap();
    }
}
