//! `on-tree`: runs a program that sees a tree mounted at a directory, in a mount namespace of its own.
//!
//! The server starts runtimes with it, on the host, as root. The tree is mounted `nosuid,nodev`, and with
//! `--shift` it is an idmapped mount: what belongs to the ids from FROM on disk belongs to those from TO
//! there, and what is written as those from TO is stored as those from FROM. No other process sees the
//! mount, and it ends with the last process that does.
//!
//! With `--user` there is also a user namespace at that file for the program to join: root there is ROOT. It
//! belongs to ROOT and not to root of the host, so that what the kernel counts for each user (inotify,
//! message queues) is counted for ROOT and for no user above it. A process that has joined it cannot be given
//! limits from outside, unless root has CAP_SYS_RESOURCE: `--limit` sets them beforehand.
//!
//! With `--mount` a further directory is mounted at `--mount-at`: all of it, or with `--mount-subpath` one
//! directory below it, to which no symlink is followed. `--mount-as` says how: `shared` shifts its ids as
//! those of the tree, `made` makes a subpath that is missing as well, and `host` leaves the ids of the host
//! as they are; `ro` and `rw` say whether it can be written. `--point` names a directory of the tree that
//! something will be mounted on: it is made if it is missing, and must not be reached through a symlink.
//! `--point-mode` gives it a mode: runc gives that to the memory that it mounts there.
//!
//! What fails is written to the log as one line, `level=error msg="…"`, with exit code 1, 120 if
//! a directory to mount or to mount on is not there, or 127 if the program cannot be run.

mod directories;
mod mounts;
mod namespaces;

use directories::{change_mode, descend, directory};
use mounts::{clone_directory, clone_tree, put, set_attributes};
use namespaces::{put_own_namespace, shifting_namespace};
use std::ffi::{CString, OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const FAILED: u8 = 1;
const REFUSED: u8 = 120;
const NOT_RUN: u8 = 127;

struct Arguments<'a> {
    tree: CString,
    at: CString,
    log: &'a OsStr,
    shift: Option<Shift>,
    user: Option<User>,
    limits: Vec<Limit>,
    mounts: Vec<Mount<'a>>,
    points: Vec<(&'a OsStr, Option<libc::mode_t>)>,
    program: &'a [OsString],
}

/// From the ids on disk to those of the mount.
#[derive(Debug, PartialEq, Eq)]
struct Shift {
    from: u32,
    to: u32,
    size: u32,
}

/// A directory to mount beside the tree.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    source: &'a OsStr,
    at: CString,
    subpath: Option<&'a OsStr>,
    shifted: bool,
    makes: bool,
    read_only: bool,
}

/// A resource by its number, and the most of it.
type Limit = (libc::c_int, libc::rlim_t);

/// A user namespace, and where to put it.
#[derive(Debug, PartialEq, Eq)]
struct User {
    root: u32,
    size: u32,
    at: CString,
}

/// Runs with `--tree DIR --at DIR --log FILE [--shift FROM:TO:SIZE] [--user ROOT:SIZE:FILE] [--limit
/// RLIMIT_NAME:N]… [--mount DIR --mount-at DIR --mount-as (shared|made|host),(ro|rw) [--mount-subpath PATH]]…
/// [--point PATH]… -- PROGRAM …`. Returns the exit code if the program was not started, or `None` if the
/// arguments make no sense.
pub fn run(arguments: &[OsString]) -> Option<u8> {
    let arguments = Arguments::parse(arguments)?;
    if let Err(Refusal { doing, error, code }) = show(&arguments).and_then(|()| limit(&arguments.limits)) {
        return Some(tell(arguments.log, &format!("Cannot {doing}: {error}"), code));
    }
    let (program, rest) = arguments.program.split_first()?;
    let error = Command::new(program).args(rest).exec();
    Some(tell(arguments.log, &format!("Cannot run {program:?}: {error}"), NOT_RUN))
}

