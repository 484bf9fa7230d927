//! `cay-guest bridge PATH [later]`: copies bytes between the standard streams and the guest's socket. With
//! `later` it connects when the first byte has come, which is not the guest's: the guest gives a new
//! connection little time for its hello, and a bridge may be opened in advance.

use std::os::fd::AsRawFd;
use std::path::Path;

use crate::sys;
use crate::transport::sockets;

/// Copies both ways until either side ends; the exit code.
pub fn run(path: &Path, later: bool) -> i32 {
    if later && !woken() {
        return 0;
    }
    // The guest may be a moment behind a container that has just been started.
    let mut socket = sockets::dial(path);
    for _ in 0..50 {
        if socket.is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        socket = sockets::dial(path);
    }
    let socket = match socket {
        Ok(socket) => socket,
        Err(errno) => {
            eprintln!(
                "cay-guest: Cannot connect to \"{}\": {}",
                path.display(),
                std::io::Error::from_raw_os_error(errno)
            );
            return 1;
        }
    };
    let socket = socket.as_raw_fd();
    // One thread per direction with blocking descriptors is all that is needed here.
    // SAFETY: no pointers.
    unsafe { libc::fcntl(socket, libc::F_SETFL, 0) };
    std::thread::spawn(move || {
        copy(0, socket);
        // SAFETY: no pointers. The guest sees our end and closes; the other direction then ends too.
        unsafe { libc::shutdown(socket, libc::SHUT_WR) };
    });
    copy(socket, 1);
    0
}

/// Waits for the first byte; false if the input ends before it.
fn woken() -> bool {
    loop {
        match sys::read(0, &mut [0u8]) {
            Ok(Some(n)) => return n == 1,
            Ok(None) => wait(0, libc::POLLIN),
            Err(_) => return false,
        }
    }
}

fn copy(from: i32, to: i32) {
    let mut buffer = vec![0u8; 65_536];
    loop {
        let n = match sys::read(from, &mut buffer) {
            Ok(Some(0)) | Err(_) => return,
            Ok(None) => {
                wait(from, libc::POLLIN);
                continue;
            }
            Ok(Some(n)) => n,
        };
        let mut at = 0;
        while at < n {
            match sys::write(to, &buffer[at..n]) {
                Ok(Some(n)) => at += n,
                Ok(None) => wait(to, libc::POLLOUT),
                Err(_) => return,
            }
        }
    }
}

/// Standard streams may have been given to us non-blocking.
fn wait(fd: i32, events: i16) {
    let mut pollfd = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: lives for the call.
    unsafe { libc::poll(&mut pollfd, 1, -1) };
}
