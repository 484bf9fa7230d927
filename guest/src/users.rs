//! Who a command or a file operation acts as.
//!
//! The image's own `/etc/passwd` and `/etc/group` decide; there is no C library in between, since
//! the guest is static and name services would have to be loaded. The files are hostile input:
//! lines that make no sense are skipped, and only the first megabyte is looked at.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use crate::failure::Failure;

/// A user with everything that a process needs to become them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups, the primary one included.
    pub groups: Vec<u32>,
    /// Home directory, `/` where none is known.
    pub home: Vec<u8>,
    /// Name, or the number where it is not listed.
    pub name: Vec<u8>,
    /// Login shell, `/bin/sh` where none is known.
    pub shell: Vec<u8>,
}

const DEFAULT_SHELL: &[u8] = b"/bin/sh";
const MAX_FILE: u64 = 1 << 20;
const MAX_GROUPS: usize = 256;

/// Looks up `name`, `uid`, `name:group` or `uid:gid`. A bare number need not be listed.
pub fn lookup(spec: &str) -> Result<Identity, Failure> {
    let passwd = load("/etc/passwd");
    let group = load("/etc/group");
    find(spec, &passwd, &group)
}

/// As `lookup`, in the given files.
pub fn find(spec: &str, passwd: &[u8], group: &[u8]) -> Result<Identity, Failure> {
    let (user, group_spec) = match spec.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (spec, None),
    };
    let unknown = |what: &str, name: &str| {
        Failure::new("not_found", format!("There is no {what} \"{name}\" in the sandbox"))
            .with("what", "user")
    };
    if user.is_empty() || group_spec == Some("") {
        return Err(
            Failure::new("invalid_argument", format!("\"{spec}\" is not a user")).with("what", "user")
        );
    }
    let number = id(user.as_bytes());
    let entry = lines(passwd, 6).find(|fields| fields[0] == user.as_bytes()).or_else(|| {
        let number = number?;
        lines(passwd, 6).find(|fields| id(fields[2]) == Some(number))
    });
    let mut identity = match (entry, number) {
        (Some(fields), _) => {
            let (Some(uid), Some(gid)) = (id(fields[2]), id(fields[3])) else {
                return Err(unknown("user", user));
            };
            let home = if fields[5].starts_with(b"/") { fields[5].to_vec() } else { b"/".to_vec() };
            let shell = fields.get(6).filter(|shell| shell.starts_with(b"/"));
            let shell = shell.map_or(DEFAULT_SHELL, |shell| shell).to_vec();
            Identity { uid, gid, groups: vec![gid], home, name: fields[0].to_vec(), shell }
        }
        (None, Some(uid)) => Identity {
            uid,
            gid: if uid == 0 { 0 } else { uid },
            groups: vec![],
            home: b"/".to_vec(),
            name: user.as_bytes().to_vec(),
            shell: DEFAULT_SHELL.to_vec(),
        },
        (None, None) => return Err(unknown("user", user)),
    };
    match group_spec {
        Some(name) => {
            let listed =
                lines(group, 3).find(|fields| fields[0] == name.as_bytes()).and_then(|fields| id(fields[2]));
            identity.gid = listed.or_else(|| id(name.as_bytes())).ok_or_else(|| unknown("group", name))?;
            identity.groups = vec![identity.gid];
        }
        None => {
            let member = identity.name.clone();
            for fields in lines(group, 4) {
                if identity.groups.len() >= MAX_GROUPS {
                    break;
                }
                if let Some(gid) = id(fields[2]) {
                    let listed = fields[3].split(|byte| *byte == b',').any(|name| name == member);
                    if listed && !identity.groups.contains(&gid) {
                        identity.groups.push(gid);
                    }
                }
            }
            if identity.groups.is_empty() {
                identity.groups.push(identity.gid);
            }
        }
    }
    Ok(identity)
}

/// `u32::MAX` means "no change" to the kernel, so it is no valid id.
fn id(bytes: &[u8]) -> Option<u32> {
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok().filter(|id| *id != u32::MAX)
}

fn lines(file: &[u8], fields: usize) -> impl Iterator<Item = Vec<&[u8]>> {
    file.split(|byte| *byte == b'\n').filter_map(move |line| {
        let parts: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        (parts.len() >= fields && !parts[0].is_empty()).then_some(parts)
    })
}

fn load(path: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A fifo in its place would block the guest until a process writes to it.
    if let Ok(file) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
        && file.metadata().is_ok_and(|metadata| metadata.is_file())
    {
        let _ = file.take(MAX_FILE).read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nbroken\n:x:1:1::/:/\nuser:x:1000:1000::/home/user:/bin/bash\n12:x:77:77::relative:\n";
    const GROUP: &[u8] = b"root:x:0:\ndocker:x:99:root,user\nuser:x:1000:\nwheel:x:10:user\nbad:x:zz:user\n";

    #[test]
    fn a_name_brings_its_groups_and_home() {
        let user = find("user", PASSWD, GROUP).unwrap();
        assert_eq!(
            (user.uid, user.gid, user.groups, user.home),
            (1000, 1000, vec![1000, 99, 10], b"/home/user".to_vec())
        );
        let user = find("1000", PASSWD, GROUP).unwrap();
        assert_eq!((user.name, user.shell), (b"user".to_vec(), b"/bin/bash".to_vec()));
    }

    #[test]
    fn a_number_need_not_be_listed() {
        let user = find("4242", PASSWD, GROUP).unwrap();
        assert_eq!(
            (user.uid, user.gid, user.groups.as_slice(), user.home.as_slice()),
            (4242, 4242, &[4242][..], &b"/"[..])
        );
        let user = find("4242:17", PASSWD, GROUP).unwrap();
        assert_eq!((user.uid, user.gid, user.groups), (4242, 17, vec![17]));
    }

    #[test]
    fn a_given_group_replaces_the_others() {
        let user = find("user:docker", PASSWD, GROUP).unwrap();
        assert_eq!((user.gid, user.groups), (99, vec![99]));
    }

    #[test]
    fn a_numeric_name_is_a_name_first() {
        let user = find("12", PASSWD, GROUP).unwrap();
        assert_eq!((user.uid, user.home, user.shell), (77, b"/".to_vec(), b"/bin/sh".to_vec()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        for spec in ["nobody", "user:nogroup", "-1", "99999999999", "4294967295"] {
            assert_eq!(find(spec, PASSWD, GROUP).unwrap_err().code, "not_found", "{spec}");
        }
        for spec in ["", ":", "user:", ":user"] {
            assert_eq!(find(spec, PASSWD, GROUP).unwrap_err().code, "invalid_argument", "{spec}");
        }
    }
}