impl<'a> Arguments<'a> {
    fn parse(arguments: &'a [OsString]) -> Option<Arguments<'a>> {
        let end = arguments.iter().position(|argument| argument == "--")?;
        let (options, program) = (&arguments[..end], &arguments[end + 1..]);
        let (mut tree, mut at, mut log, mut shift, mut user, mut limits) =
            (None, None, None, None, None, Vec::new());
        let (mut mounts, mut points): (Vec<Mount>, Vec<_>) = (Vec::new(), Vec::new());
        for pair in options.chunks(2) {
            let [option, value] = pair else { return None };
            match option.to_str()? {
                "--tree" => tree = CString::new(value.as_bytes()).ok(),
                "--at" => at = CString::new(value.as_bytes()).ok(),
                "--log" => log = Some(value.as_os_str()),
                "--shift" => shift = Some(Shift::parse(value.to_str()?)?),
                "--user" => user = Some(User::parse(value.to_str()?)?),
                "--limit" => limits.push(parse_limit(value.to_str()?)?),
                "--mount" => mounts.push(Mount::of(value.as_os_str())),
                "--mount-at" => mounts.last_mut()?.at = CString::new(value.as_bytes()).ok()?,
                "--mount-as" => mounts.last_mut()?.be(value.to_str()?)?,
                "--mount-subpath" => mounts.last_mut()?.subpath = Some(value.as_os_str()),
                "--point" => points.push((value.as_os_str(), None)),
                "--point-mode" => points.last_mut()?.1 = Some(parse_mode(value.to_str()?)?),
                _ => return None,
            }
        }
        mounts.iter().all(|mount| !mount.at.is_empty()).then_some(())?;
        (!program.is_empty()).then_some(())?;
        Some(Arguments { tree: tree?, at: at?, log: log?, shift, user, limits, mounts, points, program })
    }
}

impl<'a> Mount<'a> {
    fn of(source: &'a OsStr) -> Mount<'a> {
        let at = CString::default();
        Mount { source, at, subpath: None, shifted: false, makes: false, read_only: true }
    }

    fn be(&mut self, text: &str) -> Option<()> {
        let (kind, access) = text.split_once(',')?;
        (self.shifted, self.makes) = match kind {
            "shared" => (true, false),
            "made" => (true, true),
            "host" => (false, false),
            _ => return None,
        };
        self.read_only = match access {
            "ro" => true,
            "rw" => false,
            _ => return None,
        };
        Some(())
    }
}

impl Shift {
    fn parse(text: &str) -> Option<Shift> {
        let numbers: Vec<u32> = text.split(':').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let [from, to, size] = numbers[..] else { return None };
        (size > 0 && from.checked_add(size).is_some() && to.checked_add(size).is_some()).then_some(Shift {
            from,
            to,
            size,
        })
    }
}

impl User {
    fn parse(text: &str) -> Option<User> {
        let mut parts = text.splitn(3, ':');
        let mut number = || parts.next()?.parse::<u32>().ok();
        let (root, size) = (number()?, number()?);
        let at = CString::new(parts.next()?).ok()?;
        (size > 0 && root.checked_add(size).is_some()).then_some(User { root, size, at })
    }
}

/// What failed, without names of the host: tenants may see it.
struct Refusal {
    doing: String,
    error: io::Error,
    code: u8,
}

/// A failure of the machine.
fn failing(doing: &str) -> impl FnOnce(io::Error) -> Refusal {
    move |error| Refusal { doing: doing.to_owned(), error, code: FAILED }
}

/// A directory that is not there, or that a symlink leads to.
fn refusing(doing: String) -> impl FnOnce(io::Error) -> Refusal {
    move |error| Refusal { doing, error, code: REFUSED }
}

fn show(arguments: &Arguments) -> Result<(), Refusal> {
    let Arguments { tree, at, shift, user, .. } = arguments;
    let userns = shift.as_ref().map(shifting_namespace).transpose().map_err(failing("map ids"))?;
    // Mounts and unmounts of the host still come here; none of ours go there.
    // SAFETY: no pointer but constants that end with NUL.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) }).map_err(failing("have a mount namespace"))?;
    let slave = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: as above; the other arguments may be null.
    check(unsafe { libc::mount(std::ptr::null(), c"/".as_ptr(), std::ptr::null(), slave, std::ptr::null()) })
        .map_err(failing("keep mounts from the host"))?;
    for (point, mode) in &arguments.points {
        let doing = format!("mount something at {}", point.to_string_lossy());
        directory(OsStr::from_bytes(tree.to_bytes()))
            .and_then(|root| descend(root, point, true))
            .and_then(|found| mode.map_or(Ok(()), |mode| change_mode(&found, mode)))
            .map_err(refusing(doing))?;
    }
    let mount = clone_tree(tree).map_err(failing("open the tree"))?;
    set_attributes(&mount, userns.as_ref(), false).map_err(failing("map the ids of the tree"))?;
    put(&mount, at).map_err(failing("mount the tree"))?;
    for mount in &arguments.mounts {
        show_further(mount, userns.as_ref())?;
    }
    let Some(user) = user else { return Ok(()) };
    put_own_namespace(user).map_err(failing("have a user namespace"))
}

fn show_further(mount: &Mount, userns: Option<&OwnedFd>) -> Result<(), Refusal> {
    let Mount { source, at, subpath, shifted, makes, read_only } = mount;
    let root = directory(source).map_err(failing("open what is to be mounted"))?;
    let found = match subpath {
        None => root,
        Some(path) => descend(root, path, *makes)
            .map_err(refusing(format!("mount the directory {}", path.to_string_lossy())))?,
    };
    let clone = clone_directory(&found).map_err(failing("mount it"))?;
    set_attributes(&clone, userns.filter(|_| *shifted), *read_only)
        .map_err(failing("map the ids of what is mounted"))?;
    put(&clone, at).map_err(failing("mount it"))
}

/// Octal, without the bits that change who runs a program.
fn parse_mode(text: &str) -> Option<libc::mode_t> {
    libc::mode_t::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o1777)
}

fn parse_limit(text: &str) -> Option<Limit> {
    let (name, most) = text.split_once(':')?;
    let resource = match name {
        "RLIMIT_NOFILE" => libc::RLIMIT_NOFILE,
        "RLIMIT_MEMLOCK" => libc::RLIMIT_MEMLOCK,
        "RLIMIT_MSGQUEUE" => libc::RLIMIT_MSGQUEUE,
        "RLIMIT_SIGPENDING" => libc::RLIMIT_SIGPENDING,
        _ => return None,
    };
    Some((resource as libc::c_int, most.parse().ok()?))
}

fn limit(limits: &[Limit]) -> Result<(), Refusal> {
    for (resource, most) in limits {
        let limit = libc::rlimit { rlim_cur: *most, rlim_max: *most };
        // SAFETY: the structure lives through the call. The C libraries differ in the type of the number.
        check(unsafe { libc::setrlimit(*resource as _, &limit) }).map_err(failing("set limits"))?;
    }
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn tell(log: &OsStr, message: &str, code: u8) -> u8 {
    let line = format!("level=error msg=\"{}\"\n", message.replace('\\', "\\\\").replace('"', "\\\""));
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(log) {
        let _ = file.write_all(line.as_bytes());
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn what_comes_after_the_dashes_is_the_programs() {
        let given = words(
            "--tree /t --at /a --log /l --shift 1000:2000:10 --user 2000:10:/u:v --limit RLIMIT_NOFILE:64 --limit RLIMIT_MSGQUEUE:0 -- runc --at x -- y",
        );
        let parsed = Arguments::parse(&given).unwrap();
        assert_eq!(parsed.program, &words("runc --at x -- y")[..]);
        assert_eq!(
            (parsed.tree.as_c_str(), parsed.at.as_c_str(), parsed.log),
            (c"/t", c"/a", OsStr::new("/l"))
        );
        assert_eq!(parsed.user, Some(User { root: 2000, size: 10, at: c"/u:v".into() }));
        assert_eq!(
            parsed.limits,
            [(libc::RLIMIT_NOFILE as libc::c_int, 64), (libc::RLIMIT_MSGQUEUE as libc::c_int, 0)]
        );
        assert_eq!(parsed.shift, Some(Shift { from: 1000, to: 2000, size: 10 }));
    }

    #[test]
    fn mounts_have_their_own_options() {
        let given = words(
            "--tree /t --at /a --log /l --mount /v --mount-at /m/0 --mount-as made,rw --mount-subpath x/y --mount /h --mount-at /m/1 --mount-as host,ro --point /data --point-mode 1777 -- true",
        );
        let parsed = Arguments::parse(&given).unwrap();
        let first = Mount {
            source: OsStr::new("/v"),
            at: c"/m/0".into(),
            subpath: Some(OsStr::new("x/y")),
            shifted: true,
            makes: true,
            read_only: false,
        };
        let second = Mount {
            source: OsStr::new("/h"),
            at: c"/m/1".into(),
            subpath: None,
            shifted: false,
            makes: false,
            read_only: true,
        };
        assert_eq!(parsed.mounts, [first, second]);
        assert_eq!(parsed.points, [(OsStr::new("/data"), Some(0o1777))]);
    }

    #[test]
    fn no_symlink_is_followed_on_the_way_to_a_directory() {
        let root = std::env::temp_dir().join(format!("cay-on-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("out")).unwrap();
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        let go = |path: &str, makes| {
            descend(directory(root.as_os_str()).unwrap(), OsStr::new(path), makes).map(drop)
        };
        assert!(go("a/b", false).is_ok());
        assert!(go("a/new/deep", false).is_err());
        assert!(go("a/new/deep", true).is_ok());
        assert!(root.join("a/new/deep").is_dir());
        for path in ["out", "link", "link/b", "out/ssh", "a/../a", "..", "file", "file/x"] {
            assert!(go(path, true).is_err(), "{path}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        for text in [
            "--tree /t --at /a --log /l",
            "--tree /t --at /a --log /l --",
            "--tree /t --at /a -- true",
            "--tree /t --log /l -- true",
            "--at /a --log /l -- true",
            "--tree /t --at /a --log -- true",
            "--tree /t --at /a --log /l --user /u -- true",
            "--tree /t --at /a --log /l --user 1:0:/u -- true",
            "--tree /t --at /a --log /l --limit RLIMIT_OTHER:1 -- true",
            "--tree /t --at /a --log /l --other x -- true",
            "--tree /t --at /a --log /l --mount-at /m -- true",
            "--tree /t --at /a --log /l --mount /v -- true",
            "--tree /t --at /a --log /l --mount /v --mount-at /m --mount-as any,rw -- true",
            "--tree /t --at /a --log /l --mount /v --mount-at /m --mount-as made,no -- true",
        ] {
            assert!(Arguments::parse(&words(text)).is_none(), "{text}");
        }
        for text in ["", "1:2", "1:2:3:4", "1:2:0", "-1:2:3", "1:4294967295:3", "4294967295:1:3", "a:b:c"] {
            assert_eq!(Shift::parse(text), None, "{text}");
        }
    }
}
