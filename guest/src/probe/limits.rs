//! Takes more than a sandbox may have, and says how much it got.

use std::fs::File;
use std::io::{Error, Write};

use super::{Said, name_of};

/// Starts processes until one is refused, then ends them all.
pub fn processes(most: u32) -> Said {
    let mut children = Vec::new();
    let mut end = "reached".to_owned();
    while (children.len() as u32) < most {
        // SAFETY: this program has one thread here, and the child waits and does nothing else.
        match unsafe { libc::fork() } {
            0 => loop {
                unsafe { libc::pause() };
            },
            -1 => {
                end = name_of(&Error::last_os_error());
                break;
            }
            child => children.push(child),
        }
    }
    for child in &children {
        // SAFETY: the child is one of ours and was not waited for.
        unsafe {
            libc::kill(*child, libc::SIGKILL);
            libc::waitpid(*child, std::ptr::null_mut(), 0);
        }
    }
    Ok(format!("started {} {end}", children.len()))
}

/// Opens files until one is refused.
pub fn files(most: u32) -> Said {
    let mut opened = Vec::new();
    while (opened.len() as u32) < most {
        match File::open("/dev/null") {
            Ok(file) => opened.push(file),
            Err(error) => return Ok(format!("opened {} {}", opened.len(), name_of(&error))),
        }
    }
    Ok(format!("opened {} reached", opened.len()))
}

/// Uses memory in a child, page by page. Says how it ended.
pub fn memory(bytes: usize) -> Said {
    // SAFETY: the child uses memory and exits.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: a private mapping of its own, written within its bounds.
        unsafe {
            // Whoever has to be ended for want of memory, it is to be this one.
            let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let map =
                libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if map == libc::MAP_FAILED {
                libc::_exit(7);
            }
            for at in (0..bytes).step_by(4096) {
                map.cast::<u8>().add(at).write_volatile(at as u8 | 1);
            }
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, &mut status, 0) };
    if libc::WIFSIGNALED(status) {
        return Ok(format!("killed {}", libc::WTERMSIG(status)));
    }
    Ok(match libc::WEXITSTATUS(status) {
        0 => "reached".into(),
        7 => "ENOMEM".into(),
        code => format!("exited {code}"),
    })
}

/// Writes a file until it is refused, and removes it.
pub fn disk(path: &str, bytes: u64) -> Said {
    let mut file = File::create(path)?;
    // Not all the same, so that nothing is saved by compressing it.
    let mut piece = vec![0u8; 1 << 20];
    let mut seed = 88_172_645_463_325_252u64;
    let mut written = 0;
    let mut end = "reached".to_owned();
    while written < bytes {
        for eight in piece.chunks_mut(8) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            eight.copy_from_slice(&seed.to_ne_bytes());
        }
        if let Err(error) = file.write_all(&piece) {
            end = name_of(&error);
            break;
        }
        written += piece.len() as u64;
    }
    if end == "reached" {
        if let Err(error) = file.sync_all() {
            end = name_of(&error);
        }
    }
    drop(file);
    let _ = std::fs::remove_file(path);
    Ok(format!("wrote {written} {end}"))
}
